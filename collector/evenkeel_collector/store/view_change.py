"""Changes what a materialized view selects, without changing how its inserts are known again.

The engine makes a view's deduplication token from the view's name. After `ALTER TABLE … MODIFY
QUERY` it makes another one, until the view is renamed or the engine starts again: a segment sent
once before and once after would be stored twice. So a changed view is renamed, and renamed back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

Render = Callable[[str], list[str]]

_CHANGE = re.compile(r"^ALTER TABLE (\w+) MODIFY QUERY\s", re.MULTILINE)
_AWAY = "__changed"
# Bytes of a statement: the values and patterns of all objectives stand in it, several times.
MAX_QUERY_SIZE = 1 << 26


def run_statement(client: Client, statement: str, render: Render) -> None:
    """Run a statement; if it changes a view's query, the view keeps its tokens.

    Args:
        client: Of the store.
        statement: Without its semicolon.
        render: Returns what to run in its place, such as a cluster's form of it.
    """
    statements = render(statement)
    if match := _CHANGE.search(statement):
        name, away = match[1], match[1] + _AWAY
        statements += render(f"RENAME TABLE {name} TO {away}, {away} TO {name}")
    for each in statements:
        client.command(each, settings={"max_query_size": MAX_QUERY_SIZE})


def name_views_back(client: Client, render: Render) -> None:
    """Give the views their names that a `run_statement` cut off in its middle left renamed."""
    rows = client.query(
        "SELECT name FROM system.tables"
        f" WHERE database = currentDatabase() AND endsWith(name, '{_AWAY}')"
    ).result_rows
    for (name,) in rows:
        for each in render(f"RENAME TABLE {name} TO {name.removesuffix(_AWAY)}"):
            client.command(each)
