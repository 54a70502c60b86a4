"""What measured step times and speed-ups mean, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel_dashboard.draw import wording

Row = Mapping[str, Any]

STRAGGLER_FACTOR = 4
"""As in engine_step_spread.sql."""
# An engine this much slower than the others at the same work stands out.
_SLOW_FACTOR = 1.25


def against_others(rows: Sequence[Row]) -> list[str]:
    """Return for each engine how it compares with the others at the same work; – for a single one.

    `against_usual` of a row is its step time over the median of all engines for the same batch.
    """
    found = []
    for row in rows:
        others = [float(other["against_usual"]) for other in rows if other is not row]
        if not others or not sum(others):
            found.append("–")
            continue
        ratio = float(row["against_usual"]) / (sum(others) / len(others))
        found.append(
            f"slower by {wording.percent(ratio - 1)}" if ratio >= _SLOW_FACTOR else "as the others"
        )
    return found


def gain_words(gain: Row) -> str:
    """Return what a measured speed-up means: it pays, it costs, or neither is shown yet."""
    if gain["lower"] > 1:
        return "pays"
    return "costs" if gain["upper"] < 1 else "no difference shown yet"
