"""Sums, standard errors and design effects for clustered items."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.inputs import Floats, check_list, check_numbers

# With fewer changed clusters of several items, the similarity of changes within clusters cannot be
# estimated from the changes.
ENOUGH_CHANGED = 10
# Nor can it from the baseline's scores, if there are no more clusters of several items, or if it is
# wrong in fewer than these (right, if it is mostly wrong): items then look independent by chance.
ENOUGH_DIFFERING = 5


@dataclass(frozen=True, slots=True)
class ClusteredMean:
    """A mean with three standard errors.

    Attributes:
        mean: Mean of the scores.
        se_iid: s / √n, s with n − 1, treating items as independent; None below 2 items.
        se_cr0: √(Σ over clusters of (Σ residuals)²) / n; None below 2 clusters.
        se_cr1: se_cr0 · √(G / (G − 1)), G clusters; None below 2 clusters.
    """

    mean: float
    se_iid: float | None
    se_cr0: float | None
    se_cr1: float | None


def clustered_mean(scores: Sequence[float], clusters: Sequence[Hashable]) -> ClusteredMean:
    """Return the mean and its cluster-robust errors; items of a cluster are not independent.

    Source: Liang and Zeger 1986; Miller 2024, "Adding Error Bars to Evals", section 2.2. The
    residuals of a single cluster sum to 0, so the error cannot be estimated: it is None, not 0.

    Raises:
        ConfigurationError: If there are no scores, or not exactly one cluster per score.
    """
    values = check_numbers("scores", scores)
    names = check_list("clusters", clusters)
    if len(names) != len(values):
        raise ConfigurationError(
            f"scores has {len(values)} values and clusters {len(names)}, expected one each"
        )
    if any(isinstance(name, list | dict) or name is None for name in names):
        raise ConfigurationError("clusters must be strings or numbers, one per score")
    n, mean = len(values), float(np.mean(values))
    sums: dict[Hashable, float] = {}
    for name, residual in zip(names, values - mean, strict=True):
        sums[name] = sums.get(name, 0.0) + float(residual)
    se_iid = float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else None
    if len(sums) < 2:
        return ClusteredMean(mean, se_iid, None, None)
    cr0 = math.sqrt(math.fsum(total**2 for total in sums.values())) / n
    return ClusteredMean(mean, se_iid, cr0, cr0 * math.sqrt(len(sums) / (len(sums) - 1)))


def cluster_codes(names: Sequence[Hashable]) -> NDArray[np.int64]:
    """Return each item's cluster number, from 0 in order of appearance."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)


def cluster_sums(values: Floats, codes: NDArray[np.int64]) -> Floats:
    """Return the sum of the values in each cluster."""
    return np.asarray(np.bincount(codes, weights=values), dtype=float)


def design_effect(changes: Floats, baseline: Floats, codes: NDArray[np.int64]) -> float:
    """Return the design effect: clustered items per independent one; 1 if all are independent.

    n items have the information of n / design effect independent ones (Kish 1965). The effect is
    the cluster-robust variance of the mean change over that of independent items, at least 1 and
    at most Σm²/Σm with cluster sizes m, the value for fully correlated clusters; where sizes
    differ, at least 1 + (Σm²/Σm − 1)ρ, ρ the correlation of the changes within clusters. With too
    few changes in clusters of several items, ρ is that of the baseline's scores; with too
    few of these clusters, or if the scores differ from their median in too few of them, clusters
    count as fully correlated.

    Args:
        changes: Each item's B − A.
        baseline: Each item's A.
        codes: Cluster of each item, from 0.
    """
    sizes = np.bincount(codes)
    largest = float((sizes.astype(float) ** 2).sum() / sizes.sum())
    if largest == 1:
        return 1.0
    if len(sizes) < 2:
        return largest
    found = _variance_ratio(changes, codes)
    similarity = _intraclass_correlation(changes, codes)
    if found is not None and similarity is not None:
        # The ratio says little about a cluster that is larger than all others.
        found = max(found, 1 + (largest - 1) * similarity)
    # A cluster of one item says nothing about how similar the items of a cluster are.
    in_several = sizes[codes] > 1
    if _count(codes[in_several & (changes != 0)]) < ENOUGH_CHANGED:
        differing = codes[in_several & (baseline != np.median(baseline))]
        is_known = (
            _count(codes[in_several]) >= ENOUGH_CHANGED and _count(differing) >= ENOUGH_DIFFERING
        )
        alike = _intraclass_correlation(baseline, codes) if is_known else None
        known = 1 + (largest - 1) * (1.0 if alike is None else alike)
        found = known if found is None else max(found, known)
    return min(largest, max(1.0, found if found is not None else largest))


def _count(codes: NDArray[np.int64]) -> int:
    return len(set(codes.tolist()))


def _variance_ratio(values: Floats, codes: NDArray[np.int64]) -> float | None:
    residuals = values - values.mean()
    total = float((residuals**2).sum())
    if total == 0:
        return None
    sums = cluster_sums(residuals, codes)
    return float((sums**2).sum()) * len(sums) / (len(sums) - 1) / total


def _intraclass_correlation(values: Floats, codes: NDArray[np.int64]) -> float | None:
    """Return the share of the variance between clusters, 0 to 1 (ANOVA); None without variance."""
    sizes = np.bincount(codes)
    n, count = len(values), len(sizes)
    if n == count:
        return 0.0
    means = cluster_sums(values, codes) / sizes
    within = float(((values - means[codes]) ** 2).sum()) / (n - count)
    between = float((sizes * (means - values.mean()) ** 2).sum()) / (count - 1)
    size = (n - float((sizes.astype(float) ** 2).sum()) / n) / (count - 1)
    total = between + (size - 1) * within
    return None if total <= 0 else min(1.0, max(0.0, (between - within) / total))
