"""Shift between two samples: Wilcoxon's tests and Hodges-Lehmann estimates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import norm

from evenkeel_evals.stats.inputs import Floats, Interval, check_numbers, check_pairs, snap
from evenkeel_evals.stats.ordered_sums import OrderedSums
from evenkeel_evals.stats.ranks import (
    critical_count,
    doubled_ranks,
    rank_sum_distribution,
    rank_sum_is_exact,
    signed_rank_distribution,
    signed_rank_is_exact,
    tails,
)


@dataclass(frozen=True, slots=True)
class UnpairedShift:
    """Mann-Whitney's test and the shift of x against y, as x − y.

    Attributes:
        u: Pairs (x, y) with x > y, ties counted half.
        p_greater: P(U ≥ u) if x and y come from one distribution; small when x is larger.
        p_two_sided: Twice the smaller tail, at most 1.
        hodges_lehmann: Median of all differences x − y.
        ci95: Interval of the shift; limits are None if the samples are too small for 95%.
    """

    u: float
    p_greater: float
    p_two_sided: float
    hodges_lehmann: float
    ci95: Interval


@dataclass(frozen=True, slots=True)
class PairedShift:
    """Wilcoxon's signed-rank test and the shift of x against y, as x − y.

    Attributes:
        v: Sum of the ranks of the positive differences; zero differences are left out.
        p_greater: P(V ≥ v) if differences are symmetric about 0; small when x is larger.
        p_two_sided: Twice the smaller tail, at most 1.
        pseudo_median: Median of the means of all pairs of differences, each with itself too.
        ci95: Interval of the pseudo-median; limits are None with too few pairs for 95%.
    """

    v: float
    p_greater: float
    p_two_sided: float
    pseudo_median: float
    ci95: Interval


def shift_unpaired(x: Sequence[float], y: Sequence[float]) -> UnpairedShift:
    """Compare two independent samples, as R's `wilcox.test(x, y, conf.int = TRUE)`.

    p-values come from the exact permutation distribution given the ties. The interval is
    [D(c), D(mn − c + 1)] of the sorted differences D, c the 2.5% point of the distribution
    without ties: exact without ties, at least 95% with them. Samples above some hundred values
    use the normal approximation with tie and continuity correction.

    Source: Hollander and Wolfe, Nonparametric Statistical Methods, chapter 4.

    Raises:
        ConfigurationError: If a sample is empty or not numeric.
    """
    first, second = check_numbers("x", x), check_numbers("y", y)
    m, n = len(first), len(second)
    ranks = doubled_ranks(np.concatenate([first, second]))
    doubled_u = int(ranks[:m].sum()) - m * (m + 1)
    if rank_sum_is_exact(m, n):
        sum_of_x = int(ranks[:m].sum())
        if m <= n:
            less, greater = tails(rank_sum_distribution(ranks, m), sum_of_x)
        else:
            greater, less = tails(rank_sum_distribution(ranks, n), int(ranks.sum()) - sum_of_x)
        critical = _unpaired_critical(min(m, n), max(m, n))
    else:
        _, counts = np.unique(ranks, return_counts=True)
        total = m + n
        ties = float((counts.astype(float) ** 3 - counts).sum()) / (total * (total - 1))
        sigma = math.sqrt(m * n / 12 * (total + 1 - ties))
        less, greater = _normal_tails(doubled_u / 2 - m * n / 2, sigma)
        plain = math.sqrt(m * n * (total + 1) / 12)
        critical = max(0, math.floor(m * n / 2 + norm.ppf(0.025) * plain))
    differences = OrderedSums(first, -second)
    return UnpairedShift(
        u=doubled_u / 2,
        p_greater=greater,
        p_two_sided=min(1.0, 2 * min(less, greater)),
        hodges_lehmann=differences.median(),
        ci95=_interval(differences, critical),
    )


def shift_paired(x: Sequence[float], y: Sequence[float]) -> PairedShift:
    """Compare two paired samples, as R's `wilcox.test(x, y, paired = TRUE, conf.int = TRUE)`.

    Zero differences are left out of V and its p-values, ties get midranks, and p-values come from
    the exact distribution given those ranks. Pseudo-median and interval use all differences: the
    interval [W(c), W(M − c + 1)] of the M sorted Walsh means is exact without ties or zeros, at
    least 95% with them. Above some 840 pairs the normal approximation takes over.

    Source: Hollander and Wolfe, Nonparametric Statistical Methods, chapter 3.

    Raises:
        ConfigurationError: If the samples are empty, not numeric, or of different lengths.
    """
    first, second = check_pairs("x", x, "y", y)
    scale = float(max(np.abs(first).max(), np.abs(second).max()))
    return shift_of_differences(snap(first - second, scale))


def shift_of_differences(differences: Floats) -> PairedShift:
    """Return the paired shift of precomputed differences; at least one is needed."""
    n = len(differences)
    doubled_v, less, greater = _signed_ranks(differences)
    walsh = OrderedSums(differences / 2, None)
    return PairedShift(
        v=doubled_v / 2,
        p_greater=greater,
        p_two_sided=min(1.0, 2 * min(less, greater)),
        pseudo_median=walsh.median(),
        ci95=_interval(walsh, _paired_critical(n)),
    )


def signed_rank_tails(differences: Floats) -> tuple[float, float]:
    """Return P(V ≤ v) and P(V ≥ v) of Wilcoxon's signed-rank test, without estimates."""
    return _signed_ranks(differences)[1:]


def _signed_ranks(differences: Floats) -> tuple[int, float, float]:
    """Return twice V and its tails."""
    nonzero = differences[differences != 0]
    ranks = doubled_ranks(np.abs(nonzero))
    doubled_v = int(ranks[nonzero > 0].sum())
    k = len(nonzero)
    if k == 0:
        return doubled_v, 1.0, 1.0
    if signed_rank_is_exact(k):
        return (doubled_v, *tails(signed_rank_distribution(ranks), doubled_v))
    # Var V = Σ rank² / 4, which is also correct with ties.
    sigma = math.sqrt(float((ranks.astype(float) ** 2).sum()) / 16)
    return (doubled_v, *_normal_tails(doubled_v / 2 - k * (k + 1) / 4, sigma))


@lru_cache(maxsize=32)
def _unpaired_critical(m: int, n: int) -> int:
    # U is the rank sum minus its minimum, m(m + 1)/2; without ties, doubling is unnecessary.
    plain = rank_sum_distribution(np.arange(1, m + n + 1, dtype=np.int64), m)
    return critical_count(plain[m * (m + 1) // 2 :], 0.025)


@lru_cache(maxsize=32)
def _paired_critical(n: int) -> int:
    if signed_rank_is_exact(n):
        return critical_count(signed_rank_distribution(np.arange(1, n + 1, dtype=np.int64)), 0.025)
    sigma = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return max(0, math.floor(n * (n + 1) / 4 + float(norm.ppf(0.025)) * sigma))


def _interval(values: OrderedSums, critical: int) -> Interval:
    if critical < 1:
        return (None, None)
    return (values.at_rank(critical), values.at_rank(len(values) - critical + 1))


def _normal_tails(excess: float, sigma: float) -> tuple[float, float]:
    """Return P(S ≤ s) and P(S ≥ s) with half a unit of continuity correction."""
    if sigma == 0:
        return 1.0, 1.0
    return float(norm.cdf((excess + 0.5) / sigma)), float(norm.sf((excess - 0.5) / sigma))
