"""The paired permutation test, by random swaps of A and B."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.inputs import check_pairs, snap
from evenkeel_evals.stats.sign_flips import sign_flip_tails


@dataclass(frozen=True, slots=True)
class PermutationTest:
    """Mean difference B − A and its two-sided permutation p-value."""

    delta: float
    p_two_sided: float


def permutation_paired(a: Sequence[float], b: Sequence[float]) -> PermutationTest:
    """Test whether the mean of B differs from that of A on the same items.

    p = P(|Σ ± d| ≥ |Σ d|) over all 2^n sign patterns of the differences d, computed as
    `sign_flip_tails` describes.

    Raises:
        ConfigurationError: If a and b are empty, of different lengths, or too large to add.
    """
    first, second = check_pairs("a", a, "b", b)
    scale = float(max(np.abs(first).max(), np.abs(second).max()))
    with np.errstate(over="ignore", invalid="ignore"):
        differences, delta = second - first, float(second.mean() - first.mean())
    if not (np.isfinite(differences).all() and math.isfinite(delta)):
        raise ConfigurationError(f"values up to {scale:g} are too large to add")
    tails = sign_flip_tails(snap(differences, scale))
    return PermutationTest(delta=delta, p_two_sided=min(1.0, 2 * min(tails)))
