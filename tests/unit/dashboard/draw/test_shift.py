"""The large-sample shift against exact intervals and known differences."""

import numpy as np
import pytest

from evenkeel_dashboard.draw.shift import large_sample_shift
from evenkeel_evals.stats.wilcoxon import shift_unpaired


def test_it_agrees_with_the_exact_interval() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.exponential(1.0, 40), rng.exponential(1.0, 45) + 0.3
    found, exact = large_sample_shift(list(a), list(b)), shift_unpaired(list(b), list(a))
    assert found is not None
    assert found.estimate == pytest.approx(exact.hodges_lehmann, abs=1e-12)
    assert (found.lower, found.upper) == pytest.approx(tuple(exact.ci95), abs=0.02)


def test_it_covers_the_true_shift_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(300):
        a, b = rng.lognormal(0, 0.5, 60), rng.lognormal(0, 0.5, 60) + 0.25
        found = large_sample_shift(list(a), list(b))
        assert found is not None
        hits += found.lower <= 0.25 <= found.upper
    assert 0.92 <= hits / 300 <= 0.98


def test_the_probability_counts_ties_half() -> None:
    same = [1.0] * 10
    found = large_sample_shift(same, same)
    assert found is not None and found.probability == 0.5
    later = large_sample_shift(same, [2.0] * 10)
    assert later is not None and (later.probability, later.estimate) == (1.0, 1.0)


def test_too_few_have_no_interval() -> None:
    assert large_sample_shift([1.0] * 9, [1.0] * 50) is None
