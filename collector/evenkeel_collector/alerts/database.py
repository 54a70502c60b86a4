"""The SQLite file of the alert book: one connection, its transactions, and its version."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import URL, Connection, ExceptionContext, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError

from evenkeel.errors import ConfigurationError, UnusableFileError
from evenkeel.private_files import FILE_MODE
from evenkeel.sqlite_wal import use_write_ahead_log
from evenkeel.times import parse_time_ns
from evenkeel_collector.alerts.notification import NotifiedAlert, NotifiedGroup
from evenkeel_collector.alerts.tables import METADATA, group_members, outbox

VERSION = 7
_OLDEST = 6
# How long to wait for another connection.
_PATIENCE_S = 10.0


class AlertDatabase:
    """One connection to the file; use it only in the thread that opened it.

    As a context manager it closes the file, and raises SQLite's errors as UnusableFileError.

    Args:
        path: The SQLite file.
        create: Whether to create it if it is missing.

    Raises:
        ConfigurationError: If the file is missing or of an unsupported version.
        UnusableFileError: If it cannot be used.
    """

    def __init__(self, path: Path, create: bool = True) -> None:
        self._path = path
        if not create and not path.exists():
            raise ConfigurationError(
                f"{path} does not exist; give the --data-dir of the collector that evaluates "
                "alerts: one without --clickhouse, or with --slos"
            )
        try:
            # SQLite gives its journal files the same permissions.
            path.touch(mode=FILE_MODE)
            engine = create_engine(
                URL.create("sqlite", database=str(path)),
                poolclass=NullPool,
                isolation_level="AUTOCOMMIT",
                connect_args={"timeout": _PATIENCE_S},
            )
            event.listen(engine, "handle_error", _shorten)
            event.listen(engine, "connect", lambda made, _: use_write_ahead_log(made, _PATIENCE_S))
            self.connection = engine.connect()
            # FULL: a commit is on disk when it returns, so even a power failure loses nothing.
            self.connection.exec_driver_sql("PRAGMA synchronous = FULL")
            with self.transaction():
                _upgrade(self.connection, path)
        except (OSError, sqlite3.Error, SQLAlchemyError) as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> UnusableFileError:
        cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
        # Errors of the file's content are of the base class.
        is_damaged = type(cause) is sqlite3.DatabaseError
        advice = (
            f": move {self._path.name}* away, and the collector starts a new one"
            " (firing alerts are sent again; silences and corrections are lost)"
        )
        return UnusableFileError(
            f"{self._path} cannot be used for alerts: {cause}{advice if is_damaged else ''}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if isinstance(error, SQLAlchemyError):
            raise self._unusable(error) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes made inside, or none on an exception."""
        self.connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.exec_driver_sql("ROLLBACK")
            raise
        self.connection.exec_driver_sql("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def _shorten(context: ExceptionContext) -> None:
    """Reduce an error to its message, without the statement and its values, for logs."""
    if isinstance(context.sqlalchemy_exception, StatementError):
        context.sqlalchemy_exception.statement = None
        context.sqlalchemy_exception.code = None


def _upgrade(connection: Connection, path: Path) -> None:
    """Create the tables, or convert those of version 6."""
    version = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
    if version == VERSION:
        _add_indexes(connection)
        return
    if version > VERSION:
        raise ConfigurationError(
            f"{path} has version {version}, this program reads up to {VERSION}: upgrade evenkeel"
        )
    if 0 < version < _OLDEST:
        raise ConfigurationError(
            f"{path} has version {version}, this program reads {_OLDEST} to {VERSION}:"
            " move it away, and the collector creates a new one"
        )
    if version:
        _set_aside(connection)
    METADATA.create_all(connection)
    _add_indexes(connection)
    if version:
        _take_over(connection)
    connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")


def _add_indexes(connection: Connection) -> None:
    """Create the missing indexes; a program that does not know one can read the book too."""
    for table in METADATA.tables.values():
        for index in table.indexes:
            index.create(connection, checkfirst=True)


def _set_aside(connection: Connection) -> None:
    for table in (outbox, group_members):
        for index in table.indexes:
            connection.exec_driver_sql(f"DROP INDEX IF EXISTS {index.name}")
        connection.exec_driver_sql(f"ALTER TABLE {table.name} RENAME TO {table.name}_6")


def _take_over(connection: Connection) -> None:
    """Convert the notifications of version 6, which were stored as Alertmanager JSON."""
    for table in (outbox, group_members):
        names = set(table.c.keys())
        for old in connection.exec_driver_sql(f"SELECT * FROM {table.name}_6").mappings():
            message = json.loads(old["body"])
            row = {name: value for name, value in old.items() if name in names}
            row["alerts"] = tuple(_alert_of_6(alert) for alert in message["alerts"])
            row["dashboard_url"] = message["externalURL"]
            if table is group_members:
                row["alert_id"] = old["notification_id"].partition("-")[0]
                row["group_labels"] = json.loads(old["group_labels"])
            elif old["alert_id"].startswith("group"):
                row["group"] = NotifiedGroup(
                    message["groupLabels"],
                    message["commonLabels"],
                    message["commonAnnotations"],
                    message["truncatedAlerts"],
                )
            connection.execute(table.insert().values(**row))
        connection.exec_driver_sql(f"DROP TABLE {table.name}_6")


def _alert_of_6(alert: Mapping[str, Any]) -> NotifiedAlert:
    return NotifiedAlert(
        alert["labels"],
        alert["annotations"],
        parse_time_ns(alert["startsAt"]),
        parse_time_ns(alert["endsAt"]) if alert["status"] == "resolved" else None,
    )
