"""Writes files so that they are on the disk, whole, or not there at all."""

from __future__ import annotations

import os
from pathlib import Path

DRAFT_SUFFIX = ".draft"


def write_synced(path: Path, data: bytes) -> None:
    """Replace a file by these bytes, or leave it as it was; on disk when this returns.

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
    """Cut a file after so many bytes; on disk when this returns.

    Raises:
        OSError: If the disk refuses.
    """
    with path.open("r+b") as file:
        file.truncate(num_bytes)
        os.fsync(file.fileno())


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


def write_all(fd: int, parts: list[bytes]) -> None:
    """Write the parts one behind the other, however much the kernel takes at once.

    Raises:
        OSError: If the disk refuses; some of it may be written.
    """
    view = memoryview(b"".join(parts))
    while view:
        view = view[os.write(fd, view) :]
