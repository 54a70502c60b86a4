"""Replaces a text file atomically: readers see the old text or the new one."""

from __future__ import annotations

import os
from pathlib import Path

from evenkeel.errors import UnusableFileError


def replace_text(path: Path, text: str) -> None:
    """Write or replace a file, creating missing folders.

    Raises:
        ConfigurationError: If it cannot be written.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise UnusableFileError(f"{path} cannot be written: {error.strerror}") from error
