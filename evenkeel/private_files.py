"""Keeps what we store to its owner: folders 0700, files 0600, whatever the umask was."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

FOLDER_MODE = 0o700
FILE_MODE = 0o600
_OF_OTHERS = 0o077


@contextmanager
def private_umask() -> Iterator[None]:
    """Have files and folders made inside be their owner's alone; started processes inherit it."""
    before = os.umask(_OF_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def make_private_folder(path: Path, marker: str | None = None) -> None:
    """Make a folder that only its owner can enter, or take what others may do from one of ours.

    A folder of an earlier version is closed with all that is in it. One that is somebody else's, or
    holds other things, is left as it is, with a warning: closing it might cut others off.

    Args:
        path: The folder.
        marker: A file in it that only we write; without one, a folder that has anything in it is
            never taken for ours.

    Raises:
        OSError: If it cannot be made.
    """
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    found = path.stat()
    if not found.st_mode & _OF_OTHERS:
        return
    has_marker = marker is not None and (path / marker).is_file()
    is_ours = has_marker or next(path.iterdir(), None) is None
    mode = stat.S_IMODE(found.st_mode)
    if is_ours and found.st_uid == os.geteuid() and not mode & stat.S_ISVTX:
        tighten(path)
        logger.warning("closed to other users folder=%s mode_before=%o", path, mode)
        return
    advice = f"chmod -R go-rwx {path}"
    logger.warning("other users may enter folder=%s mode=%o; run: %s", path, mode, advice)


def tighten(path: Path) -> None:
    """Take all rights of others from a folder and everything in it; links are not followed.

    Raises:
        OSError: If the folder's own rights cannot be changed.
    """
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OF_OTHERS)
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            _tighten_one(Path(folder, name))


def _tighten_one(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & _OF_OTHERS:
            path.chmod(stat.S_IMODE(mode) & ~_OF_OTHERS)
    except OSError as error:
        # It went away, or is somebody else's; the folder above it is closed.
        logger.debug("rights not changed path=%s error=%s", path, error)


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: an `opener=` for `open`."""
    return os.open(path, flags, FILE_MODE)
