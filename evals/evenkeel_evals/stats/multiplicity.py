"""Corrections of p-values for multiple testing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import false_discovery_control

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.inputs import Floats, check_fraction, check_numbers


@dataclass(frozen=True, slots=True)
class Adjusted:
    """Result of one correction: hypotheses rejected at alpha and adjusted p-values, in order."""

    reject: list[bool]
    adjusted: list[float]


@dataclass(frozen=True, slots=True)
class Multiplicity:
    """Bonferroni and Holm control family-wise error, Benjamini-Hochberg false discoveries."""

    bonferroni: Adjusted
    holm: Adjusted
    fdr_bh: Adjusted


def multiplicity(p: Sequence[float], alpha: float) -> Multiplicity:
    """Correct a family of p-values in three ways; a hypothesis is rejected if adjusted ≤ alpha.

    Bonferroni: min(1, m p). Holm (1979, Scand. J. Stat. 6:65): the i-th smallest times m − i + 1,
    never less than the one before. Benjamini and Hochberg (1995): scipy's.

    Raises:
        ConfigurationError: If the family is empty or a p is outside [0, 1].
    """
    alpha, values = check_fraction("alpha", alpha), check_numbers("p", p)
    if ((values < 0) | (values > 1)).any():
        raise ConfigurationError(f"p contains {values[(values < 0) | (values > 1)][0]}, not in 0-1")

    def adjusted(family: Floats) -> Adjusted:
        return Adjusted([bool(a <= alpha) for a in family], [float(a) for a in family])

    return Multiplicity(
        bonferroni=adjusted(np.minimum(1.0, len(values) * values)),
        holm=adjusted(_holm(values)),
        fdr_bh=adjusted(false_discovery_control(values, method="bh")),
    )


def holm(p: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values in the given order; empty for an empty family."""
    return [float(a) for a in _holm(np.asarray(p, dtype=float))]


def _holm(values: Floats) -> Floats:
    order = np.argsort(values, kind="stable")
    factors = np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(values[order] * factors))
    return adjusted
