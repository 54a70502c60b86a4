"""Reads what the health page shows of one window: the queries it takes, in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dashboard import reading
from dashboard.contents import num_requests, range_of
from dashboard.selection import Selection, Window
from dashboard.series import fill_gaps

MAX_BURN_POINTS = 60
SERIES_COLUMNS = (
    "ok_per_s",
    "errors_per_s",
    "aborted_per_s",
    "shed_per_s",
    "output_tokens_per_s",
    "queue_mean_s",
    "prefill_mean_s",
    "decode_mean_s",
    *(f"{name}_{p}_s" for name in ("ttft", "itl_p99", "tpot") for p in ("p50", "p95", "p99")),
)
SUMMARY_COLUMNS = (
    "num_requests",
    "newest_ms",
    "requests_per_s",
    "error_ratio",
    "aborted_ratio",
    "shed_ratio",
    "cached_token_ratio",
    "acceptance_rate",
    *SERIES_COLUMNS,
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


def health_later(selection: Selection, window: Window) -> Callable[[], HealthData]:
    """Begin to read one window.

    Raises:
        StoreError: If the store is gone or refuses a query, also from what is returned.
    """
    window = window.sized(num_requests(selection, window))
    # All are asked for before the first is waited for.
    measured = _measured_later(selection, window)
    slos, burns = reading.rows_later("slo_now", range_of(window)), burns_later(window)
    alerts = reading.rows_later("alerts", range_of(window))

    def read() -> HealthData:
        rows = measured()
        steps = pd.DataFrame([row for row in rows if row["bucket"]])
        if not steps.empty:
            steps["bucket"] = pd.to_datetime(steps["bucket"], unit="s", utc=True)
        return HealthData(
            summary=_total(rows, is_now=True),
            previous=_total(rows, is_now=False),
            series=fill_gaps(steps, SERIES_COLUMNS, window),
            slos=slos(),
            burns=burns(),
            alerts=alerts(),
            window=window,
        )

    return read


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


def _measured_later(selection: Selection, window: Window) -> reading.Rows:
    """Begin to read a range and the one before it: rows of `health`, however they are read."""
    parameters = {**range_of(window), **selection.filters(), "step_s": window.step_s}
    if not window.is_long:
        return reading.rows_later("health", parameters)
    rolled = {**parameters, "before_ms": window.before().from_ms}
    by = "1h" if window.step_s % 3600 == 0 else "1m"
    counts = reading.rows_later("health_counts_1m", rolled)
    percentiles = reading.rows_later(f"health_percentiles_{by}", rolled)

    def joined() -> list[dict[str, Any]]:
        found = {(row["is_now"], row["bucket"]): row for row in percentiles()}
        return [row | found.get((row["is_now"], row["bucket"]), {}) for row in counts()]

    return joined


def _total(rows: Sequence[dict[str, Any]], *, is_now: bool) -> dict[str, Any]:
    """Return the row of a whole range; one without requests has none, and no values."""
    nothing = {**dict.fromkeys(SUMMARY_COLUMNS), "num_requests": 0}
    return next((r for r in rows if bool(r["is_now"]) == is_now and not r["bucket"]), nothing)
