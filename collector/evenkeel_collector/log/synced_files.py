"""Writes files atomically: on disk and complete, or not there at all."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

DRAFT_SUFFIX = ".draft"


def write_synced(path: Path, data: bytes) -> None:
    """Replace a file's contents, or leave it unchanged; on disk when this returns.

    Raises:
        OSError: If the disk refuses; the old file is still there.
    """
    draft = path.with_suffix(DRAFT_SUFFIX)
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


def truncate_synced(path: Path, num_bytes: int) -> None:
    """Truncate a file to this many bytes; on disk when this returns.

    Raises:
        OSError: If the disk refuses.
    """
    with path.open("r+b") as file:
        file.truncate(num_bytes)
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk.

    Raises:
        OSError: If the disk refuses.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, parts: list[bytes]) -> None:
    """Write the parts in order, however much the kernel accepts per call.

    Raises:
        OSError: If the disk refuses; part of it may be written.
    """
    view = memoryview(b"".join(parts))
    while view:
        view = view[os.write(fd, view) :]


def attempt(what: str, path: Path, action: Callable[[], T]) -> T | None:
    """Return what an action on a file returns; None, and an error in the log, if the disk refuses.

    For what the log can do without: a disk that takes nothing must not end the thread that writes.
    """
    try:
        return action()
    except OSError as error:
        logger.error("cannot %s log file file=%s error=%s", what, path, error)
        return None
