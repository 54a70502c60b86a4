"""Who changed what through the operators' API: lines that are only ever added."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel.private_files import FILE_MODE

FILE_NAME = "audit.db"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ns INTEGER NOT NULL,
    author TEXT NOT NULL,
    token TEXT NOT NULL,
    action TEXT NOT NULL,
    details TEXT NOT NULL
) STRICT
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One action.

    Attributes:
        time_ns: When, Unix nanoseconds.
        author: Who, as they said.
        token: The first digits of the SHA-256 of the token that allowed it, as in the access file;
            "" where no token is asked for.
        action: What was done, such as "silence".
        details: What it was done to.
    """

    time_ns: int
    author: str
    token: str
    action: str
    details: Mapping[str, Any]


class Audit:
    """The audit file; belongs to the thread that opened it.

    Raises:
        ConfigurationError: If it cannot be used.
    """

    def __init__(self, path: Path) -> None:
        try:
            # SQLite gives the files beside it the same rights.
            path.touch(mode=FILE_MODE)
            self._connection = sqlite3.connect(path, timeout=10.0, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"{path} cannot be used for the audit: {error}") from error

    def add(self, entry: Entry) -> None:
        """Write one action down."""
        self._connection.execute(
            "INSERT INTO audit (time_ns, author, token, action, details) VALUES (?, ?, ?, ?, ?)",
            (
                entry.time_ns,
                entry.author,
                entry.token,
                entry.action,
                json.dumps(dict(entry.details), sort_keys=True),
            ),
        )

    def newest(self, limit: int) -> list[Entry]:
        """Return the newest actions, newest first."""
        rows = self._connection.execute(
            "SELECT time_ns, author, token, action, details FROM audit ORDER BY number DESC"
            " LIMIT ?",
            (limit,),
        )
        return [
            Entry(time_ns, author, token, action, json.loads(details))
            for time_ns, author, token, action, details in rows
        ]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
