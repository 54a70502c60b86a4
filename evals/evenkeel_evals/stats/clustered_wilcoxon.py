"""Wilcoxon's signed-rank test and interval for clustered differences."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from evenkeel_evals.stats.clusters import cluster_sums
from evenkeel_evals.stats.inputs import Floats, Interval
from evenkeel_evals.stats.ordered_sums import OrderedSums
from evenkeel_evals.stats.ranks import doubled_ranks
from evenkeel_evals.stats.sign_flips import sign_flip_tails
from evenkeel_evals.stats.wilcoxon import PairedShift, shift_of_differences, signed_rank_tails


def shift_of_clusters(differences: Floats, codes: NDArray[np.int64]) -> PairedShift:
    """Return the shift of paired differences from 0 if those within a cluster are dependent.

    Clusters of one item are compared by `shift_of_differences`. Otherwise signed ranks are summed
    per cluster and signs flipped for whole clusters, which is exact if A and B are exchangeable
    within clusters (Rosner, Glynn and Lee 2006, Biometrics 62:185). The interval takes the Walsh
    means at a rank distance from the middle given by the variance of those sums about the
    pseudo-median and Student's t with (clusters − 1) degrees of freedom.

    Args:
        differences: Such as log(B/A); at least one.
        codes: Cluster of each difference, from 0.
    """
    num_clusters = int(codes.max()) + 1
    if num_clusters == len(differences):
        return shift_of_differences(differences)
    less, greater = tails_of_clusters(differences, codes)
    walsh = OrderedSums(differences / 2, None)
    centre = walsh.median()
    nonzero = differences[differences != 0]
    positive = doubled_ranks(np.abs(nonzero))[nonzero > 0]
    return PairedShift(
        v=float(positive.sum()) / 2,
        p_greater=greater,
        p_two_sided=min(1.0, 2 * min(less, greater)),
        pseudo_median=centre,
        ci95=_interval(walsh, differences - centre, codes, num_clusters),
    )


def tails_of_clusters(differences: Floats, codes: NDArray[np.int64]) -> tuple[float, float]:
    """Return P(V ≤ v) and P(V ≥ v), V the sum of the positive signed ranks of whole clusters."""
    if int(codes.max()) + 1 == len(differences):
        return signed_rank_tails(differences)
    return sign_flip_tails(_rank_sums(differences, codes))


def _rank_sums(differences: Floats, codes: NDArray[np.int64]) -> Floats:
    is_used = differences != 0
    used = differences[is_used]
    return cluster_sums(np.sign(used) * doubled_ranks(np.abs(used)), codes[is_used])


def _interval(
    walsh: OrderedSums, residuals: Floats, codes: NDArray[np.int64], num_clusters: int
) -> Interval:
    n = len(residuals)
    if num_clusters < 2:
        return (None, None)
    independent = n * (n + 1) * (2 * n + 1) / 24
    # Ranks are doubled, and a signed rank has four times the variance of a coin's.
    found = float((_rank_sums(residuals, codes) ** 2).sum()) / 16
    sigma = math.sqrt(max(independent, found))
    critical = math.floor(n * (n + 1) / 4 - float(t.ppf(0.975, num_clusters - 1)) * sigma)
    if critical < 1:
        return (None, None)
    return (walsh.at_rank(critical), walsh.at_rank(len(walsh) - critical + 1))
