"""The table of requests, and the view that fills it, have each field of the record's list."""

import re

import pytest

from evenkeel.request_record import REQUEST_FIELDS, RequestField
from evenkeel_collector.store.migrations import read_migrations

SQL = "".join(migration.sql for migration in read_migrations())
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


def read_view() -> str:
    """Return the newest query of the view, each gap one space."""
    found = re.findall(r"(?:TABLE|VIEW IF NOT EXISTS) spans_to_requests\s([^;]*);", SQL)
    return re.sub(r"\s+", " ", found[-1])


COLUMNS = read_columns()
VIEW = read_view()


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
