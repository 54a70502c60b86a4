"""Walks a folder of a part for what its owner alone may open."""

import stat
from pathlib import Path


def open_to_others(folder: Path) -> list[str]:
    """Return what others may open, with its mode; links say nothing of what they name."""
    found = []
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & 0o077:
            found.append(f"{path.relative_to(folder)} {stat.S_IMODE(mode):o}")
    return found
