"""The audit log: one JSON line per change to what is served and per deletion."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path

from evenkeel.error_guard import ErrorGuard
from evenkeel.private_files import FILE_MODE, FOLDER_MODE

logger = logging.getLogger(__name__)


class AuditLog:
    """Appends to a file readable by its owner only; it never contains texts.

    Args:
        path: The file, created along with its folder. None writes nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.failures = ErrorGuard(
            logger.warning, "cannot write the cache's audit log: %s", expected=OSError
        )

    def write(self, event: str, **details: str | int | float | None) -> None:
        """Append one event; write errors are counted, and logged once."""
        if self._path is None:
            return
        line = json.dumps({"time": datetime.now(UTC).isoformat(), "event": event, **details})
        try:
            self._path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            descriptor = os.open(self._path, flags, FILE_MODE)
            try:
                os.write(descriptor, line.encode() + b"\n")
            finally:
                os.close(descriptor)
        except OSError as error:
            self.failures.record(error)
