"""Who changed what, through the operators' API or the command: lines that are only ever added."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from getpass import getuser
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
class AuditEntry:
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
        self._path = path
        try:
            # SQLite gives the files beside it the same rights.
            path.touch(mode=FILE_MODE)
            self._connection = sqlite3.connect(path, timeout=10.0, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"{path} cannot be used for the audit: {error}") from error

    def add(self, entry: AuditEntry) -> None:
        """Write one action down.

        Raises:
            ConfigurationError: If the file does not take it.
        """
        details = json.dumps(dict(entry.details), sort_keys=True)
        try:
            self._connection.execute(
                "INSERT INTO audit (time_ns, author, token, action, details)"
                " VALUES (?, ?, ?, ?, ?)",
                (entry.time_ns, entry.author, entry.token, entry.action, details),
            )
        except sqlite3.Error as error:
            raise ConfigurationError(
                f"{self._path} does not take {entry.action!r} of {entry.author}: {error}"
            ) from error

    def newest(self, limit: int) -> list[AuditEntry]:
        """Return the newest actions, newest first."""
        rows = self._connection.execute(
            "SELECT time_ns, author, token, action, details FROM audit ORDER BY number DESC"
            " LIMIT ?",
            (limit,),
        )
        return [
            AuditEntry(time_ns, author, token, action, json.loads(details))
            for time_ns, author, token, action, details in rows
        ]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def write_down(path: Path, entry: AuditEntry, do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do something, write it down with what came of it, and return that.

    The audit is opened first: what cannot be written down is not done. What is refused leaves no
    line.

    Args:
        path: The audit file; made if it is not there.
        entry: The line; its details get the key `result`.
        do: Does it; returns what JSON can hold.

    Raises:
        ConfigurationError: If the audit cannot be used.
    """
    audit = Audit(path)
    try:
        result = do()
        audit.add(replace(entry, details={**entry.details, "result": result}))
    finally:
        audit.close()
    return result


def user_name() -> str:
    """Return who uses this command, as the operating system knows them."""
    try:
        return getuser()
    except (KeyError, OSError):
        return "command line"
