"""Adds the columns of `requests` that the list of request fields has and a store lacks.

A new field needs no migration: at each start, missing columns are added to the table, and the view
that reads our spans is made to fill those of the list. A view of a newer version, which fills more,
stays as it is. In a cluster, a server may lack what the others have, if it failed during an earlier
start: each is asked, and all are changed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from evenkeel.request_record import REQUEST_FIELDS, RequestField
from evenkeel.store import DATABASE
from evenkeel_collector.store.cluster import LOCAL_SUFFIX
from evenkeel_collector.store.migrations import Render, keep_tokens, run_statement
from evenkeel_collector.store.sql import quote

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

TABLE, VIEW = "requests", "spans_to_requests"
_ALIAS = re.compile(r"\bAS `?(\w+)")


@dataclass(frozen=True, slots=True)
class _Range:
    """The numbers that a column takes, of which tests/fixtures/number_ranges.py is the table."""

    low: float
    high: float
    is_whole: bool = False


# The column's value, by its type.
_TEXTS: Mapping[str, str] = {
    "String": "$text",
    "LowCardinality(String)": "$text",
    "Nullable(String)": "nullIf($text, '')",
    "LowCardinality(Nullable(String))": "nullIf($text, '')",
}
_NUMBERS: Mapping[str, str] = {
    "Nullable(UInt16)": "accurateCastOrNull(numbers[$place], 'UInt16')",
    "Nullable(UInt32)": "accurateCastOrNull(numbers[$place], 'UInt32')",
    "Nullable(Float64)": "numbers[$place]",
}
_LISTS: Mapping[str, str] = {"Array(UInt32)": "lists[$place]", "Array(Float64)": "lists[$place]"}
_RANGES: Mapping[str, _Range] = {
    "http_status": _Range(100, 599, is_whole=True),
    # Clients send the largest 32-bit number to mean "no limit".
    "max_tokens": _Range(0, 2**32 - 1, is_whole=True),
    "temperature": _Range(0, 100),
}
# By the unit that ends a column's name.
_HIGH_OF_UNIT = {"_s": 1e6, "_tokens": 1e8, "_by_position": 1e8, "_ratio": 1.0, "_share": 1.0}


def add_columns(
    client: Client,
    render: Render = lambda statement: [statement],
    fields: Mapping[str, RequestField] = REQUEST_FIELDS,
    cluster: str | None = None,
) -> list[str]:
    """Add the missing columns and make the view fill them; return their names.

    Args:
        client: A client of a store with every migration.
        render: Returns what to run instead of a statement, such as its cluster form.
        fields: The list of fields.
        cluster: The cluster's name; None for a single store.

    Raises:
        ValueError: If a field needs SQL of its own, which the view's file lacks.
    """
    query = view_query(fields.values())
    present = _columns_everywhere(client, cluster)
    missing = [
        field for field in fields.values() if field.column is not None and field.name not in present
    ]
    if missing:
        columns = (f"ADD COLUMN IF NOT EXISTS {each.name} {each.column}" for each in missing)
        run_statement(client, f"ALTER TABLE {TABLE} {', '.join(columns)}", render)
    views = client.query(
        f"SELECT create_table_query FROM {_system('tables', cluster)}"
        f" WHERE database = '{DATABASE}' AND name = '{VIEW}'"
    ).result_rows
    if any(present & _filled(view) > present & _filled(query) for (view,) in views):
        # A start that was killed after MODIFY QUERY did not come to its rename.
        keep_tokens(client, VIEW, render)
    else:
        run_statement(client, f"ALTER TABLE {VIEW} MODIFY QUERY\n{query}", render)
    names = [field.name for field in missing]
    if names:
        logger.info("columns added table=%s columns=%s", TABLE, ",".join(names))
    return names


def _filled(query: str) -> set[str]:
    return set(_ALIAS.findall(query))


def _columns_everywhere(client: Client, cluster: str | None) -> set[str]:
    """Return the columns that the table has on every server; in a cluster its local one too."""
    tables = [TABLE] if cluster is None else [TABLE, TABLE + LOCAL_SUFFIX]
    num_servers: int = client.query(f"SELECT count() FROM {_system('one', cluster)}").first_row[0]
    rows = client.query(
        f"SELECT name, count() FROM {_system('columns', cluster)} WHERE database = '{DATABASE}'"
        f" AND table IN ({', '.join(map(quote, tables))}) GROUP BY name"
    ).result_rows
    return {name for name, count in rows if count == len(tables) * num_servers}


def _system(table: str, cluster: str | None) -> str:
    # The database is named in queries of it: another server's current one may be another.
    name = f"system.{table}"
    return name if cluster is None else f"clusterAllReplicas({quote(cluster)}, {name})"


def view_query(fields: Iterable[RequestField]) -> str:
    """Return the query of the view that fills the columns of these fields from our spans.

    Raises:
        ValueError: If a field needs SQL of its own, which the view's file lacks.
    """
    text = (files("evenkeel_collector.store") / f"{VIEW}.sql").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    template = "\n".join(lines)
    filled = _filled(template)
    others = [field for field in fields if field.column and field.name not in filled]
    numbers = [field for field in others if field.column in _NUMBERS]
    lists = [field for field in others if field.column in _LISTS]
    # The template has two numbers of its own.
    place_of = {field.name: place for place, field in enumerate(numbers, start=3)}
    place_of |= {field.name: place for place, field in enumerate(lists, start=1)}
    columns = [_column(field, place_of.get(field.name, 0)) for field in others]
    words = {"columns": ",\n    ".join(columns)}
    for prefix, chosen in (("", numbers), ("list_", lists)):
        ranges = [_range_of(field) for field in chosen]
        words |= {
            f"{prefix}names": ", ".join(quote(field.name) for field in chosen),
            f"{prefix}texts": ", ".join(map(_text_of, chosen)),
            f"{prefix}lows": ", ".join(f"{each.low:.0f}." for each in ranges),
            f"{prefix}highs": ", ".join(f"{each.high:.0f}." for each in ranges),
            f"{prefix}wholes": ", ".join(str(int(each.is_whole)) for each in ranges),
        }
    return Template(template).substitute(words)


def _column(field: RequestField, place: int) -> str:
    value = {**_TEXTS, **_NUMBERS, **_LISTS}.get(field.column or "")
    if value is None or "{" in field.attribute:
        raise ValueError(
            f"field {field.name!r}: a column of type {field.column} is not filled from the list; "
            f"write its SQL in store/{VIEW}.sql"
        )
    return f"{Template(value).substitute(text=_text_of(field), place=place)} AS {field.name}"


def _text_of(field: RequestField) -> str:
    return f"SpanAttributes[{quote(field.attribute)}]"


def _range_of(field: RequestField) -> _Range:
    if field.name in _RANGES:
        return _RANGES[field.name]
    is_whole = "Int" in (field.column or "")
    bits = 16 if "UInt16" in (field.column or "") else 32
    unit = re.search(rf"({'|'.join(_HIGH_OF_UNIT)})$", field.name)
    high = _HIGH_OF_UNIT[unit[0]] if unit else 2**bits - 1 if is_whole else 1e9
    return _Range(0, high, is_whole)
