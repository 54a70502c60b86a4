"""Notices that a file changed; a wrong version never replaces the one in force."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from evenkeel.errors import ConfigurationError

Content = TypeVar("Content")
Stamp = tuple[int, int, int]


class WatchedFile(Generic[Content]):
    """A file that may be edited while it is in force.

    Args:
        path: The file.
        read: Returns its content, or raises ConfigurationError.
        logger: The owner's, who may be the only one whose lines are shown.
        record_rejection: Called once for each wrong version of it.

    Raises:
        ConfigurationError: If the file is wrong now: there is none to fall back to.
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
        # The stamp before the content: a change in between is read again, not missed.
        self._stamp = file_stamp(path)
        self.current: Content = read(path)

    def reload(self) -> Content | None:
        """Return the file's new content; None where it did not change or is wrong."""
        stamp = file_stamp(self._path)
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            self.current = self._read(self._path)
        except ConfigurationError as error:
            self._record_rejection()
            self._logger.warning("file rejected, the previous one stays in force error=%s", error)
            return None
        self._logger.info("file reloaded path=%s", self._path)
        return self.current


def file_stamp(path: Path) -> Stamp | None:
    """Return what changes when a file is written; None while it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
