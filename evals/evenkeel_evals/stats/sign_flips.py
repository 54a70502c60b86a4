"""The distribution of a sum with random signs, as from random swaps of A and B."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from evenkeel_evals.stats.inputs import Floats
from evenkeel_evals.stats.ranks import signed_rank_distribution

MAX_ENUMERATED = 20
MAX_DRAWS, MIN_DRAWS = 100_000, 10_000
SEED = 20_240_229
# Maximum additions for the exact distribution of integer sizes.
MAX_ADDITIONS = 500_000_000
# Signs drawn in total, and per batch.
MAX_SIGNS, BLOCK_OF_SIGNS = 200_000_000, 4_000_000
# With this many terms, none with a larger share of the variance, the sum is taken as normal.
MANY_TERMS, LARGEST_SHARE = 1_000, 0.02


def sign_flip_tails(terms: Floats) -> tuple[float, float]:
    """Return P(S ≤ s) and P(S ≥ s): s the sum of the terms, S the same with random signs.

    Exact for up to 20 nonzero terms, and for any number of terms on a lattice, such as ranks or
    differences of 0 and 1 (the exact McNemar test), as far as that is feasible. Otherwise uses the
    normal distribution for 1,000 terms or more, or 10,000 to 100,000 seeded draws with
    p = (1 + hits)/(1 + draws), which is valid and never 0 (Phipson and Smyth 2010, Stat. Appl.
    Genet. Mol. Biol. 9:39).

    Args:
        terms: Differences B − A; one sum per cluster of items.
    """
    # Below 1, by a power of 2: nothing overflows, and no rounding changes.
    _, exponent = math.frexp(float(np.abs(terms).max(initial=0.0)))
    scaled = np.ldexp(terms, -exponent)
    nonzero = scaled[scaled != 0]
    if len(nonzero) == 0:
        return 1.0, 1.0
    sizes, total = np.abs(nonzero), float(nonzero.sum())
    # Equal sums must compare equal, whatever the order of addition.
    slack = 1e-9 * float(sizes.sum())
    if len(sizes) <= MAX_ENUMERATED:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums + size, sums - size])
        return float(np.mean(sums <= total + slack)), float(np.mean(sums >= total - slack))
    steps = _steps(nonzero, exponent)
    if steps is not None and float(np.abs(steps).sum()) * len(steps) <= MAX_ADDITIONS:
        probability = signed_rank_distribution(np.abs(steps))
        positive = int(steps[steps > 0].sum())
        return (
            min(1.0, float(probability[: positive + 1].sum())),
            min(1.0, float(probability[positive:].sum())),
        )
    squares = sizes**2
    variance = float(squares.sum())
    if len(sizes) >= MANY_TERMS and float(squares.max()) <= LARGEST_SHARE * variance:
        z = total / math.sqrt(variance)
        return float(norm.cdf(z)), float(norm.sf(z))
    smaller = _draw(sizes, abs(total) - slack) / 2
    return (1 - smaller, smaller) if total > 0 else (smaller, 1 - smaller)


def _steps(terms: Floats, exponent: int) -> NDArray[np.int64] | None:
    """Return the terms as multiples of the largest common step; None if they have none.

    Args:
        terms: The terms, none of them 0, divided by 2**exponent.
        exponent: Of whole numbers at most 53.
    """
    whole_unit = [math.ldexp(1.0, -exponent)] if 0 <= exponent <= 53 else []
    for unit in (*whole_unit, float(np.abs(terms).min())):
        with np.errstate(over="ignore"):
            units = terms / unit
        steps = np.rint(units)
        is_countable = 0 < float(np.abs(steps).min()) and float(np.abs(steps).max()) < 2**53
        if is_countable and np.allclose(units, steps, rtol=0, atol=1e-9):
            whole = steps.astype(np.int64)
            return np.asarray(whole // np.gcd.reduce(whole))
    return None


def _draw(sizes: Floats, bound: float) -> float:
    """Return P(|S| ≥ bound), by draws."""
    generator = np.random.default_rng(SEED)
    num_draws = min(MAX_DRAWS, max(MIN_DRAWS, MAX_SIGNS // len(sizes)))
    block = max(1, BLOCK_OF_SIGNS // len(sizes))
    hits = 0
    for start in range(0, num_draws, block):
        shape = (min(block, num_draws - start), len(sizes))
        sums = 2 * (generator.integers(0, 2, size=shape, dtype=np.int8) @ sizes) - sizes.sum()
        hits += int(np.count_nonzero(np.abs(sums) >= bound))
    return (1 + hits) / (1 + num_draws)
