"""The tables of the alert book, and the encoding of their columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Dialect,
    FromClause,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    and_,
    literal_column,
)
from sqlalchemy.ext.compiler import compiles

from evenkeel.slo.matchers import Matcher, matchers_text, parse_matchers
from evenkeel_collector.alerts.alert import Details
from evenkeel_collector.alerts.notification import NotifiedAlert, NotifiedGroup
from evenkeel_collector.alerts.state import State


def as_row(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, with unconverted values."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


class Encoded(TypeDecorator[Any]):
    """A text column with an encoded value, or NULL."""

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
    """A bool, stored as an integer in a strict SQLite table."""


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


def _table(name: str, *columns: Column[Any] | list[Column[Any]], numbered: bool = False) -> Table:
    """Return a table with these columns, which may be nested in lists."""
    flat = [c for each in columns for c in (each if isinstance(each, list) else [each])]
    unique = [UniqueConstraint("notification_id", "receiver")] if numbered else []
    options: dict[str, Any] = {"sqlite_strict": True, "sqlite_autoincrement": numbered}
    return Table(name, METADATA, *flat, *unique, **options)


def _key(*names: str, type_: Any = Text) -> list[Column[Any]]:
    return [Column(name, type_, nullable=False, primary_key=True) for name in names]


def _texts(*names: str, type_: Any = Text) -> list[Column[Any]]:
    return [Column(name, type_, nullable=False) for name in names]


def _integers(*names: str) -> list[Column[Any]]:
    return _texts(*names, type_=Integer)


def _flag(name: str) -> Column[Any]:
    return Column(name, Flag, nullable=False, default=False)


def _notification() -> list[Column[Any]]:
    """Return the columns of one notification; `status` is firing or resolved."""
    return [
        *_key("number", type_=Integer),
        *_texts("notification_id", "receiver", "alert_id", "fingerprint", "status"),
        *_texts("alerts", type_=Encoded(_dump, _load_alerts)),
        *_texts("dashboard_url"),
        *_integers("created_ns"),
    ]


METADATA = MetaData()
_DETAILS = Encoded(_dump, _load_details)
_STATE = Encoded(str, State)

# `alert_id` identifies one firing in all tables; here it is '' before the first.
alerts = _table(
    "alerts",
    _key("slo", "severity"),
    _texts("state", type_=_STATE),
    _integers("since_ns", "last_held_ns"),
    _texts("alert_id"),
    _flag("is_notified"),  # whether receivers were notified of the firing
    _texts("details", type_=_DETAILS),  # of the last change
)
transitions = _table(
    "transitions",
    _key("id"),
    _integers("time_ns"),
    _texts("slo", "severity", "alert_id"),
    _texts("from_state", "state", type_=_STATE),
    _integers("starts_at_ns"),
    _flag("is_silenced"),
    _texts("details", type_=_DETAILS),
    _flag("is_stored"),  # whether alert_history in the store has it
)
# A member reports one alert; it stays until it is sent, or while the alert fires.
group_members = _table(
    "group_members",
    _notification(),
    _texts("group_labels", type_=Encoded(_dump_sorted, json.loads)),
    _flag("is_told"),
    numbered=True,
)
outbox = _table(
    "outbox",
    _notification(),
    Column("group", Encoded(_dump, _load_group)),
    _flag("is_repetition"),
    # waiting, delivered, dead, or withdrawn: its alert ended before it could be delivered.
    Column("state", Text, nullable=False, default="waiting"),
    Column("num_attempts", Integer, nullable=False, default=0),
    _integers("next_attempt_ns"),
    Column("ended_ns", Integer),
    Column("give_up_ns", Integer),  # NULL: not before the alert has ended
    Column("last_error", Text),
    _flag("is_refused"),  # a retry would get the same answer
    numbered=True,
)
silences = _table(
    "silences",
    _key("id"),
    _texts("slo"),  # '' if `matchers` say more
    _integers("from_ns", "until_ns"),
    _texts("comment"),
    _texts("matchers", type_=Encoded(matchers_text, _load_matchers)),
    _texts("author"),
)
corrections = _table(
    "corrections",
    _key("id"),
    _texts("slo"),  # '' for every SLO
    _integers("from_ns", "until_ns"),
    _texts("reason", "author", "comment"),  # maintenance, incident
    _integers("created_ns"),
    Column("revoked_ns", Integer),
    Column("revoked_by", Text),
)
acknowledgements = _table(
    "acknowledgements", _key("alert_id"), _texts("author", "comment"), _integers("time_ns")
)
# Firings whose evidence is being gathered, or was gathered recently.
evidence = _table(
    "evidence",
    _key("alert_id"),
    _integers("fired_ns"),
    Column("facts", Encoded(_dump, json.loads)),  # annotations; NULL while they are gathered
    Column("gathered_ns", Integer),
)
# Firings that are currently silenced or inhibited, and therefore not repeated.
withheld = _table("withheld", _key("alert_id"))
# Names of the SLOs and rules in force: a silence of any other name is refused.
subjects = _table("subjects", _key("name"))

# A literal, not a bound value: SQLite can only use a partial index for a literal condition.
IS_WAITING = outbox.c.state == literal_column("'waiting'")
IS_DEAD = outbox.c.state == literal_column("'dead'")


def was_accepted(table: FromClause, by_all: bool) -> ColumnElement[bool]:
    """Return the condition of a delivery to all recipients, or to only some of them."""
    is_part: ColumnElement[int] = literal_column("0" if by_all else "1")
    return and_(table.c.state == literal_column("'delivered'"), table.c.is_refused == is_part)


IS_TO_STORE = ~transitions.c.is_stored
_IN_ORDER = (outbox.c.receiver, outbox.c.fingerprint, outbox.c.number)
Index("outbox_by_alert", *_IN_ORDER)
Index("outbox_waiting", *_IN_ORDER, sqlite_where=IS_WAITING)
Index("outbox_queue", outbox.c.receiver, outbox.c.number, sqlite_where=IS_WAITING)
Index("outbox_dead", outbox.c.number, sqlite_where=IS_DEAD)
for name, by_all in (("outbox_accepted", True), ("outbox_accepted_in_part", False)):
    where = was_accepted(outbox, by_all)
    Index(name, outbox.c.receiver, outbox.c.ended_ns, sqlite_where=where)
Index("outbox_of_alert", outbox.c.alert_id)
Index("group_members_of_alert", group_members.c.alert_id)
Index("transitions_of_alert", transitions.c.alert_id)
Index("transitions_by_time", transitions.c.time_ns)
Index("transitions_to_store", transitions.c.time_ns, sqlite_where=IS_TO_STORE)
