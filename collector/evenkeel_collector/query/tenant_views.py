"""Views through which a tenant's queries read the store without shared dictionaries.

The engine runs many functions on the dictionary of a LowCardinality column instead of on its rows.
A filter removes rows, not dictionary values, so a function would see values of other tenants, and
could fail on one of them (docs/decisions/0225). For each table and view of the store, a separate
database has a view of the same name with plain columns; a tenant's statements are rewritten to use
that database.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from evenkeel.store import DATABASE
from evenkeel_collector.query.guard import TOKEN, unescape
from evenkeel_collector.store.sql import quote, quote_name
from evenkeel_collector.store.storage import TENANT_DATABASE

_NAMED = r"\w+(?:\([^()]*\))?"
_LOW_CARDINALITY = re.compile(rf"LowCardinality\(({_NAMED}|Nullable\({_NAMED}\))\)")
_RELATIONS = f"""
SELECT t.name, any(if(engine = 'View', as_select, '')),
    arraySort(groupArray((position, c.name, c.type)))
FROM system.tables AS t LEFT JOIN system.columns AS c
ON c.database = t.database AND c.table = t.name
WHERE t.database = '{DATABASE}'
GROUP BY t.name
ORDER BY t.name
"""
# A parameter's name is not an engine name.
_PARAMETER_OR_TOKEN = re.compile(rf"(?P<parameter>\{{\w+:)|{TOKEN.pattern}", re.DOTALL)


def create_tenant_views(session: Any) -> frozenset[str]:
    """Recreate the views from the current tables; they exist in memory only.

    Args:
        session: A connection to the embedded store that may write.

    Returns:
        The names of the views, which are those of the store's tables and views.
    """
    lines = bytes(session.query(_RELATIONS, "JSONCompactEachRow").bytes()).splitlines()
    session.query(f"DROP DATABASE IF EXISTS {TENANT_DATABASE}")
    session.query(f"CREATE DATABASE {TENANT_DATABASE} ENGINE = Memory")
    names = frozenset(json.loads(line)[0] for line in lines)
    for line in lines:
        name, select, columns = json.loads(line)
        if select:
            select = for_tenant_views(select, names)
        types = {column: type_ for _, column, type_ in columns if column}
        session.query(_view(name, select, types))
    return names


def plain_type(type_: str) -> str:
    """Return an engine type without LowCardinality, at any depth."""
    return _LOW_CARDINALITY.sub(r"\1", type_)


def for_tenant_views(formatted: str, names: Collection[str]) -> str:
    """Return a statement that reads the views' database instead of ours.

    Args:
        formatted: The statement, as formatted by the engine.
        names: The result of `create_tenant_views`.
    """

    def redirect(match: re.Match[str]) -> str:
        text = match[0]
        name = unescape(text[1:-1]) if match["quoted"] else text
        # A parameterized view is called like a function, with one quoted name.
        database, _, table = name.partition(".")
        if database != DATABASE or (table and table not in names):
            return text
        return quote_name(name_for_tenant_views(name)) if table else TENANT_DATABASE

    return _PARAMETER_OR_TOKEN.sub(redirect, formatted)


def name_for_tenant_views(name: str) -> str:
    """Return the value for `{name:Identifier}` with the views' database instead of ours."""
    return ".".join(TENANT_DATABASE if part == DATABASE else part for part in name.split("."))


def without_tenant_views(text: str) -> str:
    """Return an error message with our database's name, which the client knows."""
    return text.replace(TENANT_DATABASE, DATABASE)


def _view(name: str, select: str, columns: Mapping[str, str]) -> str:
    view = f"CREATE VIEW {TENANT_DATABASE}.{quote_name(name)}"
    # The engine lists no columns for a parameterized view.
    listed = ", ".join(f"{quote_name(each)} {plain_type(columns[each])}" for each in columns)
    header = f"{view} ({listed})" if columns else view
    if select:
        return f"{header} AS {select}"
    expressions = ", ".join(_expression(quote_name(name), *each) for each in columns.items())
    return f"{header} AS SELECT {expressions} FROM {DATABASE}.{quote_name(name)}"


def _expression(table: str, column: str, type_: str) -> str:
    name, plain = quote_name(column), plain_type(type_)
    return name if plain == type_ else f"CAST({table}.{name}, {quote(plain)}) AS {name}"
