"""Keeps the tables in which clients' requests wait before `requests`, with the same columns.

At each start: the view that reads others' spans is made to write to `requests_of_others`, and two
views lead on from there, to `requests` or to `held_requests`. A store that is up to date stays as
it is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from evenkeel.store import DATABASE
from evenkeel_collector.store.migrations import (
    Migration,
    Render,
    read_migrations,
    run_statement,
)
from evenkeel_collector.store.sql import quote, quote_name

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

# Whose spans may be a second view of a call that a server records. All other sources are servers.
CLIENT_SOURCES = ("gen_ai", "openinference", "openllmetry")
HELD, PASSING, REQUESTS = "held_requests", "requests_of_others", "requests"
_SOURCE_VIEW = "spans_of_others_to_requests"
_MIGRATED = re.compile(
    rf"(?:CREATE MATERIALIZED VIEW IF NOT EXISTS {_SOURCE_VIEW} TO {REQUESTS} AS"
    rf"|ALTER TABLE {_SOURCE_VIEW} MODIFY QUERY)\s(.*)",
    re.DOTALL,
)
# What the price file sets as a row enters `requests`.
_SET_THERE = ("cost", "currency")
_CLIENTS = f"source IN ({', '.join(map(quote, CLIENT_SOURCES))})"
# Without ids, a record cannot be told from others: it counts at once.
_IS_HELD = (
    f"{_CLIENTS} AND replaceAll(trace_id, '0', '') != '' AND replaceAll(span_id, '0', '') != ''"
)


def hold_client_requests(
    client: Client, render: Render = lambda statement: [statement]
) -> list[str]:
    """Add missing columns and views; return what was changed.

    Args:
        client: A client of a store with every migration and every column of `requests`.
        render: Returns what to run instead of a statement, such as its cluster form.
    """
    changed = []
    columns = request_columns(client)
    for table in (HELD, PASSING):
        present = {name for name, _ in _columns_of(client, table)}
        missing = [(name, type_) for name, type_ in columns if name not in present]
        if missing:
            added = ", ".join(
                f"ADD COLUMN IF NOT EXISTS {quote_name(name)} {type_}" for name, type_ in missing
            )
            run_statement(client, f"ALTER TABLE {table} {added}", render)
        changed += [f"{table}.{name}" for name, _ in missing]
    views = _views(client)
    # Before the view that fills what they read: other collectors may be storing.
    for target, condition in ((REQUESTS, f"NOT ({_IS_HELD})"), (HELD, _IS_HELD)):
        view = f"{PASSING}_to_{target}"
        names = [name for name, _ in columns]
        query = f"SELECT {', '.join(map(quote_name, names))} FROM {PASSING} WHERE {condition}"
        if view not in views:
            run_statement(
                client,
                f"CREATE MATERIALIZED VIEW IF NOT EXISTS {view} TO {target} AS\n{query}",
                render,
            )
            changed.append(view)
        elif not selects(views[view], names):
            run_statement(client, f"ALTER TABLE {view} MODIFY QUERY\n{query}", render)
            changed.append(view)
    if f" TO {DATABASE}.{PASSING}" not in views.get(_SOURCE_VIEW, ""):
        run_statement(client, f"DROP VIEW IF EXISTS {_SOURCE_VIEW}", render)
        query = migrated_query(read_migrations())
        run_statement(
            client,
            f"CREATE MATERIALIZED VIEW IF NOT EXISTS {_SOURCE_VIEW} TO {PASSING} AS\n{query}",
            render,
        )
        changed.append(_SOURCE_VIEW)
    if changed:
        logger.info("tables and views of held requests updated changes=%d", len(changed))
    return changed


def request_columns(client: Client) -> list[tuple[str, str]]:
    """Return name and type, with its default, of the columns that a sender's data fills."""
    return [each for each in _columns_of(client, REQUESTS) if each[0] not in _SET_THERE]


def _columns_of(client: Client, table: str) -> list[tuple[str, str]]:
    rows = client.query(
        "SELECT name, type || if(default_kind = 'DEFAULT', ' DEFAULT ' || default_expression, '')"
        " FROM system.columns WHERE database = currentDatabase()"
        f" AND default_kind IN ('', 'DEFAULT') AND table = {quote(table)} ORDER BY position"
    ).result_rows
    return [(str(name), str(type_)) for name, type_ in rows]


def _views(client: Client) -> dict[str, str]:
    rows = client.query(
        "SELECT name, create_table_query FROM system.tables"
        " WHERE database = currentDatabase() AND engine = 'MaterializedView'"
    ).result_rows
    return {str(name): str(query) for name, query in rows}


def selects(view: str, names: Iterable[str]) -> bool:
    """Tell whether a view, as the engine prints it, selects these columns."""
    query = view.rpartition(" AS SELECT ")[2] or view.rpartition("AS SELECT")[2]
    return all(re.search(rf"(?:^|[\s,`]){re.escape(name)}(?:`|,|\s|$)", query) for name in names)


def migrated_query(migrations: Sequence[Migration]) -> str:
    """Return the query of the view of others' spans as the newest migration has it."""
    found = [
        match[1].strip()
        for migration in migrations
        for statement in migration.statements
        if (match := _MIGRATED.search(statement))
    ]
    return found[-1]
