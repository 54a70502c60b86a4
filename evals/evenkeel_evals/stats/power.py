"""Power analysis: what a run of a given size can detect, before any tokens are spent."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, norm

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.inputs import (
    Floats,
    check_count,
    check_fraction,
    check_not_negative,
    check_number,
)

MAX_POWER_PAIRS = 5_000_000


@dataclass(frozen=True, slots=True)
class SampleSize:
    """Number of items needed."""

    n: int


@dataclass(frozen=True, slots=True)
class Power:
    """Probability that the test rejects."""

    power: float


def sample_size_paired(
    alpha: float,
    power: float,
    delta: float,
    omega2: float,
    var_a: float,
    var_b: float,
    k_a: int,
    k_b: int,
) -> SampleSize:
    """Return the number of questions needed to detect a mean difference of `delta`, rounded up.

    n = (z_{1−α/2} + z_{power})² (ω² + σ²_A/K_A + σ²_B/K_B) / δ². Source: Miller 2024, "Adding
    Error Bars to Evals", section 5.

    Args:
        alpha: Two-sided false-alarm rate.
        power: Probability of detecting a true difference of delta.
        delta: The difference to detect; its sign does not matter.
        omega2: Variance between questions of the difference of their expected scores.
        var_a: Variance of A's score within a question, as from sampling at temperature > 0.
        var_b: The same for B.
        k_a: Answers of A per question.
        k_b: Answers of B per question.

    Raises:
        ConfigurationError: If delta is 0, a variance negative, or the rest out of range.
    """
    alpha, power = check_fraction("alpha", alpha), check_fraction("power", power)
    if check_number("delta", delta) == 0:
        raise ConfigurationError("delta is 0: no number of questions can show a difference of 0")
    variance = (
        check_not_negative("omega2", omega2)
        + check_not_negative("var_a", var_a) / check_count("k_a", k_a, at_least=1)
        + check_not_negative("var_b", var_b) / check_count("k_b", k_b, at_least=1)
    )
    z = float(norm.ppf(1 - alpha / 2) + norm.ppf(power))
    needed = max(0.0, z) ** 2 * variance / delta**2
    if not needed < 1e15:
        raise ConfigurationError(f"delta is {delta}, which would take {needed:.1e} questions")
    return SampleSize(max(1, math.ceil(needed - 1e-9)))


def mcnemar_power(n: int, p10: float, p01: float, alpha: float) -> Power:
    """Return the exact unconditional power of the two-sided exact McNemar test with n pairs.

    The number of discordant pairs d ~ Bin(n, p10 + p01); given d, those that favour B are
    Bin(d, p01/(p10 + p01)), and the test rejects where twice the smaller tail of Bin(d, ½) is at
    most alpha. Source: Duffy 1984, Biometrics 40:1005.

    Raises:
        ConfigurationError: If p10 + p01 exceeds 1, or a number is out of range.
    """
    n, alpha = check_count("n", n, at_least=1), check_fraction("alpha", alpha)
    p10, p01 = check_not_negative("p10", p10), check_not_negative("p01", p01)
    if p10 + p01 > 1 + 1e-12:
        raise ConfigurationError(f"p10 + p01 is {p10 + p01}, expected at most 1")
    if n > MAX_POWER_PAIRS:
        raise ConfigurationError(f"n is {n}, expected at most {MAX_POWER_PAIRS}")
    discordance = min(1.0, p10 + p01)
    if discordance < 1e-15:
        # Discordant pairs are all but impossible, and the test needs several to reject.
        return Power(0.0)
    # Beyond this range, a count of discordant pairs has a probability below 1e-15.
    reach = 40 + 9 * math.sqrt(n * discordance * (1 - discordance))
    low, high = math.floor(n * discordance - reach), math.ceil(n * discordance + reach)
    d = np.arange(max(0, low), min(n, high) + 1, dtype=float)
    critical = _critical_losses(d, alpha)
    share = p01 / (p10 + p01)
    rejects = binom.cdf(critical, d, share) + binom.sf(d - critical - 1, d, share)
    return Power(float(np.clip((binom.pmf(d, n, discordance) * rejects).sum(), 0.0, 1.0)))


def _critical_losses(d: Floats, alpha: float) -> Floats:
    """Return for each d the largest c with 2 P(Bin(d, ½) ≤ c) ≤ alpha; −1 if there is none."""
    critical = binom.ppf(alpha / 2, d, 0.5)
    for _ in range(2):
        critical = np.where(2 * binom.cdf(critical, d, 0.5) > alpha, critical - 1, critical)
    return np.asarray(np.maximum(critical, -1), dtype=float)


def smallest_detectable_difference(
    n: int, discordance: float, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """Return the smallest drop in accuracy that n pairs detect with the given power.

    The power is `mcnemar_power` with p10 − p01 = the drop and p10 + p01 = max(discordance, drop).
    None if not even a drop of 1 would be detected.
    """

    def shortfall(drop: float) -> float:
        total = max(discordance, drop)
        return mcnemar_power(n, (total + drop) / 2, (total - drop) / 2, alpha).power - power

    if shortfall(1.0) < 0:
        return None
    if shortfall(0.0) >= 0:
        return 0.0
    return float(brentq(shortfall, 0.0, 1.0, xtol=1e-4))


def pairs_to_show_noninferiority(
    margin: float, discordance: float, alpha: float = 0.05, power: float = 0.8
) -> int:
    """Return the pairs at which an unchanged candidate passes a margin with the given power.

    n = (z_{1−α} + z_{power})² · discordance / margin²: the paired difference has variance
    ≈ discordance. Source: Liu et al. 2002, Stat. Med. 21:231.
    """
    z = float(norm.ppf(1 - alpha) + norm.ppf(power))
    return math.ceil(z**2 * discordance / margin**2)
