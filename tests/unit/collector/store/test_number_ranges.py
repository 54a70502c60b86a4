"""One table of ranges: what the views hold, and what the docs show, is what it says."""

import ast
import re
from pathlib import Path

import pytest

from evenkeel.request_record import REQUEST_FIELDS
from evenkeel.slo.good_events import ROW_SQL
from evenkeel_collector.store.migrations import read_migrations
from evenkeel_collector.store.request_columns import view_query
from tests.fixtures.number_ranges import (
    BY_TABLE,
    ENGINE_STEPS,
    EVAL_RESULTS,
    FEEDBACK,
    LEDGER,
    LIVE_EVALUATIONS,
    REASONS,
    REQUEST_LISTS,
    REQUESTS,
    SECONDS,
    WEIGHT,
    Range,
    sql_arrays,
)

DATA_MODEL = (Path(__file__).parents[4] / "docs" / "guide" / "data-model.md").read_text(
    encoding="utf-8"
)
STATEMENTS = [one for each in read_migrations() for one in each.statements]
# Columns of the view of others' requests.
OTHERS = (
    "max_tokens", "input_tokens", "output_tokens", "cached_tokens", "temperature", "queue_s",
    "prefill_s", "decode_s", "ttft_s", "e2e_s", "sample_weight",
)  # fmt: skip


def statement(of: str) -> str:
    """Return the statement that makes a table or a view, each gap one space."""
    (found,) = [text for text in STATEMENTS if f"IF NOT EXISTS {of} " in text]
    return re.sub(r"\s+", " ", found)


@pytest.mark.parametrize(
    ("name", "ranges"),
    [
        pytest.param(
            "spans_of_others_to_requests",
            {name: REQUESTS[name] for name in OTHERS},
            id="requests of others",
        ),
        pytest.param("spans_to_eval_results", EVAL_RESULTS, id="evaluations"),
        pytest.param("spans_to_feedback", FEEDBACK, id="feedback"),
        pytest.param("spans_to_live_evaluations", LIVE_EVALUATIONS, id="live ones"),
        pytest.param("spans_to_engine_steps", ENGINE_STEPS, id="steps"),
    ],
)
def test_a_view_has_the_ranges_of_its_columns(name: str, ranges: dict[str, Range]) -> None:
    view = statement(name)
    names, lows, highs, wholes = sql_arrays(ranges)
    assert names in view
    assert f"{lows}, {highs}, {wholes})" in view


VIEW = re.sub(r"\s+", " ", view_query(REQUEST_FIELDS.values()))


@pytest.mark.parametrize(
    ("pattern", "ranges"),
    [
        pytest.param(
            r"texts, (\[.*?\]), (\[.*?\]), (\[.*?\])\) AS numbers.* (\['sample.*?\]) AS names",
            REQUESTS,
            id="numbers",
        ),
        pytest.param(
            r"said_lists, (\[.*?\]), (\[.*?\]), (\[.*?\])\) AS lists_in_range"
            r".* (\['drafted.*?\]) AS list_names",
            REQUEST_LISTS,
            id="lists",
        ),
    ],
)
def test_the_view_of_requests_has_the_ranges_of_its_columns(
    pattern: str, ranges: dict[str, Range]
) -> None:
    found = re.search(pattern, VIEW)
    assert found is not None
    lows, highs, wholes, names = map(ast.literal_eval, found.groups())
    in_view = dict(zip(names, zip(lows, highs, wholes, strict=True), strict=True))
    assert {name: in_view[name] for name in ranges} == {
        name: (each.low, each.high, each.is_whole) for name, each in ranges.items()
    }


def test_the_ledger_has_its_range() -> None:
    assert f"BETWEEN 0. AND {LEDGER.high:.0f}." in VIEW


@pytest.mark.parametrize("table", BY_TABLE)
def test_a_table_flags_and_counts_what_it_refuses(table: str) -> None:
    assert "refused_numbers Map(LowCardinality(String), LowCardinality(String))" in statement(table)
    assert statement(f"{table}_to_refused_numbers TO refused_numbers")


@pytest.mark.parametrize(
    ("table", "column", "each"),
    [
        pytest.param(table, column, each, id=f"{table}.{column}")
        for table, ranges in BY_TABLE.items()
        for column, each in ranges.items()
    ],
)
def test_the_docs_show_each_range(table: str, column: str, each: Range) -> None:
    section = DATA_MODEL.split("## Numbers", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1:4] for line in section.splitlines() if line.startswith("| `")]
    (shown,) = [
        (low_high, columns)
        for tables, columns, low_high in rows
        if f"`{table}`" in tables and f"`{column}`" in columns
    ]
    assert shown[0].strip() == describe(each)


def describe(each: Range) -> str:
    whole = ", whole" if each.is_whole else ""
    return f"{each.low:.10g} to {each.high:.10g}{whole}"


def test_the_docs_name_each_reason() -> None:
    assert [reason for reason in REASONS if f"`{reason}`" not in DATA_MODEL] == []


def test_rows_are_bounded_by_the_ranges_of_their_columns() -> None:
    assert f"BETWEEN {WEIGHT.low:g} AND {WEIGHT.high:.0f}" in ROW_SQL["weight"]
    assert f"BETWEEN {SECONDS.low:g} AND {SECONDS.high:.0f}" in ROW_SQL["end_ns"]
