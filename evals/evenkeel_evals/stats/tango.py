"""The score test of a paired difference of proportions, and its inversion (Tango 1998)."""

from __future__ import annotations

import math

from scipy.optimize import brentq


def score_z(delta: float, n: float, n10: float, n01: float) -> float:
    """Return the score statistic of H0: P(B right) − P(A right) = delta.

    z = (n01 − n10 − n·delta) / √(n (2 q + delta (1 − delta))), q the maximum-likelihood estimate
    of P(A right, B wrong) under H0. Falls as delta grows; 0 when the numerator is 0.

    Source: Tango 1998, Stat. Med. 17:891; Nam 1997, Biometrics 53:1422.
    """
    numerator = n01 - n10 - n * delta
    if numerator == 0:
        return 0.0
    deviation = _deviation(delta, n, n10, n01)
    return numerator / deviation if deviation > 0 else math.copysign(math.inf, numerator)


def score_interval(n: float, n10: float, n01: float, z: float) -> tuple[float, float]:
    """Return the deltas that the score test does not reject at ±z; always inside [−1, 1]."""
    lower, upper = _upper_limit(n, n01, n10, z), _upper_limit(n, n10, n01, z)
    return 0.0 - lower, upper


def _upper_limit(n: float, n10: float, n01: float, z: float) -> float:
    estimate = (n01 - n10) / n
    if estimate >= 1:
        return 1.0

    def excess(delta: float) -> float:
        return n01 - n10 - n * delta + z * _deviation(delta, n, n10, n01)

    # Without discordant pairs the estimate itself is a root; the limit is the root above it.
    start = estimate + min(1e-9, (1 - estimate) / 2)
    if excess(start) <= 0:
        return estimate
    return float(brentq(excess, start, 1.0, xtol=1e-15, rtol=1e-14, maxiter=500))


def _deviation(delta: float, n: float, n10: float, n01: float) -> float:
    q = _restricted_loss(delta, n, n10, n01)
    return math.sqrt(max(0.0, n * (2 * q + delta * (1 - delta))))


def _restricted_loss(delta: float, n: float, n10: float, n01: float) -> float:
    """Return the estimate of P(A right, B wrong) under the constraint: the larger root."""
    a = 2.0 * n
    b = (2.0 * n - n01 + n10) * delta - n01 - n10
    c = -n10 * delta * (1.0 - delta)
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    # The second form avoids cancellation when b is positive.
    q = (root - b) / (2 * a) if b <= 0 else (-2 * c / (b + root))
    return max(q, 0.0, -delta)
