"""Finds where a per-minute series changed its level, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenkeel.errors import MissingPartError
from evenkeel.extras import how_to_install

# PELT with a radial basis kernel stays quiet on autocorrelated noise; see bench/slo.py.
PENALTY = 10.0
MIN_SIZE = 5


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change to a new level at `index`; both levels are medians."""

    index: int
    before: float
    after: float

    @property
    def effect_ratio(self) -> float | None:
        """After / before − 1; None where it was 0 before."""
        return None if self.before == 0 else self.after / self.before - 1


def find_changes(values: Sequence[float], min_effect_ratio: float = 0.0) -> tuple[ChangePoint, ...]:
    """Return the changes of level, oldest first.

    Uses PELT (`ruptures`, kernel rbf, penalty 10, at least 5 values per level). Changes smaller
    than `min_effect_ratio` of the level before are dropped. A series of fewer than ten values, or
    without any variation, has none.

    Raises:
        MissingPartError: If `ruptures` is not installed.
    """
    series = np.asarray(values, dtype=float)
    if len(series) < 2 * MIN_SIZE or np.ptp(series) == 0:
        return ()
    try:
        import ruptures
    except ImportError as error:
        raise MissingPartError(
            "change points need the module 'ruptures'; "
            f"install it with: {how_to_install('collector')}"
        ) from error
    ends = (
        ruptures.KernelCPD(kernel="rbf", min_size=MIN_SIZE)
        .fit(series[:, None])
        .predict(pen=PENALTY)
    )
    bounds = [0, *ends]
    changes = []
    for start, at, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
        change = ChangePoint(
            at, float(np.median(series[start:at])), float(np.median(series[at:end]))
        )
        effect = change.effect_ratio
        if effect is None or abs(effect) >= min_effect_ratio:
            changes.append(change)
    return tuple(changes)
