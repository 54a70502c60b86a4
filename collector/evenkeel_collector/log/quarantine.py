"""The quarantine: pieces that the store refused, and data damaged on disk.

    NAME.CRC.sealed   bodies that the store refused, a segment of their own; NAME.CRC.reason why
    NAME.CRC.damaged  bytes of a segment in which no intact record was found

CRC is that of the contents: a piece that is written again after a crash replaces only itself, and
the store recognises by its name a piece that is put back twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isal import isal_zlib

from evenkeel_collector.log.segment_format import (
    HEADER,
    SegmentContents,
    encode_segment,
    read_contents,
    read_file,
)
from evenkeel_collector.log.segment_name import time_of
from evenkeel_collector.log.synced_files import write_synced

logger = logging.getLogger(__name__)

FOLDER = "quarantine"
SEALED_SUFFIX = ".sealed"
DAMAGED_SUFFIX = ".damaged"
REASON_SUFFIX = ".reason"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was put back from the quarantine into the log.

    Attributes:
        refused: Pieces that the store had refused.
        records: Intact records found in damaged files.
        damaged_files_left: Files that still contain unreadable bytes.
    """

    refused: int
    records: int
    damaged_files_left: int


def keep_refused(log: Path, name: str, created_ns: int, bodies: Sequence[bytes], why: str) -> Path:
    """Write refused bodies to the quarantine; they are on disk when this returns.

    Raises:
        OSError: If the disk refuses.
    """
    path = _path(log, name, b"".join(bodies), SEALED_SUFFIX)
    path.with_suffix(REASON_SUFFIX).write_text(why + "\n", encoding="utf-8")
    write_synced(path, encode_segment(path.stem, created_ns, bodies))
    return path


def keep_damaged(log: Path, name: str, data: bytes, contents: SegmentContents) -> Path | None:
    """Save those bytes of a segment that belong to no intact record, for a later repair.

    Returns:
        The file on disk; None if there is nothing to keep.

    Raises:
        OSError: If the disk refuses.
    """
    rest = b"".join(data[begin:end] for begin, end in contents.cut)
    if not rest:
        return None
    if contents.created_ns is not None and contents.marker:
        rest = data[: HEADER.size] + rest
    path = _path(log, name, rest, DAMAGED_SUFFIX)
    write_synced(path, rest)
    return path


def keep_whole(log: Path, path: Path) -> Path:
    """Move a completely unreadable file into the quarantine.

    Raises:
        OSError: If it cannot be moved.
    """
    kept, number = _folder(log) / f"{path.name}{DAMAGED_SUFFIX}", 0
    while kept.exists():
        number += 1
        kept = kept.with_name(f"{path.name}.{number}{DAMAGED_SUFFIX}")
    return path.rename(kept)


def list_quarantined(log: Path, suffix: str) -> list[Path]:
    """Return the files of one kind in the quarantine, by name."""
    return sorted((log / FOLDER).glob(f"*{suffix}"))


def replay_quarantine(log: Path) -> Replayed:
    """Put refused pieces and the readable part of damaged files back into the log.

    A damaged file has intact records if an earlier version cut them off with the damage, or if it
    was repaired. Unreadable bytes stay in the quarantine.

    Raises:
        OSError: If a piece cannot be moved or written.
    """
    num_records = 0
    for path in list_quarantined(log, DAMAGED_SUFFIX):
        try:
            data = read_file(path)
        except OSError as error:
            logger.error("cannot read damaged file file=%s error=%s", path, error)
            continue
        num_records += _replay_damaged(log, path, data)
    refused = list_quarantined(log, SEALED_SUFFIX)
    for path in refused:
        path.rename(log / path.name)
        path.with_suffix(REASON_SUFFIX).unlink(missing_ok=True)
    return Replayed(len(refused), num_records, len(list_quarantined(log, DAMAGED_SUFFIX)))


def _replay_damaged(log: Path, path: Path, data: bytes) -> int:
    """Move the intact records of a damaged file into the log; return their number."""
    contents = read_contents(data, path.stem)
    if not contents.bodies:
        return 0
    name = path.name.partition(".")[0]
    bodies = contents.bodies_of(data)
    piece = _path(log, name, b"".join(bodies), SEALED_SUFFIX)
    created_ns = contents.created_ns or time_of(name) or path.stat().st_mtime_ns
    write_synced(log / piece.name, encode_segment(piece.stem, created_ns, bodies))
    keep_damaged(log, name, data, contents)
    path.unlink()
    return len(bodies)


def _path(log: Path, name: str, data: bytes, suffix: str) -> Path:
    return _folder(log) / f"{name}.{isal_zlib.crc32(data):08x}{suffix}"


def _folder(log: Path) -> Path:
    folder = log / FOLDER
    folder.mkdir(exist_ok=True)
    return folder
