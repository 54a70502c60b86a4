"""Replaces a text file atomically: readers see the old text or the new one."""

from __future__ import annotations

import os
from pathlib import Path

from evenkeel.errors import UnusableFileError


def sync_text(path: Path, text: str, errors: str = "strict") -> None:
    """Write or replace a file in a folder that exists.

    Args:
        path: The file.
        text: Its text.
        errors: What becomes of what UTF-8 cannot hold, as in `str.encode`.

    Raises:
        OSError: If it cannot be written.
    """
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.write(text.encode(errors=errors))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def replace_text(path: Path, text: str, errors: str = "strict") -> None:
    """Write or replace a file, creating missing folders.

    Raises:
        UnusableFileError: If it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sync_text(path, text, errors)
    except OSError as error:
        raise UnusableFileError(f"{path} cannot be written: {error.strerror}") from error
