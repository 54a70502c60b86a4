"""What a collector finds in its log when it starts: whole segments, and what a crash left."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from collector.segment import scan

logger = logging.getLogger(__name__)

OPEN_SUFFIX = ".open"
SEALED_SUFFIX = ".sealed"
QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment that will not change any more; `name` is its deduplication token."""

    name: str
    path: Path
    num_bytes: int
    created_ns: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """The segments to insert, oldest first, and how many torn bytes were cut."""

    segments: list[SealedSegment]
    num_torn_bytes: int


def recover(folder: Path) -> Recovered:
    """Seal every segment in the folder, without what a crash tore from its end.

    A torn tail was never acknowledged: acknowledging follows fdatasync. A segment that had been
    sealed can only be damaged by the disk; what cannot be read of it goes to the quarantine.

    Raises:
        OSError: If a segment cannot be read, cut or renamed.
    """
    segments = []
    num_torn_bytes = 0
    for draft in folder.glob("*.draft"):
        draft.unlink()
    paths = [*folder.glob(f"*{OPEN_SUFFIX}"), *folder.glob(f"*{SEALED_SUFFIX}")]
    for path in sorted(paths, key=lambda path: path.name):
        data = path.read_bytes()
        intact = scan(data)
        if intact.num_bytes < len(data):
            if path.suffix == SEALED_SUFFIX:
                _keep_damaged(folder, path, data[intact.num_bytes :])
            num_torn_bytes += len(data) - intact.num_bytes
            logger.warning("tail cut segment=%s bytes=%d", path.name, len(data) - intact.num_bytes)
            _truncate(path, intact.num_bytes)
        if intact.num_records == 0 or intact.created_ns is None:
            path.unlink()
            continue
        segments.append(
            SealedSegment(path.stem, rename_sealed(path), intact.num_bytes, intact.created_ns)
        )
    return Recovered(segments, num_torn_bytes)


def rename_sealed(path: Path) -> Path:
    """Mark a segment as one that will not change any more."""
    return path.rename(path.with_suffix(SEALED_SUFFIX))


def keep_piece(folder: Path, name: str, data: bytes, reason: str) -> Path:
    """Write a part of a segment to the quarantine, on disk when this returns.

    Raises:
        OSError: If the disk refuses.
    """
    quarantine = folder / QUARANTINE
    quarantine.mkdir(exist_ok=True)
    path = quarantine / f"{name}{SEALED_SUFFIX}"
    path.with_suffix(".reason").write_text(reason + "\n", encoding="utf-8")
    write_synced(path, data)
    return path


def requeue(folder: Path) -> int:
    """Put every segment of the quarantine back into the log, to be stored; return how many.

    Damaged remains, which no store could read, stay.

    Raises:
        OSError: If one cannot be moved.
    """
    paths = sorted((folder / QUARANTINE).glob(f"*{SEALED_SUFFIX}"))
    for path in paths:
        path.rename(folder / path.name)
        path.with_suffix(".reason").unlink(missing_ok=True)
    return len(paths)


def write_synced(path: Path, data: bytes) -> None:
    """Replace a file by these bytes, or leave it as it was; on disk when this returns.

    Raises:
        OSError: If the disk refuses; the old file is still there.
    """
    draft = path.with_suffix(".draft")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        sync_folder(path.parent)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk.

    Raises:
        OSError: If the disk refuses.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _keep_damaged(folder: Path, path: Path, rest: bytes) -> None:
    quarantine = folder / QUARANTINE
    quarantine.mkdir(exist_ok=True)
    (quarantine / f"{path.stem}.damaged").write_bytes(rest)
    logger.error("a sealed segment is damaged segment=%s kept_bytes=%d", path.name, len(rest))


def _truncate(path: Path, num_bytes: int) -> None:
    with path.open("r+b") as file:
        file.truncate(num_bytes)
        os.fsync(file.fileno())
