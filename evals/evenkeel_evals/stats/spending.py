"""Alpha spending: early looks at the data without extra false alarms."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.stats import norm

from evenkeel_evals.stats.inputs import Floats

GRID = 301
# The range of p-values that is mapped; outside it, no decision changes.
LOWEST_ALPHA, HIGHEST_ALPHA = 1e-7, 0.5


@cache
def nominal_levels(alpha: float, num_looks: int) -> tuple[float, ...]:
    """Return the one-sided level of each of equally spaced looks; together they cost `alpha`.

    Alpha is spent as α*(t) = 2(1 − Φ(z_{α/2}/√t)), similar to O'Brien and Fleming: almost none
    early, almost all at the end. The levels follow by numerical integration of a Brownian motion
    that has not crossed yet (Armitage, McPherson, Rowe 1969, J. R. Stat. Soc. A 132:235). Source:
    Lan and DeMets 1983, Biometrika 70:659.
    """
    times = [(k + 1) / num_looks for k in range(num_looks)]
    quantile = float(norm.isf(alpha / 2))
    spent = [2 * float(norm.sf(quantile / math.sqrt(t))) for t in times]
    levels = []
    points, density = np.zeros(1), np.ones(1)
    step = 1 / num_looks
    before = 0.0
    for time, target in zip(times, spent, strict=True):
        bound = _bound(points, density, step, target - before, time)
        levels.append(float(norm.sf(bound / math.sqrt(time))))
        before = target
        points, density = _go_on(points, density, step, bound, time)
    return tuple(levels)


def repeated_p(p: float, look: int, num_looks: int) -> float:
    """Return the smallest overall alpha at which `p` at this look would be significant.

    It can be compared with any overall level, and adjusted for multiplicity, like an ordinary
    p-value of a study with one look. Source: Jennison and Turnbull 2000, section 9.6.

    Args:
        p: One-sided p-value of the data so far.
        look: Number of the look, from 1.
        num_looks: Total number of looks.
    """
    if num_looks == 1:
        return p
    alphas, levels = _table(num_looks)
    column = levels[:, look - 1]
    if p <= column[0]:
        return LOWEST_ALPHA
    if p > column[-1]:
        return 1.0
    logs = np.interp(math.log(p), np.log(column), np.log(alphas))
    return float(math.exp(logs))


@cache
def _table(num_looks: int) -> tuple[Floats, Floats]:
    alphas = np.geomspace(LOWEST_ALPHA, HIGHEST_ALPHA, 40)
    rows = [nominal_levels(float(alpha), num_looks) for alpha in alphas]
    # An early level may underflow to 0, which has no logarithm; p is never that small.
    return alphas, np.maximum(np.array(rows), 1e-300)


def _bound(points: Floats, density: Floats, step: float, wanted: float, time: float) -> float:
    """Return c with P(not crossed before, value above c now) = wanted, by bisection."""
    low, high = -8 * math.sqrt(time), 40 * math.sqrt(time)
    for _ in range(80):
        middle = (low + high) / 2
        above = float(density @ norm.sf((middle - points) / math.sqrt(step)))
        low, high = (middle, high) if above > wanted else (low, middle)
    return (low + high) / 2


def _go_on(
    points: Floats, density: Floats, step: float, bound: float, time: float
) -> tuple[Floats, Floats]:
    """Return the sub-density at this look below its bound, as weights on a grid."""
    low = -8 * math.sqrt(time)
    high = min(bound, 8 * math.sqrt(time))
    grid = np.linspace(low, high, GRID)
    scale = math.sqrt(step)
    values = norm.pdf((grid[:, None] - points[None, :]) / scale) @ density / scale
    weights = np.full(GRID, (high - low) / (GRID - 1))
    # Simpson's rule: the transition density between looks is smooth.
    weights *= np.where(np.arange(GRID) % 2 == 1, 4.0, 2.0) / 3.0
    weights[0] = weights[-1] = weights[0] / 2
    return grid, values * weights
