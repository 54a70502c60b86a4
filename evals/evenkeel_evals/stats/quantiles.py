"""Quantile estimates and their distribution-free intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc
from scipy.stats import binom

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.inputs import (
    Floats,
    check_count,
    check_fraction,
    check_number,
    check_numbers,
)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Two estimates of the same quantiles; lists if `q` was a list."""

    harrell_davis: float | list[float]
    linear: float | list[float]


@dataclass(frozen=True, slots=True)
class QuantileInterval:
    """Ranks, counted from 1, between which the quantile lies.

    Attributes:
        lower_rank: Rank of the lower limit; None if n is too small to bound it.
        upper_rank: Rank of the upper limit; None if n is too small to bound it.
        coverage: The probability that the interval contains the quantile, for any continuous
            distribution; at least the requested level.
    """

    lower_rank: int | None
    upper_rank: int | None
    coverage: float


def quantiles(x: Sequence[float], q: float | Sequence[float]) -> Quantiles:
    """Estimate quantiles of x by Harrell-Davis and by linear interpolation (type 7).

    Harrell-Davis weighs every order statistic by a Beta((n + 1)q, (n + 1)(1 − q)) increment
    (Biometrika 1982, 69:635), so it moves smoothly where the linear one jumps. At q = 0 and 1
    both are the smallest and largest value.

    Raises:
        ConfigurationError: If x is empty or a q is outside [0, 1].
    """
    values = np.sort(check_numbers("x", x))
    wanted = check_numbers("q", q) if isinstance(q, list | tuple) else [check_number("q", q)]
    for level in wanted:
        if not 0 <= level <= 1:
            raise ConfigurationError(f"q is {level}, expected a fraction from 0 to 1")
    smooth = [float(harrell_davis_weights(len(values), float(level)) @ values) for level in wanted]
    linear = [float(np.quantile(values, level)) for level in wanted]
    if isinstance(q, list | tuple):
        return Quantiles(smooth, linear)
    return Quantiles(smooth[0], linear[0])


def harrell_davis_weights(n: int, q: float) -> Floats:
    """Return the weights of the n sorted values; they sum to 1."""
    return np.diff(harrell_davis_steps(n, q))


def harrell_davis_steps(n: int, q: float) -> Floats:
    """Return the cumulative weight below 0/n, 1/n … n/n: the Beta distribution function."""
    if q in (0.0, 1.0):
        steps = np.full(n + 1, 1.0 - q)
        steps[0], steps[n] = 0.0, 1.0
        return steps
    edges = np.arange(n + 1) / n
    return np.asarray(betainc((n + 1) * q, (n + 1) * (1 - q), edges), dtype=float)


def quantile_ci(n: int, q: float, level: float) -> QuantileInterval:
    """Return the ranks whose values enclose the q-quantile with at least `level` confidence.

    With K ~ Bin(n, q), the lower rank is the largest l with P(K ≤ l − 1) ≤ (1 − level)/2, the
    upper one the smallest u with P(K ≥ u) ≤ (1 − level)/2; coverage is P(l ≤ K ≤ u − 1). Where no
    such rank exists the side is unbounded. Source: Conover, Practical Nonparametric Statistics,
    section 3.2; Hahn and Meeker, Statistical Intervals, section 5.2.

    Raises:
        ConfigurationError: If n is below 1, or q or level is not strictly between 0 and 1.
    """
    n = check_count("n", n, at_least=1)
    q, level = check_fraction("q", q), check_fraction("level", level)
    tail = (1 - level) / 2
    lower = int(binom.ppf(tail, n, q))
    while lower > 0 and binom.cdf(lower - 1, n, q) > tail:
        lower -= 1
    while lower < n and binom.cdf(lower, n, q) <= tail:
        lower += 1
    upper = int(binom.isf(tail, n, q)) + 1
    while upper > 1 and binom.sf(upper - 2, n, q) <= tail:
        upper -= 1
    while upper <= n and binom.sf(upper - 1, n, q) > tail:
        upper += 1
    below = float(binom.cdf(lower - 1, n, q)) if lower >= 1 else 0.0
    above = float(binom.sf(upper - 1, n, q)) if upper <= n else 0.0
    return QuantileInterval(
        lower_rank=lower if lower >= 1 else None,
        upper_rank=upper if upper <= n else None,
        coverage=1.0 - below - above,
    )
