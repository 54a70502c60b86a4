"""Makes the views of others' spans recognise and read those of every engine that evenkeel knows.

What is known of an engine is data (evenkeel/engines/*.toml), and the views' queries are set at each
start, like those of the rollups: an engine added to the folder needs no migration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from evenkeel.engines.engine_map import (
    SPAN_FIELDS,
    EngineMap,
    SpanRule,
    by_provider,
    known_engines,
)
from evenkeel_collector.store.migrations import Render, run_statement
from evenkeel_collector.store.sql import quote

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

# Each request span of a client has one of these.
OF_CLIENTS = ("openinference.span.kind", "llm.request.type", "gen_ai.request.model")
# The view, and the file with its query.
_VIEWS = {
    "spans_to_spans_of_others": "spans_of_others.sql",
    "spans_of_others_to_requests": "requests_of_others.sql",
}


def set_views_of_others(
    client: Client,
    render: Render = lambda statement: [statement],
    engines: Mapping[str, EngineMap] | None = None,
) -> None:
    """Make the views recognise these engines' spans.

    Args:
        client: A client of a store with every migration and column.
        render: Returns what to run instead of a statement, such as its cluster form.
        engines: The engines by name; those that evenkeel knows if None.
    """
    words = view_words(known_engines() if engines is None else engines)
    for view, name in _VIEWS.items():
        run_statement(client, f"ALTER TABLE {view} MODIFY QUERY\n{_query(name, words)}", render)


def view_words(engines: Mapping[str, EngineMap]) -> dict[str, str]:
    """Return what the views' queries are filled with, by placeholder."""
    # The most specific rule wins: vLLM's own would also match spans of engines that copied it.
    rules = sorted(
        ((each.name, each.spans) for each in engines.values() if each.spans),
        key=lambda pair: (-bool(pair[1].scope), -pair[1].num_conditions, pair[0]),
    )
    providers = by_provider(engines.values())
    return {
        "attributes": _list(dict.fromkeys([*OF_CLIENTS, *(r.attributes[0] for _, r in rules)])),
        "servers": ",\n        ".join(f"{_condition(r)}, {quote(name)}" for name, r in rules),
        "providers": _list(providers),
        "engines": _list(providers.values()),
        **{field: _served(field, rules) for field in SPAN_FIELDS},
    }


def _query(name: str, words: Mapping[str, str]) -> str:
    text = (files("evenkeel_collector.store") / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("--")]
    return Template("".join(lines)).substitute(words).strip()


def _condition(rule: SpanRule) -> str:
    conditions = [f"SpanAttributes[{quote(name)}] != ''" for name in rule.attributes]
    conditions += [
        f"SpanAttributes[{quote(name)}] IN ({_list(values)})"
        for name, values in rule.equals.items()
    ]
    if rule.scope:
        conditions.append(f"ScopeName = {quote(rule.scope)}")
    if rule.span:
        conditions.append(f"SpanName = {quote(rule.span)}")
    return " AND ".join(conditions)


def _served(field: str, rules: Iterable[tuple[str, SpanRule]]) -> str:
    """Return the text of a field on an engine's own span, '' where it has none."""
    found = {name: rule.fields[field] for name, rule in rules if field in rule.fields}
    if not found:
        return "''"
    return f"served([{_list(found)}], [{_list(found.values())}])"


def _list(values: Iterable[str]) -> str:
    return ", ".join(map(quote, values))
