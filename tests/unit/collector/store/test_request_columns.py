"""The table of requests, and the view that fills it, have each field of the record's list.

A field that no migration has gets its column at start: tests/integration/collector/.
"""

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evenkeel.request_record import REQUEST_FIELDS, RequestField
from evenkeel_collector.store.cluster import cluster_schema
from evenkeel_collector.store.migrations import read_migrations
from evenkeel_collector.store.request_columns import add_columns, view_query

SQL = "".join(migration.sql for migration in read_migrations())
QUERY = view_query(REQUEST_FIELDS.values())
IN_STORE = [field for field in REQUEST_FIELDS.values() if field.column is not None]
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
    assert set(COLUMNS) <= {field.name for field in IN_STORE} | OF_THE_STORE


@pytest.mark.parametrize("field", IN_STORE, ids=lambda field: field.name)
def test_a_column_of_a_migration_has_the_fields_type(field: RequestField) -> None:
    assert COLUMNS.get(field.name, field.column) == field.column


@pytest.mark.parametrize("field", IN_STORE, ids=lambda field: field.name)
def test_the_view_fills_a_column_from_the_fields_attribute(field: RequestField) -> None:
    fixed = field.attribute.partition("{")[0]
    assert f"'{fixed}'" in VIEW
    assert len(re.findall(rf"AS {field.name}\b", VIEW)) == 1


def texts_in(sql: str) -> list[str]:
    return re.findall(r"'([^']*)'", sql)


@pytest.mark.parametrize(
    ("values", "names", "texts"),
    [
        ("numbers", r"\['sample_weight'.*?\] AS names", r"AS names, (\[.*\]) AS texts"),
        ("lists", r"\['[^\[]*?\] AS list_names", r"AS list_names, (\[.*\]) AS list_texts"),
    ],
)
def test_a_column_has_the_number_of_its_own_attribute(values: str, names: str, texts: str) -> None:
    named, read = (texts_in(re.findall(pattern, VIEW)[0]) for pattern in (names, texts))
    places = re.findall(rf"\b{values}\[(\d+)\](?:, (?:1|'UInt\d+')\))? AS (\w+)", VIEW)
    assert {name: int(place) for place, name in places} == {
        name: place for place, name in enumerate(named, start=1)
    }
    attributes = {name: f"evenkeel.{name}" for name in named}
    attributes |= {field.name: field.attribute for field in IN_STORE}
    assert read == [attributes[name] for name in named]


NEW = RequestField("num_retries", "evenkeel.num_retries", "Nullable(UInt32)", "attempts")


@pytest.mark.parametrize(
    ("attribute", "column"),
    [
        pytest.param("evenkeel.weight", "Float64", id="no type for a missing number"),
        pytest.param("evenkeel.{source}", "Map(LowCardinality(String), Float64)", id="a map"),
    ],
)
def test_a_field_that_needs_its_own_sql_says_so(attribute: str, column: str) -> None:
    client = Servers(COMPLETE)
    fields = {**FIELDS, "weight": RequestField("weight", attribute, column, "")}
    with pytest.raises(ValueError, match=r"'weight': .* SQL in store/spans_to_requests\.sql"):
        add_columns(cast(Any, client), fields=fields)
    assert client.commands == []


def test_a_cluster_adds_the_column_before_the_view_fills_it() -> None:
    schema = cluster_schema("prod", read_migrations())
    added = schema.render("ALTER TABLE requests ADD COLUMN IF NOT EXISTS num_retries UInt32")
    assert [each.partition(" ADD")[0] for each in added] == [
        "ALTER TABLE requests_local ON CLUSTER 'prod'",
        "ALTER TABLE requests ON CLUSTER 'prod'",
    ]
    (view,) = schema.render(f"ALTER TABLE spans_to_requests MODIFY QUERY\n{view_query([NEW])}")
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


OLD = {field.name for field in IN_STORE}
ALL = OLD | {NEW.name}
FIELDS = {**REQUEST_FIELDS, NEW.name: NEW}
FILLS = view_query(FIELDS.values())
COMPLETE = ({"requests": ALL, "requests_local": ALL}, FILLS)
RENAME = (
    "RENAME TABLE spans_to_requests TO spans_to_requests__changed,"
    " spans_to_requests__changed TO spans_to_requests"
)
ADD = "ADD COLUMN IF NOT EXISTS num_retries Nullable(UInt32)"
SET = "ALTER TABLE spans_to_requests ON CLUSTER 'prod' MODIFY QUERY"


def test_a_view_that_a_newer_version_made_is_not_changed() -> None:
    client = Servers(COMPLETE)
    assert add_columns(cast(Any, client)) == []
    # A start that was killed may not have come to it.
    assert client.commands == [RENAME]


@pytest.mark.parametrize(
    ("server", "added", "commands"),
    [
        pytest.param(COMPLETE, [], [SET], id="complete"),
        pytest.param(
            ({"requests": ALL, "requests_local": OLD}, FILLS),
            ["num_retries"],
            [
                f"ALTER TABLE requests_local ON CLUSTER 'prod' {ADD}",
                f"ALTER TABLE requests ON CLUSTER 'prod' {ADD}",
                SET,
            ],
            id="no column",
        ),
        pytest.param(
            ({"requests": ALL, "requests_local": ALL}, QUERY), [], [SET], id="an earlier view"
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
