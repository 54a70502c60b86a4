"""The table of requests, and the view that fills it, have each field of the record's list.

A field without a column in the migrations gets one at start: tests/integration/collector/.
"""

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evenkeel.request_record import REQUEST_FIELDS, RequestField
from evenkeel_collector.store.cluster import cluster_schema
from evenkeel_collector.store.migrations import read_migrations
from evenkeel_collector.store.request_columns import (
    add_columns,
    added_fields,
    fills,
    migrated_query,
    query_with,
)

SQL = "".join(migration.sql for migration in read_migrations())
QUERY = migrated_query(read_migrations())
ADDED = added_fields(QUERY, REQUEST_FIELDS)
IN_STORE = [
    field for field in REQUEST_FIELDS.values() if field.column is not None and field not in ADDED
]
# What the store knows of a row by itself.
OF_THE_STORE = {
    "time",
    "trace_id",
    "span_id",
    "service",
    "is_time_clamped",
    "detail_probability",
    "source",
    "refused_numbers",
    # What other tracers' spans say of costs, and what the price file makes of it.
    "cache_write_tokens",
    "audio_tokens",
    "given_cost",
    "cost",
    "currency",
}


def read_columns() -> dict[str, str]:
    """Return the type of each column, without its default and its codec."""
    table = re.search(r"CREATE TABLE IF NOT EXISTS requests \(\n(.*?)\n\)\n", SQL, re.DOTALL)
    assert table is not None
    lines = re.findall(r"^    (?!INDEX|PROJECTION)(\w+ .*?),?$", table[1], re.MULTILINE)
    lines += [
        re.sub(r"\s+", " ", added)
        for added in re.findall(
            r"ALTER TABLE requests ADD COLUMN IF NOT EXISTS (\w+ [^;]*?)(?: AFTER \w+)?;", SQL
        )
    ]
    split = [line.partition(" ") for line in lines]
    return {name: re.split(r" (?:DEFAULT|CODEC)\b", kind)[0] for name, _, kind in split}


COLUMNS = read_columns()
VIEW = re.sub(r"\s+", " ", QUERY)


def test_every_column_is_in_the_list() -> None:
    # A migration may add a column that the view is made to fill at start.
    added = {field.name for field in ADDED}
    assert set(COLUMNS) - added == {field.name for field in IN_STORE} | OF_THE_STORE
    early = {field for field in ADDED if field.name in COLUMNS}
    assert all(COLUMNS[field.name] == field.column for field in early)


@pytest.mark.parametrize("field", IN_STORE, ids=lambda field: field.name)
def test_a_field_has_its_column(field: RequestField) -> None:
    assert COLUMNS[field.name] == field.column


@pytest.mark.parametrize("field", IN_STORE, ids=lambda field: field.name)
def test_the_view_fills_a_column_from_the_fields_attribute(field: RequestField) -> None:
    fixed = field.attribute.partition("{")[0]
    assert f"'{fixed}'" in VIEW
    assert re.search(rf"AS {field.name}\b|\b{field.name}, ", VIEW)


NEW = RequestField("num_retries", "evenkeel.num_retries", "Nullable(UInt32)", "attempts")


def test_a_field_that_no_migration_has_is_added() -> None:
    assert added_fields(QUERY, {**REQUEST_FIELDS, "num_retries": NEW}) == [*ADDED, NEW]
    view = query_with(QUERY, [NEW])
    assert fills(view, NEW)
    assert not fills(QUERY, NEW)


def test_every_field_that_is_added_has_a_type_that_can_be() -> None:
    query_with(QUERY, ADDED)


@pytest.mark.parametrize(
    ("attribute", "column"),
    [
        pytest.param("evenkeel.weight", "Float64", id="no type for a missing number"),
        pytest.param("evenkeel.{source}", "Map(LowCardinality(String), Float64)", id="a map"),
    ],
)
def test_a_field_that_needs_a_migration_says_so(attribute: str, column: str) -> None:
    with pytest.raises(ValueError, match=r"'weight': a column of type .* add a migration"):
        query_with(QUERY, [RequestField("weight", attribute, column, "")])


def test_a_cluster_adds_the_column_before_the_view_fills_it() -> None:
    schema = cluster_schema("prod", read_migrations())
    added = schema.render("ALTER TABLE requests ADD COLUMN IF NOT EXISTS num_retries UInt32")
    assert [each.partition(" ADD")[0] for each in added] == [
        "ALTER TABLE requests_local ON CLUSTER 'prod'",
        "ALTER TABLE requests ON CLUSTER 'prod'",
    ]
    (view,) = schema.render(
        f"ALTER TABLE spans_to_requests MODIFY QUERY\n{query_with(QUERY, [NEW])}"
    )
    assert view.startswith("ALTER TABLE spans_to_requests ON CLUSTER 'prod' MODIFY QUERY")
    assert "FROM spans_local AS spans" in view


class Servers:
    """A client of one or several servers, each with its tables' columns and its view."""

    def __init__(self, *servers: tuple[dict[str, set[str]], str]) -> None:
        self.servers = servers
        self.commands: list[str] = []

    def query(self, sql: str) -> SimpleNamespace:
        seen = self.servers if "clusterAllReplicas('prod', system." in sql else self.servers[:1]
        if "system.one" in sql:
            rows: list[tuple[Any, ...]] = [(len(seen),)]
        elif "system.tables" in sql:
            rows = [(view,) for _, view in seen]
        else:
            names = [
                name
                for tables, _ in seen
                for table, columns in tables.items()
                if f"'{table}'" in sql
                for name in columns
            ]
            rows = [(name, names.count(name)) for name in set(names)]
        return SimpleNamespace(result_rows=rows, first_row=rows[0])

    def command(self, sql: str, settings: object = None) -> None:
        self.commands.append(sql.partition("\n")[0])


ALL = set(COLUMNS) | {field.name for field in ADDED} | {NEW.name}
OLD = ALL - {NEW.name}
FIELDS = {**REQUEST_FIELDS, NEW.name: NEW}
FILLS, LACKS = query_with(QUERY, [*ADDED, NEW]), query_with(QUERY, ADDED)
COMPLETE = ({"requests": ALL, "requests_local": ALL}, FILLS)
RENAME = (
    "RENAME TABLE spans_to_requests TO spans_to_requests__changed,"
    " spans_to_requests__changed TO spans_to_requests"
)
ADD = "ADD COLUMN IF NOT EXISTS num_retries Nullable(UInt32)"


def test_a_start_repeats_the_rename_that_a_killed_one_did_not_reach() -> None:
    client = Servers(COMPLETE)
    assert add_columns(cast(Any, client), fields=FIELDS) == []
    assert client.commands == [RENAME]


@pytest.mark.parametrize(
    ("server", "added", "commands"),
    [
        pytest.param(COMPLETE, [], [], id="complete"),
        pytest.param(
            ({"requests": ALL, "requests_local": OLD}, FILLS),
            ["num_retries"],
            [
                f"ALTER TABLE requests_local ON CLUSTER 'prod' {ADD}",
                f"ALTER TABLE requests ON CLUSTER 'prod' {ADD}",
            ],
            id="no column",
        ),
        pytest.param(
            ({"requests": ALL, "requests_local": ALL}, LACKS),
            [],
            ["ALTER TABLE spans_to_requests ON CLUSTER 'prod' MODIFY QUERY"],
            id="an earlier view",
        ),
    ],
)
def test_a_server_that_an_earlier_start_did_not_change_is_changed(
    server: tuple[dict[str, set[str]], str], added: list[str], commands: list[str]
) -> None:
    client = Servers(COMPLETE, server)
    schema = cluster_schema("prod", read_migrations())
    assert add_columns(cast(Any, client), schema.render, FIELDS, schema.cluster) == added
    assert client.commands == [*commands, f"{RENAME} ON CLUSTER 'prod'"]
