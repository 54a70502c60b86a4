"""Standard errors of a mean whose items come in groups."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from evals.stats.inputs import check_list, check_numbers
from evenkeel.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ClusteredMean:
    """A mean with three standard errors.

    Attributes:
        mean: Mean of the scores.
        se_iid: s / √n, s with n − 1; as if items were independent. None below 2 items.
        se_cr0: √(Σ over clusters of (Σ residuals)²) / n; None below 2 clusters.
        se_cr1: se_cr0 · √(G / (G − 1)), G clusters; None below 2 clusters.
    """

    mean: float
    se_iid: float | None
    se_cr0: float | None
    se_cr1: float | None


def clustered_mean(scores: Sequence[float], clusters: Sequence[Hashable]) -> ClusteredMean:
    """Return the mean and its cluster-robust errors: questions on one text are not independent.

    Source: Liang and Zeger 1986; Miller 2024, "Adding Error Bars to Evals", section 2.2. The
    residuals of a single cluster sum to 0, so no error can be learned from it: None, not 0.

    Raises:
        ConfigurationError: If there are no scores, or not one cluster a score.
    """
    values = check_numbers("scores", scores)
    names = check_list("clusters", clusters)
    if len(names) != len(values):
        raise ConfigurationError(
            f"scores has {len(values)} values and clusters {len(names)}, expected one each"
        )
    if any(isinstance(name, list | dict) or name is None for name in names):
        raise ConfigurationError("clusters must be strings or numbers, one a score")
    n, mean = len(values), float(np.mean(values))
    sums: dict[Hashable, float] = {}
    for name, residual in zip(names, values - mean, strict=True):
        sums[name] = sums.get(name, 0.0) + float(residual)
    se_iid = float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else None
    if len(sums) < 2:
        return ClusteredMean(mean, se_iid, None, None)
    cr0 = math.sqrt(math.fsum(total**2 for total in sums.values())) / n
    return ClusteredMean(mean, se_iid, cr0, cr0 * math.sqrt(len(sums) / (len(sums) - 1)))
