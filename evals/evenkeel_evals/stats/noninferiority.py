"""Non-inferiority of B to A: accuracy by the score test, latency by log-ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.inputs import (
    Floats,
    check_count,
    check_not_negative,
    check_numbers,
    check_positive,
)
from evenkeel_evals.stats.tango import score_interval, score_z
from evenkeel_evals.stats.verdict_names import Verdict

ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class LatencyNoninferiority:
    """One-sided 5% test that B's latency is below margin × A's.

    Attributes:
        ratio: Geometric mean of B over that of A.
        upper95: One-sided 95% upper limit of the ratio.
        p: p-value against H0: ratio ≥ margin.
        verdict: See `judge_ratio`.
    """

    ratio: float
    upper95: float
    p: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class AccuracyNoninferiority:
    """One-sided 5% test that B's accuracy is above A's minus the margin.

    Attributes:
        delta: B − A.
        z: Score statistic at delta = −margin.
        p: 1 − Φ(z), against H0: delta ≤ −margin.
        lower90: Lower limit of the two-sided 90% score interval: above −margin when p < 5%.
        verdict: better, no worse, regressed or inconclusive.
    """

    delta: float
    z: float | None
    p: float
    lower90: float
    verdict: Verdict


def noninferior_accuracy(n: int, n10: int, n01: int, margin: float) -> AccuracyNoninferiority:
    """Test whether B's accuracy is no more than `margin` below A's, on n paired items.

    The score test of Tango (1998, Stat. Med. 17:891) and Nam (1997, Biometrics 53:1422): it keeps
    its level when the Wald test does not, and works without discordant pairs. Verdict: "better" if
    the 90% interval lies above 0; "no worse" if it lies above −margin; "regressed" if it lies
    below 0 and delta is below −margin; else "inconclusive".

    Args:
        n: All pairs, concordant ones included.
        n10: A right, B wrong.
        n01: A wrong, B right.
        margin: Largest tolerated drop, as a fraction such as 0.01.

    Raises:
        ConfigurationError: If n is 0, n10 + n01 exceeds n, or the margin is not in [0, 1).
    """
    n = check_count("n", n, at_least=1)
    n10, n01 = check_count("n10", n10), check_count("n01", n01)
    margin = check_not_negative("margin", margin)
    if margin >= 1:
        raise ConfigurationError(f"margin is {margin}, expected a fraction such as 0.01")
    if n10 + n01 > n:
        raise ConfigurationError(f"n10 + n01 is {n10 + n01}, expected at most n = {n}")
    z = score_z(-margin, n, n10, n01)
    lower, upper = score_interval(n, n10, n01, float(norm.ppf(1 - ALPHA)))
    delta = (n01 - n10) / n
    p = float(norm.sf(z))
    return AccuracyNoninferiority(
        delta=delta,
        z=z if math.isfinite(z) else None,
        p=p,
        lower90=lower,
        verdict=_judge(p < ALPHA, is_better=lower > 0, is_worse=upper < 0 and delta < -margin),
    )


def noninferior_latency(
    a: Sequence[float], b: Sequence[float], margin_ratio: float
) -> LatencyNoninferiority:
    """Test whether B's latency is below `margin_ratio` times A's.

    Lists of the same length are pairs: t-test on log(b/a), n − 1 degrees of freedom. Lists of
    different lengths are independent samples: Welch's t-test on the logarithms. The ratio is that
    of geometric means, since the logarithms of latencies are nearly symmetric (as in
    bioequivalence, Schuirmann 1987). Verdict as for accuracy, with the 90% interval against 1 and
    the margin. If all values are the same, the error is 0 and the comparison is exact.

    Args:
        a: Latencies of the baseline, each above 0.
        b: Latencies of the candidate.
        margin_ratio: Largest tolerated B/A, such as 1.05, or as a fraction, 0.05.

    Raises:
        ConfigurationError: If a latency is not above 0, a sample is too small to have an error
            (fewer than 2 pairs, or 2 values per side), or the margin is invalid.
    """
    first, second = _logarithms("a", a), _logarithms("b", b)
    margin = _log_margin(margin_ratio)
    if min(len(first), len(second)) < 2:
        raise ConfigurationError(
            "a and b need at least 2 values each: one value has no standard error"
        )
    estimate, error, freedom = (
        _paired_error(second - first) if len(first) == len(second) else _welch(first, second)
    )
    half = float(t.ppf(1 - ALPHA, freedom)) * error if error > 0 else 0.0
    if error > 0:
        p = float(t.cdf((estimate - margin) / error, freedom))
    else:
        p = 0.0 if estimate < margin else 1.0
    return LatencyNoninferiority(
        ratio=math.exp(estimate),
        upper95=math.exp(estimate + half),
        p=p,
        verdict=_judge(
            p < ALPHA,
            is_better=estimate + half < 0,
            is_worse=estimate - half > 0 and estimate > margin,
        ),
    )


def _judge(is_within_margin: bool, *, is_better: bool, is_worse: bool) -> Verdict:
    if is_better:
        return Verdict.BETTER
    if is_within_margin:
        return Verdict.NO_WORSE
    return Verdict.REGRESSED if is_worse else Verdict.INCONCLUSIVE


def _logarithms(name: str, values: Sequence[float]) -> Floats:
    numbers = check_numbers(name, values)
    if (numbers <= 0).any():
        raise ConfigurationError(f"{name} contains {numbers.min()}, expected latencies above 0")
    return np.log(numbers)


def _log_margin(margin_ratio: float) -> float:
    margin = check_positive("margin_ratio", margin_ratio)
    if margin <= 0.5:
        return math.log1p(margin)
    if margin < 1:
        raise ConfigurationError(
            f"margin_ratio is {margin}, expected the largest B/A such as 1.05, or 0.05 for +5%"
        )
    return math.log(margin)


def _paired_error(differences: Floats) -> tuple[float, float, float]:
    n = len(differences)
    mean = float(differences.mean())
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    # Differences equal up to rounding have no spread; do not base a t statistic on the last bit.
    return mean, error if error > 1e-14 else 0.0, n - 1


def _welch(first: Floats, second: Floats) -> tuple[float, float, float]:
    var_a, var_b = first.var(ddof=1) / len(first), second.var(ddof=1) / len(second)
    total = float(var_a + var_b)
    estimate = float(second.mean() - first.mean())
    if total < 1e-28:
        return estimate, 0.0, 1.0
    freedom = total**2 / (var_a**2 / (len(first) - 1) + var_b**2 / (len(second) - 1))
    return estimate, math.sqrt(total), float(freedom)
