"""Adds the columns of `requests` that the list of request fields has and a store lacks.

A new field needs no migration: at start its column is added to the table, and the view that reads
our spans fills it. A store that has every column stays as it is. In a cluster, a server may lack
what the others have, if it failed during an earlier start: each is asked, and all are changed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from evenkeel.request_record import REQUEST_FIELDS, RequestField
from evenkeel.store import DATABASE
from evenkeel_collector.store.cluster import LOCAL_SUFFIX
from evenkeel_collector.store.migrations import (
    Migration,
    Render,
    keep_tokens,
    read_migrations,
    run_statement,
)
from evenkeel_collector.store.sql import quote

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

TABLE, VIEW = "requests", "spans_to_requests"
_MIGRATED = re.compile(
    rf"(?:CREATE MATERIALIZED VIEW IF NOT EXISTS {VIEW} TO {TABLE} AS"
    rf"|ALTER TABLE {VIEW} MODIFY QUERY)\s(.*)",
    re.DOTALL,
)
_SOURCE = "\nFROM spans\n"


@dataclass(frozen=True, slots=True)
class _Kind:
    """Fills a type of column from an attribute's text.

    Attributes:
        value: The column's value; `number_of` and `list_of` return only numbers within the range.
        refused: Why the value is missing although the span has one; empty if it is not.
        high: The largest number, unless the column's name has a unit.
        is_whole: Whether only whole numbers are valid.
    """

    value: str
    refused: str = ""
    high: float = 1e9
    is_whole: bool = False


_TEXT = _Kind("nullIf($text, '')")
_NAME = _Kind("$text")
_REFUSED = "if($text != '' AND isNull($name), reason_of($text), '')"
_REFUSED_LIST = "if($text NOT IN ('', '[]') AND empty($name), list_reason_of($text), '')"
_WHOLE = "accurateCastOrNull(number_of($range), '$type')"
_KINDS: Mapping[str, _Kind] = {
    "String": _NAME,
    "LowCardinality(String)": _NAME,
    "Nullable(String)": _TEXT,
    "LowCardinality(Nullable(String))": _TEXT,
    "Nullable(UInt16)": _Kind(_WHOLE, _REFUSED, 2**16 - 1, is_whole=True),
    "Nullable(UInt32)": _Kind(_WHOLE, _REFUSED, 2**32 - 1, is_whole=True),
    "Nullable(Float64)": _Kind("number_of($range)", _REFUSED),
    "Array(UInt32)": _Kind("list_of($range)", _REFUSED_LIST, 2**32 - 1, is_whole=True),
    "Array(Float64)": _Kind("list_of($range)", _REFUSED_LIST),
}
# As in number_ranges.py: by the unit that ends a column's name.
_HIGH_OF_UNIT = {"_s": 1e6, "_tokens": 1e8, "_ratio": 1.0, "_share": 1.0}


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
        ValueError: If a field's type of column needs a migration.
    """
    present = _columns_everywhere(client, cluster)
    missing = [
        field for field in fields.values() if field.column is not None and field.name not in present
    ]
    if missing:
        columns = (f"ADD COLUMN IF NOT EXISTS {each.name} {each.column}" for each in missing)
        run_statement(client, f"ALTER TABLE {TABLE} {', '.join(columns)}", render)
    query = migrated_query(read_migrations())
    added = added_fields(query, fields)
    views = client.query(
        f"SELECT create_table_query FROM {_system('tables', cluster)}"
        f" WHERE database = '{DATABASE}' AND name = '{VIEW}'"
    ).result_rows
    if not all(fills(view, field) for (view,) in views for field in added):
        run_statement(
            client, f"ALTER TABLE {VIEW} MODIFY QUERY\n{query_with(query, added)}", render
        )
    elif added:
        # A start that was killed after MODIFY QUERY did not come to its rename.
        keep_tokens(client, VIEW, render)
    names = [field.name for field in missing]
    if names:
        logger.info("columns added table=%s columns=%s", TABLE, ",".join(names))
    return names


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


def migrated_query(migrations: Sequence[Migration]) -> str:
    """Return the view's query as the newest migration has it."""
    found = [
        match[1].strip()
        for migration in migrations
        for statement in migration.statements
        if (match := _MIGRATED.search(statement))
    ]
    return found[-1]


def added_fields(query: str, fields: Mapping[str, RequestField]) -> list[RequestField]:
    """Return the fields with a column that the query does not fill."""
    return [
        field
        for field in fields.values()
        if field.column is not None and not re.search(rf"\bAS {field.name}\b", query)
    ]


def fills(view: str, field: RequestField) -> bool:
    """Tell whether a view, as the engine prints it, fills a field's column from its attribute."""
    return quote(field.attribute) in view and bool(re.search(rf"\bAS `?{field.name}\b", view))


def query_with(query: str, added: Sequence[RequestField]) -> str:
    """Return the view's query with more columns.

    Raises:
        ValueError: If a field's type of column needs a migration.
    """
    before, _, after = query.rpartition(_SOURCE)
    parts = [_parts_of(field) for field in added]
    text = (files("evenkeel_collector.store") / f"{VIEW}.sql").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("--")]
    return Template("".join(lines)).substitute(
        columns=",\n    ".join(value for value, _ in parts),
        refused=", ".join(["('', '')", *(refused for _, refused in parts if refused)]),
        query=f"{before},\n    SpanAttributes AS added_from{_SOURCE}{after}",
    )


def _parts_of(field: RequestField) -> tuple[str, str]:
    kind = _KINDS.get(field.column or "")
    if kind is None or "{" in field.attribute:
        raise ValueError(
            f"field {field.name!r}: a column of type {field.column} is not added at start; "
            "add a migration to store/schema/"
        )
    text = f"added_from[{quote(field.attribute)}]"
    unit = re.search(r"(_s|_tokens|_ratio|_share)$", field.name)
    high = _HIGH_OF_UNIT[unit[0]] if unit else kind.high
    words = {
        "text": text,
        "name": field.name,
        "type": (field.column or "").removeprefix("Nullable(").removesuffix(")"),
        "range": f"{text}, 0., {high:.0f}., {int(kind.is_whole)}",
    }
    value = Template(kind.value).substitute(words)
    refused = Template(kind.refused).substitute(words)
    return f"{value} AS {field.name}", f"({quote(field.name)}, {refused})" if refused else ""
