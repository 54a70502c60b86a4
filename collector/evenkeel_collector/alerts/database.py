"""The alert book's tables, and the SQLite file that holds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Boolean,
    Column,
    Connection,
    Dialect,
    Index,
    Integer,
    MetaData,
    NullPool,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    create_engine,
    literal_column,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.compiler import compiles

from evenkeel.errors import ConfigurationError
from evenkeel.private_files import FILE_MODE
from evenkeel.slo.matchers import Matcher, matchers_text, parse_matchers
from evenkeel.times import parse_time_ns
from evenkeel_collector.alerts.alert import Details
from evenkeel_collector.alerts.notification import NotifiedAlert, NotifiedGroup
from evenkeel_collector.alerts.state import State

VERSION = 7
_OLDEST = 6


def as_row(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, their values as they are."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


class Encoded(TypeDecorator[Any]):
    """A column of text that holds something else, or NULL."""

    impl = Text
    cache_ok = True

    def __init__(self, dump: Callable[[Any], Any], load: Callable[[Any], Any]) -> None:
        super().__init__()
        self.dump = dump
        self.load = load

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Return what is stored."""
        return None if value is None else self.dump(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Return what was stored."""
        return None if value is None else self.load(value)


class Flag(Boolean):
    """A bool, which a strict table of SQLite keeps as an integer."""


@compiles(Flag, "sqlite")
def _flag_type(*_: object, **__: object) -> str:
    return "INTEGER"


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else as_row(value)


def _dump(value: Any) -> str:
    return json.dumps(value, default=_plain)


def _dump_sorted(labels: Mapping[str, str]) -> str:
    return json.dumps(dict(labels), sort_keys=True)


def _load_details(text: str) -> Details:
    return Details(**json.loads(text))


def _load_alerts(text: str) -> tuple[NotifiedAlert, ...]:
    return tuple(NotifiedAlert(**alert) for alert in json.loads(text))


def _load_matchers(text: str) -> tuple[Matcher, ...]:
    return parse_matchers(text) if text else ()


def _load_group(text: str) -> NotifiedGroup:
    return NotifiedGroup(**json.loads(text))


def _text(name: str, type_: Any = Text, primary_key: bool = False) -> Column[Any]:
    return Column(name, type_, nullable=False, primary_key=primary_key)


def _integer(name: str, default: int | None = None, primary_key: bool = False) -> Column[Any]:
    return Column(name, Integer, nullable=False, default=default, primary_key=primary_key)


def _flag(name: str) -> Column[Any]:
    return Column(name, Flag, nullable=False, default=False)


_metadata = MetaData()
_STRICT: dict[str, Any] = {"sqlite_strict": True}
_NUMBERED: dict[str, Any] = {"sqlite_strict": True, "sqlite_autoincrement": True}
_DETAILS = Encoded(_dump, _load_details)
_STATE = Encoded(str, State)

alerts = Table(
    "alerts",
    _metadata,
    _text("slo", primary_key=True),
    _text("severity", primary_key=True),
    _text("state", _STATE),
    _integer("since_ns"),
    _integer("last_held_ns"),
    _text("alert_id"),  # one firing; '' before the first
    _flag("is_notified"),  # whether receivers know that it fires
    _text("details", _DETAILS),  # of the last change
    **_STRICT,
)
transitions = Table(
    "transitions",
    _metadata,
    _text("id", primary_key=True),
    _integer("time_ns"),
    _text("slo"),
    _text("severity"),
    _text("alert_id"),
    _text("from_state", _STATE),
    _text("state", _STATE),
    _integer("starts_at_ns"),
    _flag("is_silenced"),
    _text("details", _DETAILS),
    _flag("is_stored"),  # whether alert_history in the store has it
    **_STRICT,
)
# A member stays while it is untold, or while it fires.
group_members = Table(
    "group_members",
    _metadata,
    _integer("number", primary_key=True),
    _text("notification_id"),
    _text("receiver"),
    _text("alert_id"),
    _text("fingerprint"),
    _text("status"),  # firing, resolved
    _text("alerts", Encoded(_dump, _load_alerts)),  # one
    _text("group_labels", Encoded(_dump_sorted, json.loads)),
    _text("dashboard_url"),
    _integer("created_ns"),
    _flag("is_told"),
    UniqueConstraint("notification_id", "receiver"),
    **_NUMBERED,
)
outbox = Table(
    "outbox",
    _metadata,
    _integer("number", primary_key=True),
    _text("notification_id"),
    _text("receiver"),
    _text("alert_id"),
    _text("fingerprint"),
    _text("status"),  # firing, resolved
    _text("alerts", Encoded(_dump, _load_alerts)),
    Column("group", Encoded(_dump, _load_group)),
    _text("dashboard_url"),
    _flag("is_repetition"),
    Column("state", Text, nullable=False, default="waiting"),  # delivered, dead, withdrawn
    _integer("num_attempts", default=0),
    _integer("next_attempt_ns"),
    _integer("created_ns"),
    Column("ended_ns", Integer),
    Column("give_up_ns", Integer),  # NULL: not before the alert has ended
    Column("last_error", Text),
    _flag("is_refused"),  # the last answer will not change by itself
    UniqueConstraint("notification_id", "receiver"),
    **_NUMBERED,
)
silences = Table(
    "silences",
    _metadata,
    _text("id", primary_key=True),
    _text("slo"),  # the SLO it silences; '' if `matchers` say more
    _integer("from_ns"),
    _integer("until_ns"),
    _text("comment"),
    _text("matchers", Encoded(matchers_text, _load_matchers)),
    _text("author"),
    **_STRICT,
)
corrections = Table(
    "corrections",
    _metadata,
    _text("id", primary_key=True),
    _text("slo"),  # '' for every SLO
    _integer("from_ns"),
    _integer("until_ns"),
    _text("reason"),  # maintenance, incident
    _text("author"),
    _text("comment"),
    _integer("created_ns"),
    Column("revoked_ns", Integer),
    Column("revoked_by", Text),
    **_STRICT,
)
acknowledgements = Table(
    "acknowledgements",
    _metadata,
    _text("alert_id", primary_key=True),  # one firing: the next one wants its own
    _text("author"),
    _text("comment"),
    _integer("time_ns"),
    **_STRICT,
)
# Firings whose evidence is being gathered, or was a moment ago.
evidence = Table(
    "evidence",
    _metadata,
    _text("alert_id", primary_key=True),
    _integer("fired_ns"),
    Column("facts", Encoded(_dump, json.loads)),  # annotations; NULL while they are gathered
    Column("gathered_ns", Integer),
    **_STRICT,
)
# Firings that are silenced or inhibited now: they are not repeated.
withheld = Table("withheld", _metadata, _text("alert_id", primary_key=True), **_STRICT)
# What the file in force has alerts of, so that a silence of something else is refused.
subjects = Table("subjects", _metadata, _text("name", primary_key=True), **_STRICT)

# Written out, not bound: SQLite uses a partial index only for a condition that it can read.
IS_WAITING = outbox.c.state == literal_column("'waiting'")
IS_DEAD = outbox.c.state == literal_column("'dead'")
IS_TO_STORE = ~transitions.c.is_stored
Index("outbox_by_alert", outbox.c.receiver, outbox.c.fingerprint, outbox.c.number)
Index(
    "outbox_waiting",
    outbox.c.receiver,
    outbox.c.fingerprint,
    outbox.c.number,
    sqlite_where=IS_WAITING,
)
Index("outbox_queue", outbox.c.receiver, outbox.c.number, sqlite_where=IS_WAITING)
Index("outbox_of_alert", outbox.c.alert_id)
Index("group_members_of_alert", group_members.c.alert_id)
Index("outbox_dead", outbox.c.number, sqlite_where=IS_DEAD)
Index("transitions_by_time", transitions.c.time_ns)
Index("transitions_to_store", transitions.c.time_ns, sqlite_where=IS_TO_STORE)


class AlertDatabase:
    """One connection to the file; belongs to the thread that opened it.

    Args:
        path: The SQLite file.
        create: Whether to create it if it is missing.

    Raises:
        ConfigurationError: If the file is missing, unreadable or of another version.
    """

    def __init__(self, path: Path, create: bool = True) -> None:
        if not create and not path.exists():
            raise ConfigurationError(f"{path} does not exist; is this the collector's data folder?")
        try:
            # SQLite gives the files beside it the same rights.
            path.touch(mode=FILE_MODE)
            self.connection = create_engine(
                URL.create("sqlite", database=str(path)),
                poolclass=NullPool,
                isolation_level="AUTOCOMMIT",
                connect_args={"timeout": 10.0},
                # What is stored does not belong in a log.
                hide_parameters=True,
            ).connect()
            self.connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            # FULL: a commit is on the disk when it returns, so a power cut loses nothing either.
            self.connection.exec_driver_sql("PRAGMA synchronous = FULL")
            with self.transaction():
                _upgrade(self.connection, path)
        except (OSError, SQLAlchemyError) as error:
            reason = getattr(error, "orig", None) or error
            raise ConfigurationError(f"{path} cannot be used for alerts: {reason}") from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what happens inside, all of it or, on an exception, none."""
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


def _upgrade(connection: Connection, path: Path) -> None:
    """Create the tables, or bring those of version 6 to this one."""
    version = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
    if version == VERSION:
        return
    if version > VERSION:
        raise ConfigurationError(
            f"{path} has version {version}, this program knows {VERSION}: upgrade it"
        )
    if 0 < version < _OLDEST:
        raise ConfigurationError(
            f"{path} has version {version}, this program reads {_OLDEST} to {VERSION}:"
            " move it away, and the collector begins a new one"
        )
    if version:
        _set_aside(connection)
    _metadata.create_all(connection)
    if version:
        _take_over(connection)
    connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")


def _set_aside(connection: Connection) -> None:
    for table in (outbox, group_members):
        for index in table.indexes:
            connection.exec_driver_sql(f"DROP INDEX IF EXISTS {index.name}")
        connection.exec_driver_sql(f"ALTER TABLE {table.name} RENAME TO {table.name}_6")


def _take_over(connection: Connection) -> None:
    """Read the notifications of version 6, which were kept as Alertmanager's JSON."""
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
