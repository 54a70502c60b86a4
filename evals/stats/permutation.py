"""The paired permutation test: what would random swaps of A and B have shown?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evals.stats.inputs import Floats, check_pairs, snap

MAX_ENUMERATED = 20
MAX_DRAWS, MIN_DRAWS = 100_000, 10_000
SEED = 20_240_229
# Additions that the exact distribution of integer differences may cost.
MAX_ADDITIONS = 500_000_000
# Signs drawn in all, and at a time.
MAX_SIGNS, BLOCK_OF_SIGNS = 200_000_000, 4_000_000


@dataclass(frozen=True, slots=True)
class PermutationTest:
    """Mean difference B − A and its two-sided permutation p-value."""

    delta: float
    p_two_sided: float


def permutation_paired(a: Sequence[float], b: Sequence[float]) -> PermutationTest:
    """Test whether the mean of B differs from that of A on the same items.

    p = P(|Σ ± d| ≥ |Σ d|) over all 2^n sign patterns of the differences d. Exact where up to 20
    differences are not zero, and for any number of them on a lattice, such as scores of 0 and 1
    (then it is the exact McNemar test); otherwise 10,000 to 100,000 seeded draws with
    p = (1 + hits)/(1 + draws), which is valid and never 0 (Phipson and Smyth 2010, Stat. Appl.
    Genet. Mol. Biol. 9:39).

    Raises:
        ConfigurationError: If a and b are empty or of different lengths.
    """
    first, second = check_pairs("a", a, "b", b)
    scale = float(max(np.abs(first).max(), np.abs(second).max()))
    differences = snap(second - first, scale)
    nonzero = np.abs(differences[differences != 0])
    observed = abs(float(differences.sum()))
    return PermutationTest(
        delta=float(second.mean() - first.mean()), p_two_sided=_p_value(nonzero, observed)
    )


def _p_value(sizes: Floats, observed: float) -> float:
    if len(sizes) == 0:
        return 1.0
    # Equal sums must count as equal, whatever the order of their additions.
    bound = observed - 1e-9 * float(sizes.sum())
    if len(sizes) <= MAX_ENUMERATED:
        return _enumerate(sizes, bound)
    units = sizes / sizes.min()
    steps = np.rint(units)
    if np.allclose(units, steps, rtol=0, atol=1e-9) and steps.sum() * len(steps) <= MAX_ADDITIONS:
        return _convolve(steps.astype(np.int64), bound / float(sizes.min()))
    return _draw(sizes, bound)


def _enumerate(sizes: Floats, bound: float) -> float:
    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate([sums + size, sums - size])
    return float(np.mean(np.abs(sums) >= bound))


def _convolve(steps: NDArray[np.int64], bound: float) -> float:
    """Return the exact p of integer sizes: the distribution of the part with a plus sign."""
    total = int(steps.sum())
    probability = np.zeros(total + 1)
    probability[0] = 1.0
    top = 0
    for step in steps.tolist():
        probability[step : top + step + 1] += probability[: top + 1].copy()
        top += step
        probability[: top + 1] *= 0.5
    sums = 2 * np.arange(total + 1) - total
    return min(1.0, float(probability[np.abs(sums) >= bound].sum()))


def _draw(sizes: Floats, bound: float) -> float:
    generator = np.random.default_rng(SEED)
    num_draws = min(MAX_DRAWS, max(MIN_DRAWS, MAX_SIGNS // len(sizes)))
    block = max(1, BLOCK_OF_SIGNS // len(sizes))
    hits = 0
    for start in range(0, num_draws, block):
        shape = (min(block, num_draws - start), len(sizes))
        sums = 2 * (generator.integers(0, 2, size=shape, dtype=np.int8) @ sizes) - sizes.sum()
        hits += int(np.count_nonzero(np.abs(sums) >= bound))
    return (1 + hits) / (1 + num_draws)
