"""Latency definitions, heatmap bins, and the URL parameter of a click."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_dashboard.draw.measures import MEASURES
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.pages.latency.model import (
    DEFINITIONS,
    Picked,
    axis_ticks_s,
    bin_edges,
    bin_middle,
    bin_values,
    differs,
    heat,
    is_value,
    meaning,
    one_in,
    picked_of,
    step_shown,
)

sane = st.floats(0, 1e8, allow_nan=False)
times = st.integers(0, 2**50)


@given(times, st.integers(1, 10**9), sane, sane, sane, st.text(max_size=20))
def test_a_picked_point_survives_the_url(
    begin: int, lasted: int, low: float, high: float, near: float, cohort: str
) -> None:
    picked = Picked(begin, begin + lasted, low, high, near, cohort)
    read = Picked.from_param(picked.to_param())
    assert read is not None
    assert (read.from_ms, read.to_ms, read.cohort) == (begin, begin + lasted, cohort)
    assert read.low_s == pytest.approx(low, rel=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("1~2~3", id="too little"),
        pytest.param("a~b~1~2~3~", id="no numbers"),
        pytest.param("2~1~0~1~1~", id="an end before its begin"),
        pytest.param("1~2~nan~1~1~", id="no number at all"),
        pytest.param("1~2~0~inf~1~", id="infinity"),
    ],
)
def test_nonsense_in_the_url_picks_nothing(text: str) -> None:
    assert Picked.from_param(text) is None


@given(st.integers(-60, 40))
def test_a_bin_lies_between_its_edges(number: int) -> None:
    low, high = bin_edges(number)
    assert low < bin_middle(number) < high
    assert bin_edges(number + 1)[0] == pytest.approx(high)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("definition", DEFINITIONS)
def test_every_definition_of_every_measure_has_words(measure: str, definition: str) -> None:
    assert meaning(measure, definition)


@pytest.mark.parametrize(
    ("measure", "definition", "expected"),
    [
        ("ttft", "ours", False),
        ("ttft", "mlperf", False),
        ("ttft", "vllm_api", True),
        ("tpot", "guidellm", True),
        ("stall", "vllm", False),
        ("e2e", "otel", True),
    ],
)
def test_who_means_something_else(measure: str, definition: str, expected: bool) -> None:
    assert differs(measure, definition) is expected


@pytest.mark.parametrize(("num", "expected"), [(0, 1), (100, 1), (101, 2), (1000, 10)])
def test_few_requests_are_all_read(num: int, expected: int) -> None:
    assert one_in(num, 100) == expected


def test_the_heatmap_knows_none_from_few() -> None:
    at = [datetime(2026, 1, 1, 0, minute, tzinfo=UTC) for minute in (0, 1)]
    grid = heat(
        [
            {"bucket": at[0], "bin": -10, "num_requests": 3},
            {"bucket": at[1], "bin": -8, "num_requests": 1},
        ]
    )
    assert list(grid.bins) == [-10, -9, -8]
    assert grid.counts == [[3, None], [None, None], [None, 1]]
    assert heat([]).bins == []


def test_ticks_are_round_and_within_the_axis() -> None:
    assert axis_ticks_s(list(range(-20, 11))) == pytest.approx([0.01, 0.1, 1, 10])
    assert axis_ticks_s(list(range(-25, -12))) == pytest.approx([0.005, 0.01, 0.02, 0.05])
    assert axis_ticks_s([]) == []
    assert axis_ticks_s([1]) == pytest.approx([10**0.1, 10**0.2]), "a cell without a round value"


@pytest.mark.parametrize(
    ("view", "is_shown"),
    [
        ("ttft/ours/tenant", True),
        ("tpot/ours/tenant", False),
        ("ttft/otel/tenant", False),
        ("ttft/ours/model", False),
    ],
)
def test_what_was_picked_is_of_one_measure_definition_and_dimension(
    view: str, is_shown: bool
) -> None:
    """Two seconds of TTFT are not two seconds per token, and acme is no model."""
    text = Picked(1, 2, 0.5, 1.0, 0.7, "acme: x~y", "ttft/ours/tenant").to_param()
    found = picked_of(text, view)
    assert (found is not None) == is_shown
    assert found is None or found.cohort == "acme: x~y"
    assert picked_of("1~2~0.5~1~0.7~acme", view) is not None, "a link from before"


def test_a_cohort_of_requests_without_a_value_is_no_filter() -> None:
    names = ["acme", "none", "faq@2", "faq@?"]
    assert [is_value(name) for name in names] == [True, False, True, False]


def test_the_lowest_cell_of_the_heatmap_holds_values_of_zero() -> None:
    assert bin_values(-60) == (0.0, pytest.approx(10**-5.9))
    assert bin_values(-59)[0] == pytest.approx(10**-5.9)


@pytest.mark.parametrize(
    ("begin_ms", "shown"),
    [(0, (20_000, 30_000)), (30_000, (30_000, 60_000)), (90_000, (90_000, 95_000))],
)
def test_a_pick_in_a_step_that_the_range_cuts_selects_the_part_that_is_drawn(
    begin_ms: int, shown: tuple[int, int]
) -> None:
    assert step_shown(begin_ms, 30, Window(20_000, 95_000, 10)) == shown
