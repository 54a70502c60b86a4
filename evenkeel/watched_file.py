"""Reloads a file when it changes; an invalid version never replaces the one in use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from evenkeel.errors import ConfigurationError

Content = TypeVar("Content")
Stamp = tuple[int, int, int]


class WatchedFile(Generic[Content]):
    """A file that may be edited while in use.

    Args:
        path: The file.
        read: Returns the file's content, or raises ConfigurationError.
        logger: The owner's logger, which may be the only one shown.
        record_rejection: Called once per invalid version.

    Raises:
        ConfigurationError: If the file is invalid now: there is no earlier version to fall back to.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[Path], Content],
        logger: logging.Logger,
        record_rejection: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._read = read
        self._logger = logger
        self._record_rejection = record_rejection
        # Take the stamp before the content: a change in between is then re-read, not missed.
        self._stamp = file_stamp(path)
        self.current: Content = read(path)

    def reload(self) -> Content | None:
        """Return the file's new content; None if it is unchanged or invalid."""
        stamp = file_stamp(self._path)
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            self.current = self._read(self._path)
        except ConfigurationError as error:
            self._record_rejection()
            self._logger.warning("file rejected, still using the previous version error=%s", error)
            return None
        self._logger.info("file reloaded path=%s", self._path)
        return self.current


def file_stamp(path: Path) -> Stamp | None:
    """Return a stamp that changes when the file is written; None if the file is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
