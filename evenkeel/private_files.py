"""Makes stored files private to their owner: folders 0700, files 0600, whatever the umask."""

from __future__ import annotations

import logging
import os
import secrets
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
    """Create files and folders as owner-only inside this context; child processes inherit it."""
    before = os.umask(_OF_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def make_private_folder(path: Path, marker: str | None = None) -> None:
    """Create an owner-only folder, or remove other users' access to an existing one of ours.

    A folder from an earlier version is made private with all its contents. A folder that belongs to
    someone else, or has other contents, is left alone with a warning: others may depend on it.

    Args:
        path: The folder.
        marker: A file that only we write; without one, a folder that is not empty never counts
            as ours.

    Raises:
        OSError: If it cannot be created.
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
        logger.warning("removed access for other users folder=%s mode_before=%o", path, mode)
        return
    advice = f"chmod -R go-rwx {path}"
    logger.warning("other users can access folder=%s mode=%o; run: %s", path, mode, advice)


def tighten(path: Path) -> None:
    """Remove all access of other users to a folder and its contents; links are not followed.

    Raises:
        OSError: If the folder's own permissions cannot be changed.
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
        # It is gone, or belongs to someone else; its parent folder is already private.
        logger.debug("permissions not changed path=%s error=%s", path, error)


def open_private(path: str, flags: int) -> int:
    """Open a file as readable only by its owner: an `opener=` for `open`."""
    return os.open(path, flags, FILE_MODE)


def replace_private(path: Path, *parts: bytes | memoryview) -> None:
    """Write or replace a file that only its owner can read; readers see the old one or the new one.

    A missing folder is created, readable only by its owner. The file may be lost in a power cut.

    Raises:
        OSError: If it cannot be written; the old file is still there.
    """
    path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(draft, "xb", opener=open_private) as file:
            file.writelines(parts)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
