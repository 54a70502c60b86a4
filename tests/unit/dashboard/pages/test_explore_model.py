"""Typed filter bounds, and downloads that are safe in a spreadsheet."""

import io
import json
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from evenkeel.slo.spike_measures import SPIKE_MEASURES, SpikeKind, SpikeMeasure
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.pages.explore.model import (
    ANSWERS,
    ORDERS,
    bound,
    cell_words,
    csv_bytes,
    ordering_headers,
    parquet_bytes,
    refusal_words,
)
from evenkeel_dashboard.pages.explore.page import _BOUNDS, _table


@pytest.mark.parametrize("measure", SPIKE_MEASURES.values(), ids=SPIKE_MEASURES.keys())
def test_the_filters_of_an_anomaly_are_those_of_the_page(measure: SpikeMeasure) -> None:
    known = {"order": ORDERS, "answer": ANSWERS, "finish_reason": ("length", "content_filter")}
    assert all(value in known[name] for name, value in measure.explore.items())
    if measure.kind is SpikeKind.TOKENS:
        (name,) = (name for name, each in SPIKE_MEASURES.items() if each is measure)
        assert f"min_{name}" in _BOUNDS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0.0), ("500ms", 0.5), ("1.5 s", 1.5), ("2min", 120.0), ("4k", 4000.0), ("300", 300.0),
        ("1,200", 1200.0), ("fast", None), ("-1", None), ("nan", None), ("1e99", None),
    ],
)  # fmt: skip
def test_a_bound_is_read_as_people_write_it(text: str, expected: float | None) -> None:
    assert bound(text) == (None if expected is None else pytest.approx(expected))


def test_a_name_that_is_a_formula_stays_a_text() -> None:
    frame = pd.DataFrame({"tenant": ["=HYPERLINK(1)", "acme", None], "ttft_s": [-1.5, 2.0, None]})
    lines = csv_bytes(frame).decode().splitlines()
    assert lines == ["tenant,ttft_s", "'=HYPERLINK(1),-1.5", "acme,2.0", ","]


def test_parquet_keeps_values_and_types() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(parquet_bytes(frame))), frame)


def test_lists_and_maps_are_json_in_downloads() -> None:
    """As the client returns them; pandas would write np.float64(0.5), and Parquet no empty map."""
    frame = pd.DataFrame(
        {
            "ledger": [{"ttft.queue": np.float64(0.5)}, {}],
            "tokens": [[np.uint32(3), pd.NA, np.float64("nan")], []],
            "pair": [(np.uint8(1), "ü"), None],
        }
    )
    lines = csv_bytes(frame).decode().splitlines()
    assert lines[1:] == [
        '"{""ttft.queue"": 0.5}","[3, null, null]","[1, ""ü""]"',
        "{},[],",
    ]
    read = pd.read_parquet(io.BytesIO(parquet_bytes(frame)))
    assert read["ledger"].tolist() == ['{"ttft.queue": 0.5}', "{}"]
    assert read["tokens"].tolist() == ["[3, null, null]", "[]"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([IPv4Address("10.0.0.1"), None], ["10.0.0.1", None]),
        ([2**70, 1], [str(2**70), "1"]),
        ([1, "x"], ["1", "x"]),
        ([2**60 + 1], [2**60 + 1]),
        ([True, None], [True, None]),
        ([Decimal("1.50")], [Decimal("1.50")]),
    ],
)
def test_parquet_holds_columns_that_it_has_no_type_for_as_text(
    values: list[Any], expected: list[Any]
) -> None:
    """The query ran, and then the download failed."""
    frame = pd.DataFrame({"found": pd.Series(values, dtype=object)})
    read = pd.read_parquet(io.BytesIO(parquet_bytes(frame)))["found"]
    assert read.astype(object).where(read.notna(), None).tolist() == expected


def test_json_of_downloads_has_no_infinities() -> None:
    frame = pd.DataFrame({"map": [{"a": [np.float64("inf")], "b": (1.5, float("-inf"))}]})
    text = parquet_bytes(frame), csv_bytes(frame)
    read = pd.read_parquet(io.BytesIO(text[0]))["map"][0]
    assert json.loads(read, parse_constant=pytest.fail) == {"a": [None], "b": [1.5, None]}
    assert b"Infinity" not in text[1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "no data"),
        (float("nan"), "no data"),
        (1.23456789, "1.23"),
        (123_456.7, "123,457"),
        (-123_456.7, "−123,457"),
        (float("inf"), "∞"),
        (2601, "2,601"),
        (-2601, "−2,601"),
        (True, "True"),
        (0, "0"),
        ("<b>", "<b>"),
        ([np.float64(0.25), np.float64(1.23456)], "[0.25, 1.23]"),
        ({"ttft.queue": np.float64(0.5)}, "{ttft.queue: 0.5}"),
        ((np.uint8(1), "a", pd.NA), "[1, a, no data]"),
        ([{"a": np.uint64(2601)}], "[{a: 2,601}]"),
    ],
)
def test_cells_of_an_answer(value: object, expected: str) -> None:
    assert cell_words(value) == expected


def test_an_answer_with_missing_values_is_a_table() -> None:
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None], dtype="Int64"),
            "at": pd.to_datetime(["2026-01-01", None]),
            "name": pd.array(["x", None], dtype="string"),
        }
    )
    html = _table(frame)
    assert html.count("no data") == 3 and "NA" not in html and "NaT" not in html


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "the query was refused: Received ClickHouse exception, code: 47, server response: "
            "Code: 47. DB::Exception: Unknown expression identifier nope. In scope SELECT nope "
            "FROM t. (UNKNOWN_IDENTIFIER) (version 26.9.2.1) (for url http://127.0.0.1:25123)",
            "The query was refused: Unknown expression identifier nope. In scope SELECT nope FROM "
            "t. (UNKNOWN_IDENTIFIER)",
        ),
        ("no store answers at http://127.0.0.1:1", "no store answers at http://127.0.0.1:1"),
    ],
)
def test_a_refusal_says_why_and_no_more(message: str, expected: str) -> None:
    assert refusal_words(message) == expected


def test_headers_order_by_their_column_from_the_first_page() -> None:
    params = {"order": "ttft", "page": "3", "tenant": "acme"}
    request, arrived, ttft, model = ordering_headers(
        ["request", "arrived (UTC)", "TTFT", "model"], params
    )
    assert request == Cell("request") and model == Cell("model")
    assert ttft == Cell("TTFT ▼", href="./explore?order=ttft&tenant=acme")
    assert arrived == Cell("arrived (UTC)", href="./explore?order=time&tenant=acme")


@pytest.mark.parametrize(("sql", "is_sent"), [("", False), (" \n", False), ("SELECT 1", True)])
def test_an_empty_query_is_not_sent(
    sql: str, is_sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store would refuse a format that nobody wrote."""

    def show() -> None:
        from evenkeel_dashboard.pages.explore.page import show_sql

        show_sql()

    monkeypatch.setenv("EVENKEEL_DASHBOARD_QUERY_URL", "http://127.0.0.1:9")
    app = AppTest.from_function(show, default_timeout=240)
    app.query_params["sql"] = sql
    app.run()
    assert not app.exception
    assert bool(app.error) == is_sent
