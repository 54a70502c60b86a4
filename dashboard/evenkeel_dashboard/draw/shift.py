"""Computes the Hodges–Lehmann shift between two large groups of requests.

Request samples are always large. Evaluations have few pairs and use the exact intervals of
`evals/stats` instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, sqrt
from statistics import NormalDist

import numpy as np

MIN_EACH = 10
"""With fewer values per side, the normal approximation is too rough to give an interval."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The shift of B relative to A.

    Attributes:
        estimate: Median of all differences b − a.
        lower: Lower end of the interval; `upper` is the other end.
        probability: How often a random b exceeds a random a; ties count half, 0.5 is no difference.
    """

    estimate: float
    lower: float
    upper: float
    probability: float


def large_sample_shift(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Shift | None:
    """Return the shift of B relative to A; None with fewer than ten values per side.

    The interval is Moses': the order statistics of the differences at
    mn/2 ± z √(mn(m + n + 1)/12), from the normal approximation of Mann and Whitney's U (Hollander,
    Wolfe and Chicken, Nonparametric Statistical Methods, section 4.3). Memory: 8 bytes per pair,
    so a thousand values on each side take 8 MB.
    """
    m, n = len(a), len(b)
    if m < MIN_EACH or n < MIN_EACH:
        return None
    differences = np.subtract.outer(np.asarray(b, dtype=float), np.asarray(a, dtype=float)).ravel()
    differences.sort()
    z = NormalDist().inv_cdf((1 + level) / 2)
    rank = max(1, floor(m * n / 2 - z * sqrt(m * n * (m + n + 1) / 12)))
    above = m * n - int(np.searchsorted(differences, 0.0, side="right"))
    ties = m * n - above - int(np.searchsorted(differences, 0.0, side="left"))
    return Shift(
        estimate=float(np.median(differences)),
        lower=float(differences[rank - 1]),
        upper=float(differences[m * n - rank]),
        probability=(above + ties / 2) / (m * n),
    )
