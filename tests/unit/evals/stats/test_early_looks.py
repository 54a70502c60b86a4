"""Alpha spending and betting: known boundaries, and no more false alarms than promised."""

import numpy as np
import pytest
from scipy.stats import norm

from evenkeel_evals.stats.betting import anytime_p
from evenkeel_evals.stats.spending import nominal_levels, repeated_p


def test_the_bounds_of_lan_and_demets() -> None:
    # One-sided 2.5%, five equal looks, O'Brien-Fleming-like: gsDesign's sfLDOF, ldbounds.
    bounds = norm.isf(nominal_levels(0.025, 5))
    assert bounds == pytest.approx([4.8769, 3.3569, 2.6803, 2.2898, 2.0310], abs=2e-3)
    assert nominal_levels(0.025, 1) == pytest.approx((0.025,))


def test_a_repeated_p_is_significant_exactly_where_the_look_is() -> None:
    for alpha in (0.025, 0.05, 0.025 / 6):
        for look, level in enumerate(nominal_levels(alpha, 5), start=1):
            if level > 1e-9:
                assert repeated_p(level, look, 5) == pytest.approx(alpha, rel=0.02)
    assert repeated_p(0.02, 5, 5) < repeated_p(0.02, 2, 5)
    assert repeated_p(0.9, 3, 5) == 1.0
    assert repeated_p(0.03, 1, 1) == 0.03


def test_five_looks_cost_what_one_does() -> None:
    generator = np.random.default_rng(4)
    paths = np.cumsum(generator.normal(size=(40_000, 5)), axis=1) / np.sqrt(np.arange(1, 6))
    crossed = (norm.sf(paths) <= np.array(nominal_levels(0.05, 5))).any(axis=1).mean()
    # 0.05 ± 3 standard errors of 40,000 runs.
    assert crossed == pytest.approx(0.05, abs=0.0033)


def test_a_bettor_rarely_wins_against_the_truth() -> None:
    generator = np.random.default_rng(5)
    wins = 0
    for _ in range(400):
        values = generator.choice([-1.0, 0.0, 1.0], p=[0.1, 0.8, 0.1], size=500).tolist()
        wins += anytime_p(values, 0.0) <= 0.05
    # 5% at most; 400 runs show up to 32 by chance (binomial, 99%).
    assert wins <= 32


@pytest.mark.parametrize(("values", "mean"), [([], 0.0), ([0.0] * 50, 0.0), ([-1.0] * 50, 0.0)])
def test_no_evidence_is_p_1(values: list[float], mean: float) -> None:
    assert anytime_p(values, mean) > 0.99


def test_evidence_grows_and_is_never_lost() -> None:
    rising = [anytime_p([1.0] * n, 0.0) for n in (5, 20, 60)]
    assert rising == sorted(rising, reverse=True) and rising[-1] < 1e-6
    assert anytime_p([1.0] * 60 + [-1.0] * 40, 0.0) == pytest.approx(rising[-1])
    # 400 unchanged pairs against a loss of 5 points.
    assert anytime_p([0.0] * 400, -0.05) < 1e-4
