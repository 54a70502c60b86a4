"""The audit log: an append-only record of changes made through the operators' API or the CLI."""

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
from evenkeel.write_ahead_log import use_write_ahead_log

FILE_NAME = "audit.db"
# How long to wait for another connection.
_PATIENCE_S = 10.0
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
    """One audited action.

    Attributes:
        time_ns: When, Unix nanoseconds.
        author: The name the caller gave.
        token: The first digits of the SHA-256 of the token that allowed it, as in the access file;
            "" if no token is required.
        action: What was done, such as "silence".
        details: What the action applied to.
    """

    time_ns: int
    author: str
    token: str
    action: str
    details: Mapping[str, Any]


class Audit:
    """The audit file; use it only in the thread that opened it.

    Raises:
        ConfigurationError: If it cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # SQLite gives its companion files the same permissions.
            path.touch(mode=FILE_MODE)
            self._connection = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)
            use_write_ahead_log(self._connection, _PATIENCE_S)
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"{path} cannot be used as the audit file: {error}") from error

    def add(self, entry: AuditEntry) -> None:
        """Record one action.

        Raises:
            ConfigurationError: If the file cannot be written.
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
                f"{self._path} cannot record {entry.action!r} by {entry.author}: {error}"
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
    """Perform an action, record it with its result, and return the result.

    The audit file is opened first: an action that cannot be recorded is not performed. A refused
    action leaves no entry.

    Args:
        path: The audit file; created if missing.
        entry: The entry; the key `result` is added to its details.
        do: Performs the action; returns a JSON-serializable value.

    Raises:
        ConfigurationError: If the audit file cannot be used.
    """
    audit = Audit(path)
    try:
        result = do()
        audit.add(replace(entry, details={**entry.details, "result": result}))
    finally:
        audit.close()
    return result


def user_name() -> str:
    """Return the operating system's name for the user running this command."""
    try:
        return getuser()
    except (KeyError, OSError):
        return "command line"
