"""Reads what the health page shows of one window: the queries it takes, in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashboard import reading
from dashboard.selection import Selection, Window
from dashboard.series import fill_gaps

if TYPE_CHECKING:
    import pandas as pd

MAX_BURN_POINTS = 60
PHASE_COLUMNS = ("queue_mean_s", "prefill_mean_s", "decode_mean_s")
SERIES_COLUMNS = (
    "ok_per_s",
    "errors_per_s",
    "aborted_per_s",
    "shed_per_s",
    "output_tokens_per_s",
    *(f"{name}_{p}_s" for name in ("ttft", "itl_p99", "tpot") for p in ("p50", "p95", "p99")),
)


@dataclass(frozen=True, slots=True)
class HealthData:
    """What was measured in a window.

    Attributes:
        summary: The headline numbers; `previous` are those of the window before.
        series: One row a step, gaps included.
        slos: The newest evaluation of each SLO.
        burns: Burn over the window by SLO, as a share of what alerts.
        alerts: Alerts that fired or were pending.
        window: As it was read: its steps are longer where the rollup was.
    """

    summary: dict[str, Any]
    previous: dict[str, Any]
    series: pd.DataFrame
    slos: list[dict[str, Any]]
    burns: dict[str, list[float | None]]
    alerts: list[dict[str, Any]]
    window: Window


def read_health(selection: Selection, window: Window) -> HealthData:
    """Read one window.

    Raises:
        StoreError: If the store is gone or refuses a query.
    """
    window = window.sized(num_requests(selection, window))
    parameters = {**range_of(window), **selection.filters()}
    # All are asked for before the first is waited for.
    summary, previous = _summary(window, selection), _summary(window.before(), selection)
    series = _series(window, {**parameters, "step_s": window.step_s})
    slos, burns = reading.rows_later("slo_now", range_of(window)), burns_later(window)
    alerts = reading.rows_later("alerts", range_of(window))
    return HealthData(
        summary=summary(),
        previous=previous(),
        series=series(),
        slos=slos(),
        burns=burns(),
        alerts=alerts(),
        window=window,
    )


def range_of(window: Window) -> dict[str, str | int]:
    """Return the query parameters of a window."""
    return {"from_ms": window.from_ms, "to_ms": window.to_ms}


def num_requests(selection: Selection, window: Window) -> float:
    """Return about how many requests a window holds: what decides how it is read."""
    # To the minute, so that a live page asks once a minute.
    begin, end = window.from_ms // 60_000 * 60_000, window.to_ms // 60_000 * 60_000
    parameters: reading.Parameters = {
        "from_ms": begin,
        "to_ms": end,
        "model": selection.model,
    }
    return float(reading.rows_later("count_in_range", parameters)()[0]["num_requests"])


def burns_later(window: Window) -> Callable[[], dict[str, list[float | None]]]:
    """Begin to read each SLO's burn over a window, as a share of what alerts."""
    step_s = max(1, round(window.duration_s / MAX_BURN_POINTS))
    found = reading.rows_later("slo_history", {**range_of(window), "step_s": step_s})

    def burns() -> dict[str, list[float | None]]:
        by_slo: dict[str, list[float | None]] = {}
        for row in found():
            by_slo.setdefault(row["slo"], []).append(row["alert_share"])
        return by_slo

    return burns


def _summary(window: Window, selection: Selection) -> Callable[[], dict[str, Any]]:
    parameters = {**range_of(window), **selection.filters()}
    suffix = "_1m" if window.is_long else ""
    both = [
        reading.rows_later(f"{name}{suffix}", parameters)
        for name in ("health_summary", "phase_summary")
    ]
    return lambda: both[0]()[0] | both[1]()[0]


def _series(window: Window, parameters: dict[str, Any]) -> Callable[[], pd.DataFrame]:
    suffix = "_1m" if window.is_long else ""
    series = reading.frame_later(f"health_series{suffix}", parameters)
    phases = reading.frame_later(f"phase_series{suffix}", parameters)

    def joined() -> pd.DataFrame:
        filled = fill_gaps(series(), SERIES_COLUMNS, window)
        return filled.merge(fill_gaps(phases(), PHASE_COLUMNS, window), on="bucket")

    return joined
