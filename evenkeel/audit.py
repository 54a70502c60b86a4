"""The audit log: an append-only record of changes made through the operators' API or the CLI."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path
from typing import Any

from evenkeel.errors import UnusableFileError
from evenkeel.private_files import FILE_MODE
from evenkeel.sqlite_wal import use_write_ahead_log

logger = logging.getLogger(__name__)

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
        details: What the action applied to, and its result.
    """

    time_ns: int
    author: str
    token: str
    action: str
    details: Mapping[str, Any]


class Audit:
    """The audit file; use it only in the thread that opened it.

    Raises:
        UnusableFileError: If it cannot be used.
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
            raise UnusableFileError(f"{path} cannot be used as the audit file: {error}") from error

    def add(self, entry: AuditEntry) -> int:
        """Record one action and return the entry's number.

        Raises:
            UnusableFileError: If the file cannot be written.
        """
        try:
            return int(
                self._connection.execute(
                    "INSERT INTO audit (time_ns, author, token, action, details)"
                    " VALUES (?, ?, ?, ?, ?) RETURNING number",
                    (entry.time_ns, entry.author, entry.token, entry.action, _text(entry.details)),
                ).fetchone()[0]
            )
        except sqlite3.Error as error:
            raise UnusableFileError(
                f"{self._path} cannot record {entry.action!r} by {entry.author}: {error}"
            ) from error

    def complete(self, number: int, details: Mapping[str, Any]) -> None:
        """Replace an entry's details; if the file cannot be written, log that."""
        self._change("UPDATE audit SET details = ? WHERE number = ?", _text(details), number)

    def remove(self, number: int) -> None:
        """Remove an entry; if the file cannot be written, log that."""
        self._change("DELETE FROM audit WHERE number = ?", number)

    def _change(self, statement: str, *values: object) -> None:
        try:
            self._connection.execute(statement, values)
        except sqlite3.Error as error:
            logger.error("an audit entry has no result file=%s error=%s", self._path, error)

    def newest(self, limit: int) -> list[AuditEntry]:
        """Return the newest actions, newest first.

        Raises:
            UnusableFileError: If the file cannot be read.
        """
        try:
            rows = self._connection.execute(
                "SELECT time_ns, author, token, action, details FROM audit ORDER BY number DESC"
                " LIMIT ?",
                (limit,),
            ).fetchall()
        except sqlite3.Error as error:
            raise UnusableFileError(f"{self._path} cannot be read: {error}") from error
        return [
            AuditEntry(time_ns, author, token, action, json.loads(details))
            for time_ns, author, token, action, details in rows
        ]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def write_down(path: Path, entry: AuditEntry, do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Record an action, perform it, add its result to the entry, and return the result.

    An action that cannot be recorded is not performed. A refused action leaves no entry. An entry
    without a result is of an action that was cut off, or whose result could not be added.

    Args:
        path: The audit file; created if missing.
        entry: The entry; the key `result` is added to its details.
        do: Performs the action; returns a JSON-serializable value.

    Raises:
        UnusableFileError: If the audit file cannot be used.
    """
    audit = Audit(path)
    try:
        number = audit.add(entry)
        try:
            result = do()
        except Exception:
            audit.remove(number)
            raise
        audit.complete(number, {**entry.details, "result": result})
    finally:
        audit.close()
    return result


def _text(details: Mapping[str, Any]) -> str:
    return json.dumps(dict(details), sort_keys=True)


def user_name() -> str:
    """Return the operating system's name for the user running this command."""
    try:
        return getuser()
    except (KeyError, OSError):
        return "command line"
