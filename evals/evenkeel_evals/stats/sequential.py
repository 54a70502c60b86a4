"""Anytime-valid evidence, which may be checked after every item: e-values, confidence sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import betaln

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.inputs import (
    check_count,
    check_fraction,
    check_not_negative,
    check_positive,
)


@dataclass(frozen=True, slots=True)
class DiscordantEvidence:
    """Evidence against "discordant pairs favour neither side".

    Attributes:
        log_e: Natural logarithm of the e-value.
        e: The e-value; None if it overflows a double.
        anytime_p: min(1, 1/e), valid at any stopping time by Ville's inequality.
    """

    log_e: float
    e: float | None
    anytime_p: float


@dataclass(frozen=True, slots=True)
class Boundary:
    """The bound on a centred sum."""

    bound: float


def evalue_discordant(k: int, n: int, prior: float | Sequence[float]) -> DiscordantEvidence:
    """Return the evidence against a fair coin if k of n discordant pairs favour one side.

    e = ∫ Beta(θ; a, b) θ^k (1 − θ)^(n − k) dθ / 2^−n = 2^n B(a + k, b + n − k) / B(a, b): the
    likelihood ratio mixed over a Beta prior, a martingale under H0. Source: Robbins 1970, Ann.
    Math. Stat. 41:1397; Ramdas et al. 2023, Statistical Science 38:576.

    Args:
        k: Discordant pairs that favour one side.
        n: Discordant pairs so far; 0 means no evidence, e = 1.
        prior: c for the symmetric Beta(c, c), 1 being uniform, or [a, b].

    Raises:
        ConfigurationError: If k is not in 0..n or the prior is not above 0.
    """
    n, k = check_count("n", n), check_count("k", k)
    if k > n:
        raise ConfigurationError(f"k is {k}, expected at most n = {n}")
    a, b = _beta_parameters(prior)
    log_e = float(betaln(a + k, b + n - k) - betaln(a, b)) + n * math.log(2)
    return DiscordantEvidence(
        log_e=log_e,
        e=math.exp(log_e) if log_e < 709 else None,
        anytime_p=min(1.0, math.exp(min(0.0, -log_e))),
    )


def _beta_parameters(prior: float | Sequence[float]) -> tuple[float, float]:
    if isinstance(prior, list | tuple):
        if len(prior) != 2:
            raise ConfigurationError(f"prior has {len(prior)} values, expected one or [a, b]")
        return check_positive("prior[0]", prior[0]), check_positive("prior[1]", prior[1])
    symmetric = check_positive("prior", prior)
    return symmetric, symmetric


def confidence_sequence(alpha: float, rho: float, v: float) -> Boundary:
    """Return the two-sided normal-mixture boundary at intrinsic time v.

    bound = √((v + ρ) log((v + ρ) / (ρ α²))): a sum of centred, 1-sub-Gaussian steps with variance
    process v leaves ±bound at any time with probability at most α. Divide by the number of items
    for a confidence sequence of the mean. ρ sets where it is tightest. Source: Howard, Ramdas,
    McAuliffe and Sekhon 2021, Ann. Stat. 49:1055, equation 14 (Robbins 1970).

    Raises:
        ConfigurationError: If alpha is not a fraction, rho not above 0, or v below 0.
    """
    alpha, rho = check_fraction("alpha", alpha), check_positive("rho", rho)
    v = check_not_negative("v", v)
    return Boundary(math.sqrt((v + rho) * (math.log1p(v / rho) - 2 * math.log(alpha))))
