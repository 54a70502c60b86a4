"""Quantiles and their distribution-free intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from scipy.stats.mstats import hdquantiles

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.quantiles import quantile_ci, quantiles

samples = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40)
levels = st.floats(0.01, 0.99)


@given(samples, levels)
def test_harrell_davis_is_that_of_scipy_and_linear_that_of_numpy(x: list[float], q: float) -> None:
    result = quantiles(x, q)
    assert result.harrell_davis == pytest.approx(float(hdquantiles(x, [q])[0]), rel=1e-6, abs=1e-6)
    assert result.linear == pytest.approx(float(np.quantile(x, q)))


@given(samples)
def test_quantiles_rise_with_q(x: list[float]) -> None:
    result = quantiles(x, [0.0, 0.1, 0.5, 0.9, 1.0])
    assert isinstance(result.harrell_davis, list)
    rising = np.diff(result.harrell_davis)
    assert (rising >= -1e-6 * max(1.0, *map(abs, x))).all()
    assert result.harrell_davis[0] == min(x)
    assert result.harrell_davis[-1] == max(x)


def test_one_value_is_every_quantile() -> None:
    result = quantiles([4.2], 0.95)
    assert (result.harrell_davis, result.linear) == (pytest.approx(4.2), 4.2)


@pytest.mark.parametrize(
    ("n", "q", "lower", "upper", "coverage"),
    [
        # Conover, Practical Nonparametric Statistics, table A3 for n = 16, median.
        (16, 0.5, 4, 13, 0.9787),
        (100, 0.5, 40, 61, 0.9648),
        (100, 0.99, 97, None, 0.9816),
        (5, 0.5, None, None, 1.0),
        (6, 0.5, 1, 6, 0.96875),
        (1, 0.5, None, None, 1.0),
        (1, 0.99, 1, None, 0.99),
    ],
)
def test_known_ranks(
    n: int, q: float, lower: int | None, upper: int | None, coverage: float
) -> None:
    result = quantile_ci(n, q, 0.95)
    assert (result.lower_rank, result.upper_rank) == (lower, upper)
    assert result.coverage == pytest.approx(coverage, abs=5e-5)


@given(st.integers(1, 300), levels, st.floats(0.5, 0.999))
def test_ranks_cover_at_least_the_level_and_are_the_tightest(
    n: int, q: float, level: float
) -> None:
    result = quantile_ci(n, q, level)
    tail = (1 - level) / 2
    assert result.coverage >= level - 1e-12
    lower, upper = result.lower_rank or 0, result.upper_rank or n + 1
    assert lower < upper
    # One rank closer, and that side alone would exceed its tail probability.
    assert binom.cdf(lower, n, q) > tail
    if upper > 1:
        assert binom.sf(upper - 2, n, q) > tail


@given(st.integers(1, 200), st.floats(0.05, 0.95))
def test_ranks_of_q_mirror_those_of_its_complement(n: int, q: float) -> None:
    one, other = quantile_ci(n, q, 0.95), quantile_ci(n, 1 - q, 0.95)
    mirrored = None if other.upper_rank is None else n + 1 - other.upper_rank
    assert one.lower_rank == mirrored


def test_a_quantile_outside_0_to_1_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"q is 1\.5"):
        quantiles([1.0], 1.5)
    with pytest.raises(ConfigurationError):
        quantile_ci(10, 1.0, 0.95)
    with pytest.raises(ConfigurationError):
        quantiles([], 0.5)
