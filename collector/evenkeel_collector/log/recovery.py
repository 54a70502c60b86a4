"""What a collector finds in its log: whole segments, what a crash left, what a disk damaged."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

from evenkeel_collector.log.quarantine import SEALED_SUFFIX, keep_damaged, keep_whole
from evenkeel_collector.log.segment import (
    MAX_SEGMENT_BYTES,
    SegmentContents,
    encode_segment,
    read_contents,
    read_file,
    time_of,
    time_of_whole,
)
from evenkeel_collector.log.synced_files import DRAFT_SUFFIX, truncate_synced, write_synced

logger = logging.getLogger(__name__)

OPEN_SUFFIX = ".open"


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment that will not change any more.

    Attributes:
        name: Its deduplication token.
        path: Its file.
        num_bytes: How large it is.
        created_ns: When it was begun.
        is_small: Whether its insert takes a moment, which a reader can wait.
    """

    name: str
    path: Path
    num_bytes: int
    created_ns: int
    is_small: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """What is left of a segment, None if nothing; and what of it was torn, or damaged."""

    segment: SealedSegment | None
    num_torn_bytes: int = 0
    num_damaged_bytes: int = 0
    is_damaged: bool = False


@dataclass(slots=True)
class Recovered:
    """What was found in the log.

    Attributes:
        segments: Those to insert, oldest first.
        num_torn_bytes: What was cut from ends: never acknowledged.
        num_damaged: How many segments were damaged, or could not be read at all.
        num_damaged_bytes: What of them could not be read, and is kept in the quarantine.
    """

    segments: list[SealedSegment] = field(default_factory=list)
    num_torn_bytes: int = 0
    num_damaged: int = 0
    num_damaged_bytes: int = 0


def recover(folder: Path) -> Recovered:
    """Seal every segment in the folder, without what is torn or damaged.

    A file that cannot be read at all stays where it is, and is tried again at the next start.
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
            logger.error("log file not read, it stays where it is file=%s error=%s", path, error)
            continue
        found.num_torn_bytes += checked.num_torn_bytes
        found.num_damaged += checked.is_damaged
        found.num_damaged_bytes += checked.num_damaged_bytes
    return found


def check_segment(folder: Path, path: Path) -> Checked:
    """Return what is left of a segment, in its file, once what is torn or damaged is out of it.

    A torn tail was never acknowledged: acknowledging follows fdatasync. Anything else that cannot
    be read was damaged by the disk, and goes to the quarantine. The segment's name stays: if the
    store has a part of it, it takes nothing twice.

    Raises:
        OSError: If the file cannot be read, or what is damaged cannot be kept; it is then as it
            was.
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
        logger.warning("torn tail cut segment=%s bytes=%d", path.name, num_torn_bytes)
        truncate_synced(path, contents.torn_at)
    if not contents.bodies:
        # The collector was stopped before it had written the first record.
        path.unlink()
        return Checked(None, num_torn_bytes)
    left = SealedSegment(path.stem, path, contents.torn_at, contents.created_ns or 0)
    return Checked(left, num_torn_bytes)


def rename_sealed(path: Path) -> Path:
    """Mark a segment as one that will not change any more."""
    return path.rename(path.with_suffix(SEALED_SUFFIX))


def _keep_whole(folder: Path, path: Path, num_bytes: int) -> Checked:
    kept = keep_whole(folder, path)
    logger.error(
        "log segment damaged: it has no intact record segment=%s bytes=%d kept=%s",
        path.name, num_bytes, kept,
    )  # fmt: skip
    return Checked(None, num_damaged_bytes=num_bytes, is_damaged=True)


def _salvage(folder: Path, path: Path, data: bytes, contents: SegmentContents) -> Checked:
    """Keep what is damaged, then write the segment anew with the records that are intact."""
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
