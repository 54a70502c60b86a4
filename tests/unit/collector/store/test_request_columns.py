"""The table of requests, and the view that fills it, have each field of the record's list.

A field without a column in the migrations gets one at start: tests/integration/collector/.
"""

import re

import pytest

from evenkeel.request_record import REQUEST_FIELDS, RequestField
from evenkeel_collector.store.cluster import cluster_schema
from evenkeel_collector.store.migrations import read_migrations
from evenkeel_collector.store.request_columns import (
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
    assert set(COLUMNS) == {field.name for field in IN_STORE} | OF_THE_STORE


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
