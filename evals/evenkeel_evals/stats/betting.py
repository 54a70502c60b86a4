"""Anytime-valid evidence by betting, which may be checked after every pair."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NUM_STAKES = 20


def anytime_p(values: Sequence[float], mean: float) -> float:
    """Return a p-value against "the mean is at most `mean`", valid at any stopping time.

    A bettor puts the share λ of the capital on each value: e = Π(1 + λ(x − mean)), averaged over a
    grid of λ. Under the hypothesis the capital is a supermartingale, so the probability that it
    ever reaches 1/α is at most α (Ville); p = 1 / its maximum so far. Only the range is assumed.
    Source: Waudby-Smith and Ramdas 2024, J. R. Stat. Soc. B 86:1.

    Args:
        values: In order of arrival, each from −1 to 1.
        mean: The hypothesised mean, between −1 and 1, exclusive.
    """
    if not len(values):
        return 1.0
    largest = 1 / (1 + mean)
    stakes = largest * (np.arange(NUM_STAKES) + 0.5) / NUM_STAKES
    gains = np.log1p(stakes[:, None] * (np.asarray(values, dtype=float)[None, :] - mean))
    paths = np.cumsum(gains, axis=1)
    peak = paths.max(axis=0)
    capital = peak + np.log(np.exp(paths - peak).mean(axis=0))
    return float(min(1.0, np.exp(-capital.max())))
