"""Verdicts of runs, intervals on a bar, and both sides of a slice in one row."""

from typing import Any

import pytest

from dashboard.evals_model import Interval, interval, margin, run_verdict, scale_of, slice_scores


@pytest.mark.parametrize(
    ("verdicts", "slices", "expected"),
    [
        pytest.param([], [], "", id="no gate, no verdict"),
        pytest.param(["no worse", "better"], ["overall", "overall"], "better", id="one better"),
        pytest.param(["no worse"], ["overall"], "no worse", id="within the margin"),
        pytest.param(
            ["no worse", "inconclusive"], ["overall", "overall"], "inconclusive", id="cannot tell"
        ),
        pytest.param(
            ["no worse", "inconclusive"], ["overall", "long"], "no worse", id="a slice cannot tell"
        ),
        pytest.param(
            ["better", "regressed"], ["overall", "long"], "regressed", id="a slice regressed"
        ),
    ],
)
def test_run_verdict(verdicts: list[str], slices: list[str], expected: str) -> None:
    assert run_verdict(verdicts, slices) == expected


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
    assert interval(gate(), 0.1) == Interval(0.25, 0.75, 0.5, pytest.approx(0.45))
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
