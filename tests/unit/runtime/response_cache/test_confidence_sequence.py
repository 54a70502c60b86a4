"""Bounds that hold at every moment: known answers, and coverage under continuous looking."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.response_cache.confidence_sequence import (
    PRECISION,
    RiseDetector,
    log_evidence,
    upper_bound,
)


def test_nothing_seen_bounds_nothing() -> None:
    assert upper_bound(0, 0, 0.05) == pytest.approx(1.0)


def test_without_events_the_bound_has_a_closed_form() -> None:
    # B(a, b + n) / B(a, b) · (1 − p)⁻ⁿ = 1/α, solved for p by hand with a = 1/2, b = 100,
    # n = 300.
    log_ratio = math.lgamma(400) - math.lgamma(400.5) + math.lgamma(100.5) - math.lgamma(100)
    expected = 1 - math.exp(-(math.log(20) + (-log_ratio)) / 300)
    assert upper_bound(0, 300, 0.05) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("events", "seen", "alpha"), [(1, 0, 0.05), (-1, 3, 0.05), (0, 3, 0.0), (0, 3, 1.0)]
)
def test_what_has_no_bound_is_refused(events: int, seen: int, alpha: float) -> None:
    with pytest.raises(ValueError, match="no bound"):
        upper_bound(events, seen, alpha)


@given(st.integers(0, 400), st.integers(0, 400), st.sampled_from([0.01, 0.05, 0.2]))
def test_the_bound_lies_above_the_share_and_on_the_edge_of_the_evidence(
    events: int, others: int, alpha: float
) -> None:
    seen = events + others
    bound = upper_bound(events, seen, alpha)
    assert events / max(1, seen) <= bound <= 1
    # As a rate, the bound is precise; how much evidence lies within its precision depends on how
    # steep the evidence is there.
    if bound < 1:
        assert log_evidence(events, seen, bound) >= -math.log(alpha) - 1e-9
    assert log_evidence(events, seen, bound - 2 * PRECISION) < -math.log(alpha)


@given(st.integers(0, 50), st.integers(1, 300))
def test_one_more_event_never_lowers_the_bound(events: int, others: int) -> None:
    seen = events + others
    assert upper_bound(events + 1, seen + 1, 0.05) >= upper_bound(events, seen, 0.05) - 1e-6


def test_looking_after_each_observation_breaks_the_bound_no_more_often_than_alpha() -> None:
    random = np.random.default_rng(20261121)
    num_broken = 0
    for _ in range(300):
        events = random.random(400) < 0.03
        counts = np.cumsum(events)
        # The bound is below the rate exactly where the evidence against the rate exceeds 1/α and
        # the observed share is below it.
        num_broken += any(
            log_evidence(int(k), n, 0.03) >= math.log(10) and k / n < 0.03
            for n, k in enumerate(counts, start=1)
        )
    # α = 0.1: three standard errors of 300 runs above it.
    assert num_broken / 300 <= 0.1 + 3 * math.sqrt(0.09 / 300)


def test_a_rise_is_noticed_and_a_steady_rate_seldom() -> None:
    random = np.random.default_rng(7)
    steady = RiseDetector(0.02, 5000)
    assert not any([steady.record(bool(x)) for x in random.random(1000) < 0.005])
    risen = RiseDetector(0.02, 5000)
    took = next(n for n in range(1, 400) if risen.record(bool(random.random() < 0.25)))
    assert took < 60
