"""Recovers the log at start: whole segments, crash remains, and data damaged on disk."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

from evenkeel_collector.log.quarantine import SEALED_SUFFIX, keep_damaged, keep_whole
from evenkeel_collector.log.segment_format import (
    MAX_SEGMENT_BYTES,
    SegmentContents,
    encode_segment,
    read_contents,
    read_file,
    time_of_whole,
)
from evenkeel_collector.log.segment_name import time_of
from evenkeel_collector.log.synced_files import DRAFT_SUFFIX, truncate_synced, write_synced

logger = logging.getLogger(__name__)

OPEN_SUFFIX = ".open"


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment that no longer changes.

    Attributes:
        name: Its deduplication token.
        path: Its file.
        num_bytes: Its size.
        created_ns: When it was started.
        is_small: Whether its insert is short enough for a reader to wait for.
    """

    name: str
    path: Path
    num_bytes: int
    created_ns: int
    is_small: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """What is left of a segment (None if nothing), and how much was torn or damaged."""

    segment: SealedSegment | None
    num_torn_bytes: int = 0
    num_damaged_bytes: int = 0
    is_damaged: bool = False


@dataclass(slots=True)
class Recovered:
    """The result of recovering the log.

    Attributes:
        segments: Segments to insert, oldest first.
        num_torn_bytes: Bytes cut from torn tails: never acknowledged.
        num_damaged: Number of segments that were damaged or unreadable.
        num_damaged_bytes: Their unreadable bytes, which are kept in the quarantine.
    """

    segments: list[SealedSegment] = field(default_factory=list)
    num_torn_bytes: int = 0
    num_damaged: int = 0
    num_damaged_bytes: int = 0


def recover(folder: Path) -> Recovered:
    """Seal every segment in the folder, without its torn or damaged parts.

    A file that cannot be read at all stays in place and is retried at the next start.
    """
    found = Recovered()
    for path in sorted(folder.glob("*"), key=lambda path: path.name):
        try:
            if path.suffix == DRAFT_SUFFIX:
                path.unlink()
            if path.suffix not in (OPEN_SUFFIX, SEALED_SUFFIX):
                continue
            checked = check_segment(folder, path)
            if checked.segment is not None:
                sealed = replace(checked.segment, path=rename_sealed(path))
                found.segments.append(sealed)
        except OSError as error:
            found.num_damaged += 1
            logger.error("cannot read log file, leaving it in place file=%s error=%s", path, error)
            continue
        found.num_torn_bytes += checked.num_torn_bytes
        found.num_damaged += checked.is_damaged
        found.num_damaged_bytes += checked.num_damaged_bytes
    return found


def check_segment(folder: Path, path: Path) -> Checked:
    """Remove the torn or damaged parts from a segment's file and return what is left.

    A torn tail was never acknowledged: acknowledging follows fdatasync. Anything else that is
    unreadable was damaged by the disk, and goes to the quarantine. The segment keeps its name, so
    a store that already has part of it stores nothing twice.

    Raises:
        OSError: If the file cannot be read, or the damaged part cannot be saved; the file is then
            unchanged.
    """
    num_bytes = path.stat().st_size
    if num_bytes > MAX_SEGMENT_BYTES:
        return _keep_whole(folder, path, num_bytes)
    created_ns = time_of_whole(path)
    if created_ns is not None:
        return Checked(SealedSegment(path.stem, path, num_bytes, created_ns))
    data = read_file(path)
    contents = read_contents(data, path.stem)
    num_torn_bytes = num_bytes - contents.torn_at
    is_whole = contents.is_sound and bool(contents.bodies) and not num_torn_bytes
    if not contents.is_sound or (path.suffix == SEALED_SUFFIX and not is_whole):
        if not contents.bodies:
            return _keep_whole(folder, path, num_bytes)
        return _salvage(folder, path, data, contents)
    if num_torn_bytes:
        logger.warning("cut torn tail segment=%s bytes=%d", path.name, num_torn_bytes)
        truncate_synced(path, contents.torn_at)
    if not contents.bodies:
        # The collector stopped before it had written the first record.
        path.unlink()
        return Checked(None, num_torn_bytes)
    left = SealedSegment(path.stem, path, contents.torn_at, contents.created_ns or 0)
    return Checked(left, num_torn_bytes)


def rename_sealed(path: Path) -> Path:
    """Seal a segment: it will not change any more."""
    return path.rename(path.with_suffix(SEALED_SUFFIX))


def _keep_whole(folder: Path, path: Path, num_bytes: int) -> Checked:
    kept = keep_whole(folder, path)
    logger.error(
        "log segment damaged: no intact record left segment=%s bytes=%d kept=%s",
        path.name, num_bytes, kept,
    )  # fmt: skip
    return Checked(None, num_damaged_bytes=num_bytes, is_damaged=True)


def _salvage(folder: Path, path: Path, data: bytes, contents: SegmentContents) -> Checked:
    """Save the damaged bytes, then rewrite the segment with its intact records."""
    name = path.stem
    kept = keep_damaged(folder, name, data, contents)
    created_ns = contents.created_ns or time_of(name) or path.stat().st_mtime_ns
    whole = encode_segment(name, created_ns, contents.bodies_of(data))
    write_synced(path, whole)
    num_cut = sum(end - begin for begin, end in contents.cut)
    logger.error(
        "log segment damaged segment=%s intact_records=%d repeated_records=%d damaged_bytes=%d "
        "kept=%s",
        path.name, len(contents.bodies), len(contents.repeated), num_cut, kept,
    )  # fmt: skip
    left = SealedSegment(name, path, len(whole), created_ns)
    return Checked(left, num_damaged_bytes=num_cut, is_damaged=True)
