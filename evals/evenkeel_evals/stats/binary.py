"""Tests and intervals for paired right-or-wrong answers and for single proportions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.stats import binom, chi2, norm
from statsmodels.stats.proportion import proportion_confint

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.inputs import check_count
from evenkeel_evals.stats.tango import score_interval

Z95 = float(norm.ppf(0.975))


@dataclass(frozen=True, slots=True)
class DifferenceIntervals:
    """Four 95% intervals of the paired difference of proportions B − A.

    Attributes:
        wald: delta ± z √(n10 + n01 − (n10 − n01)²/n) / n; too narrow if n is small.
        bonett_price: The same with one pseudo-pair added to each discordant cell and two to n
            (Bonett and Price 2012, J. Educ. Behav. Stat. 37:479).
        newcombe: Wilson limits squared and added, with the continuity-corrected correlation
            (Newcombe 1998, Stat. Med. 17:2635, method 10).
        tango: Inversion of the score test (Tango 1998, Stat. Med. 17:891).
    """

    wald: tuple[float, float]
    bonett_price: tuple[float, float]
    newcombe: tuple[float, float]
    tango: tuple[float, float]


@dataclass(frozen=True, slots=True)
class PairedBinary:
    """Tests and intervals of B against A from a 2×2 table; all p-values are two-sided."""

    n: int
    delta: float
    p_exact: float
    p_midp: float
    p_asymptotic: float
    p_cc: float
    ci95: DifferenceIntervals


@dataclass(frozen=True, slots=True)
class Proportion:
    """Two 95% intervals for one proportion."""

    wilson: tuple[float, float]
    clopper_pearson: tuple[float, float]


def paired_binary(n11: int, n10: int, n01: int, n00: int) -> PairedBinary:
    """Test whether B is right more or less often than A on the same items.

    McNemar's tests use only the discordant pairs: exact binomial, mid-p (Fagerland, Lydersen and
    Laake 2013, BMC Med. Res. Methodol. 13:91; 1 − f/2 at n10 = n01, f the probability of just that
    table), χ² = (n10 − n01)²/(n10 + n01), and χ² with
    continuity correction max(0, |n10 − n01| − 1)²/(n10 + n01). Without discordant pairs,
    every p is 1.

    Args:
        n11: Items both got right.
        n10: A right, B wrong.
        n01: A wrong, B right.
        n00: Items both got wrong.

    Raises:
        ConfigurationError: If a count is negative or the table is empty.
    """
    n11, n10, n01, n00 = (
        check_count(name, value)
        for name, value in (("n11", n11), ("n10", n10), ("n01", n01), ("n00", n00))
    )
    n, discordant = n11 + n10 + n01 + n00, n10 + n01
    if n == 0:
        raise ConfigurationError("the table is empty: n11, n10, n01 and n00 are all 0")
    tail = float(binom.cdf(min(n10, n01), discordant, 0.5))
    point = float(binom.pmf(min(n10, n01), discordant, 0.5))
    midp = 1 - point / 2 if n10 == n01 else 2 * tail - point
    return PairedBinary(
        n=n,
        delta=(n01 - n10) / n,
        p_exact=min(1.0, 2 * tail),
        p_midp=min(1.0, midp) if discordant else 1.0,
        p_asymptotic=_chi_square_p(abs(n10 - n01), discordant),
        p_cc=_chi_square_p(max(0, abs(n10 - n01) - 1), discordant),
        ci95=DifferenceIntervals(
            wald=_wald(n10 / n, n01 / n, n),
            bonett_price=_wald((n10 + 1) / (n + 2), (n01 + 1) / (n + 2), n + 2),
            newcombe=_newcombe(n11, n10, n01, n00),
            tango=score_interval(n, n10, n01, Z95),
        ),
    )


def proportion(x: int, n: int) -> Proportion:
    """Return the Wilson score and Clopper-Pearson 95% intervals of x out of n.

    Raises:
        ConfigurationError: If n is 0 or x is not between 0 and n.
    """
    n = check_count("n", n, at_least=1)
    x = check_count("x", x)
    if x > n:
        raise ConfigurationError(f"x is {x}, expected at most n = {n}")
    return Proportion(
        wilson=wilson(x, n), clopper_pearson=_clip(proportion_confint(x, n, method="beta"))
    )


def wilson(x: int, n: int) -> tuple[float, float]:
    """Return the Wilson score 95% interval of x out of n, exactly 0 and 1 at the ends."""
    low, high = _clip(proportion_confint(x, n, method="wilson"))
    return (0.0 if x == 0 else low, 1.0 if x == n else high)


def wilson_share(share: float, n: float) -> tuple[float, float]:
    """Return the Wilson score 95% interval of a share at an effective number of observations."""
    low, high = _clip(proportion_confint(share * n, n, method="wilson"))
    return (0.0 if share == 0 else low, 1.0 if share == 1 else high)


def _clip(interval: tuple[float, float]) -> tuple[float, float]:
    low, high = interval
    return max(0.0, float(low)), min(1.0, float(high))


def _chi_square_p(difference: int, discordant: int) -> float:
    return float(chi2.sf(difference**2 / discordant, 1)) if discordant else 1.0


def _wald(p10: float, p01: float, n: int) -> tuple[float, float]:
    delta = p01 - p10
    half = Z95 * math.sqrt(max(0.0, p10 + p01 - delta**2) / n)
    return max(-1.0, delta - half), min(1.0, delta + half)


def _newcombe(n11: int, n10: int, n01: int, n00: int) -> tuple[float, float]:
    n = n11 + n10 + n01 + n00
    p_a, p_b = (n11 + n10) / n, (n11 + n01) / n
    (low_a, high_a), (low_b, high_b) = wilson(n11 + n10, n), wilson(n11 + n01, n)
    phi = _corrected_phi(n11, n10, n01, n00)
    delta = (n01 - n10) / n
    return (
        max(-1.0, delta - _add_squares(p_b - low_b, high_a - p_a, phi)),
        min(1.0, delta + _add_squares(high_b - p_b, p_a - low_a, phi)),
    )


def _add_squares(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one**2 - 2 * phi * one * other + other**2))


def _corrected_phi(n11: int, n10: int, n01: int, n00: int) -> float:
    n = n11 + n10 + n01 + n00
    margins = (n11 + n10) * (n01 + n00) * (n11 + n01) * (n10 + n00)
    if margins == 0:
        return 0.0
    product = float(n11 * n00 - n10 * n01)
    if product > 0:
        product = max(0.0, product - n / 2)
    return product / math.sqrt(margins)
