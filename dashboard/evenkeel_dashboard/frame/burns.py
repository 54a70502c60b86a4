"""Reads each SLO's burn rate over a window."""

from __future__ import annotations

from collections.abc import Callable

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

    def burns() -> dict[str, list[float | None]]:
        by_slo: dict[str, list[float | None]] = {}
        for row in found():
            by_slo.setdefault(row["slo"], []).append(row["alert_share"])
        return by_slo

    return burns
