"""Intervals on a bar, both sides of a slice in one row, live shares, marked differences."""

from typing import Any

import pytest

from evenkeel_dashboard.draw.tiles import Interval
from evenkeel_dashboard.pages.evals.model import (
    answer_text,
    interval,
    margin,
    marked_diff,
    scale_of,
    slice_scores,
    weighted_share,
)


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        pytest.param("accuracy>=-1%", -0.01, id="accuracy may fall"),
        pytest.param("p95_ttft<=+5%", 0.05, id="latency may grow"),
        pytest.param("custom", None, id="no margin in the text"),
    ],
)
def test_margin(gate: str, expected: float | None) -> None:
    assert margin(gate) == expected


def gate(**changes: Any) -> dict[str, Any]:
    return {"gate": "accuracy>=-1%", "estimate": 0.0, "lower": -0.05, "upper": 0.05} | changes


def test_an_interval_lies_between_the_ends_of_its_bar() -> None:
    floor: Any = pytest.approx(0.45)
    assert interval(gate(), 0.1) == Interval(0.25, 0.75, 0.5, floor)
    assert scale_of([gate(), gate(lower=-0.5)]) > 0.5


def test_what_was_not_measured_has_no_interval() -> None:
    assert interval(gate(estimate=None, lower=None, upper=None), 0.1) is None
    assert scale_of([]) == 1.0


def test_both_sides_of_a_slice_become_one_row() -> None:
    def row(side: str, score: float | None, scored: int) -> dict[str, Any]:
        return {
            "slice": "long",
            "scorer": "exact",
            "side": side,
            "mean_score": score,
            "num_scored": scored,
            "num_unscored": 1,
            "client_ttft_p50_s": 0.1,
        }

    both = slice_scores([row("A", 0.8, 9), row("B", 0.7, 9)])[0]
    assert both.delta == pytest.approx(-0.1)
    assert (both.num_scored, both.num_unscored) == (18, 2)
    alone = slice_scores([row("A", 0.8, 9)])[0]
    assert alone.score_b is None
    assert alone.delta is None


def live(right: bool, probability: float) -> dict[str, Any]:
    weight = 1 / probability
    return {
        "num_scored": 1,
        "weight": weight,
        "weight_right": weight * right,
        "weight_squared": weight**2,
    }


def test_a_live_share_stands_for_all_requests() -> None:
    found = weighted_share([live(True, 0.1)] * 9 + [live(False, 1.0)] * 10)
    assert found.value == pytest.approx(0.9)
    assert found.lower is not None and found.upper is not None
    assert found.lower < 0.9 < found.upper < 1.0
    assert found.num_scored == 19


def test_equal_weights_give_wilsons_interval() -> None:
    # Wilson 95% interval of 8 of 10, from statsmodels 0.14.
    found = weighted_share([live(True, 0.5)] * 8 + [live(False, 0.5)] * 2)
    assert (found.lower, found.upper) == pytest.approx((0.49016, 0.94332), abs=1e-4)


def test_all_right_may_be_all_right_and_all_wrong_all_wrong() -> None:
    for num in range(1, 600):
        assert weighted_share([live(True, 0.25)] * num).upper == 1
        assert weighted_share([live(False, 0.25)] * num).lower == 0


def test_nothing_scored_is_no_share() -> None:
    assert weighted_share([]).value is None


def test_a_difference_marks_the_words_of_one_side() -> None:
    old, new = marked_diff("it costs 9 EUR", "it costs <b>8</b> EUR")
    assert old == "it costs <mark>9</mark> EUR"
    assert new == "it costs <mark>&lt;b&gt;8&lt;/b&gt;</mark> EUR"


def test_the_right_answer_is_marked_as_good_on_either_side() -> None:
    assert marked_diff("9 EUR", "8 EUR", is_old_better=True) == (
        '<mark class="ek-good">9</mark> EUR',
        '<mark class="ek-bad">8</mark> EUR',
    )
    assert marked_diff("9", "8", is_new_better=True) == (
        '<mark class="ek-bad">9</mark>',
        '<mark class="ek-good">8</mark>',
    )


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        pytest.param(
            '[{"role": "system", "parts": [{"content": "s"}]},'
            ' {"role": "user", "parts": [{"content": "hi"}]}]',
            "hi",
            id="without the system's",
        ),
        pytest.param("", "", id="not stored"),
        pytest.param('{"a": 1}', "", id="something else"),
    ],
)
def test_the_text_of_stored_messages(stored: str, text: str) -> None:
    assert answer_text(stored) == text
