"""Exact null distributions of rank sums, ties included, by the shift algorithm.

Ranks are doubled so that midranks are integers; the distribution of a sum of ranks is then built
item by item (Streitberg and Röhmel 1986, Statistical Software Newsletter 12:10). It adds only
positive numbers, so tails keep their relative precision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from evenkeel_evals.stats.inputs import Floats

Doubled = NDArray[np.int64]

# Maximum additions per exact distribution, about a second; beyond it, normal approximation.
MAX_ADDITIONS = 600_000_000


def doubled_ranks(values: Floats) -> Doubled:
    """Return twice the midrank of each value."""
    return np.asarray(np.rint(2 * rankdata(values)), dtype=np.int64)


def signed_rank_is_exact(n: int) -> bool:
    """Return whether the signed-rank distribution of n items is computed exactly."""
    return n * n * (n + 1) <= MAX_ADDITIONS


def rank_sum_is_exact(m: int, n: int) -> bool:
    """Return whether the rank-sum distribution of m and n items is computed exactly."""
    few, total = min(m, n), m + n
    return total * few * few * (2 * total) <= MAX_ADDITIONS


def signed_rank_distribution(ranks: Doubled) -> Floats:
    """Return P(sum of the positive ranks = s), s doubled, when each sign is a fair coin."""
    probability = np.zeros(int(ranks.sum()) + 1)
    probability[0] = 1.0
    top = 0
    for rank in np.sort(ranks).tolist():
        probability[rank : top + rank + 1] += probability[: top + 1].copy()
        top += rank
        probability[: top + 1] *= 0.5
    return probability


def rank_sum_distribution(ranks: Doubled, m: int) -> Floats:
    """Return P(sum of m of the ranks = s), s doubled, when each choice of m is equally likely.

    Row k of the table counts the ways to choose k ranks; counts stay below 1e308 as long as
    `rank_sum_is_exact`.
    """
    ordered = np.sort(ranks)
    largest = int(ordered[len(ordered) - m :].sum())
    ways = np.zeros((m + 1, largest + 1))
    ways[0, 0] = 1.0
    for rank in ordered.tolist():
        ways[1:, rank:] += ways[:-1, : largest + 1 - rank].copy()
    counts = ways[m]
    return np.asarray(counts / counts.sum(), dtype=float)


def tails(probability: Floats, doubled_sum: int) -> tuple[float, float]:
    """Return P(S ≤ s) and P(S ≥ s)."""
    return (
        min(1.0, float(probability[: doubled_sum + 1].sum())),
        min(1.0, float(probability[doubled_sum:].sum())),
    )


def critical_count(probability: Floats, tail: float) -> int:
    """Return the smallest c with P(S ≤ c) ≥ tail; S not doubled, as R's qwilcox and qsignrank."""
    return int(np.searchsorted(np.cumsum(probability), tail * (1 - 1e-14)))
