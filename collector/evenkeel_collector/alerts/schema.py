"""Brings an alert book to the version that this program knows: a file of statements a version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from evenkeel.errors import ConfigurationError

VERSION = 6


def upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Take the steps that the book lacks, within a transaction of the caller's.

    Raises:
        ConfigurationError: If it is of a later version.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > VERSION:
        raise ConfigurationError(
            f"{path} has version {version}, this program knows {VERSION}: upgrade it"
        )
    for number in range(version + 1, VERSION + 1):
        step = files("evenkeel_collector.alerts") / f"schema_{number}.sql"
        for statement in _statements(step.read_text(encoding="utf-8")):
            connection.execute(statement)


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
