"""Reads each SLO's burn rate over a window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evenkeel_dashboard.draw.charts import time_ms
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.contents import range_of

MAX_BURN_POINTS = 60


def burns_later(window: Window) -> Callable[[], dict[str, list[float | None]]]:
    """Start reading each SLO's burn rate over a window, as a share of the alerting rate."""
    step_s = max(1, round(window.duration_s / MAX_BURN_POINTS))
    found = reading.rows_later(
        reading.SHARED / "slo_history.sql", {**range_of(window), "step_s": step_s}
    )

    return lambda: burns_by_step(found(), window, step_s)


def burns_by_step(
    rows: Sequence[Mapping[str, Any]], window: Window, step_s: int
) -> dict[str, list[float | None]]:
    """Return the burn rates of each SLO, one per step of the window; None for a step without any.

    Args:
        rows: Of the query `slo_history`.
        window: The range.
        step_s: Width of a step.
    """
    step_ms = step_s * 1000
    first = window.from_ms // step_ms
    num_steps = -(-window.to_ms // step_ms) - first
    by_slo: dict[str, list[float | None]] = {}
    for row in rows:
        burns = by_slo.setdefault(row["slo"], [None] * num_steps)
        burns[time_ms(row["bucket"]) // step_ms - first] = row["alert_share"]
    return by_slo
