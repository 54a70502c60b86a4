"""Reads the data of the health page for one window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from evenkeel_dashboard.draw.wasted import WastedTokens, wasted_tokens
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.burns import burns_later
from evenkeel_dashboard.frame.contents import newest_later, num_requests, range_of
from evenkeel_dashboard.frame.selection import Selection, slices
from evenkeel_dashboard.frame.series import fill_gaps

_HERE = Path(__file__).parent
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
    """The data of one window.

    Attributes:
        summary: The headline numbers; `previous` are those of the previous window.
        series: One row per step, including empty steps.
        slos: The newest evaluation of each SLO.
        burns: Burn rate over the window by SLO, as a share of the alerting rate.
        alerts: Alerts that fired or were pending.
        burned_ms: By SLO, when it last burned its budget faster than it lasts.
        wasted: Tokens computed for nothing, by cause.
        newest_ms: When the newest request arrived; None without requests.
        window: The window as read; steps are longer if the rollup was used.
    """

    summary: dict[str, Any]
    previous: dict[str, Any]
    series: pd.DataFrame
    slos: list[dict[str, Any]]
    burns: dict[str, list[float | None]]
    alerts: list[dict[str, Any]]
    burned_ms: dict[str, int | None]
    wasted: WastedTokens
    newest_ms: int | None
    window: Window


def health_later(selection: Selection, window: Window) -> Callable[[], HealthData]:
    """Start reading one window.

    Raises:
        StoreError: If the store is unreachable or refuses a query, now or on return.
    """
    stored = num_requests(selection, window)
    window = window.sized(stored)
    # Start all queries before waiting for the first.
    measured, newest = _measured_later(selection, window), newest_later(selection, window)
    slos, burns = (
        reading.rows_later(reading.SHARED / "slo_now.sql", range_of(window)),
        burns_later(window),
    )
    alerts = reading.rows_later(reading.SHARED / "alerts.sql", range_of(window))
    burned = reading.rows_later(_HERE / "health_recovery.sql", {"to_ms": window.to_ms})
    sliced = {**range_of(window), **selection.filters(), **slices(stored, window)}
    wasted = reading.rows_later(reading.SHARED / "wasted_tokens.sql", sliced)

    def read() -> HealthData:
        rows, shown = measured(), window
        if window.is_only_rolled(len(rows), stored):
            shown = window.rolled()
            rows = _measured_later(selection, shown)()
        steps = pd.DataFrame([row for row in rows if row["bucket"]])
        if not steps.empty:
            steps["bucket"] = pd.to_datetime(steps["bucket"], unit="s", utc=True)
        return HealthData(
            summary=_total(rows, is_now=True),
            previous=_total(rows, is_now=False),
            series=fill_gaps(steps, SERIES_COLUMNS, shown),
            slos=slos(),
            burns=burns(),
            alerts=alerts(),
            burned_ms={row["slo"]: row["burned_ms"] for row in burned()},
            wasted=wasted_tokens(wasted()[0]),
            newest_ms=newest(),
            window=shown,
        )

    return read


def _measured_later(selection: Selection, window: Window) -> reading.Rows:
    """Start reading a range and the previous one as rows of `health`, from the tables that fit."""
    parameters = {
        **range_of(window),
        **selection.filters(),
        "step_s": window.step_s,
        "data_from_ms": selection.data_from_ms or 0,
    }
    if not window.is_long:
        return reading.rows_later(_HERE / "health.sql", parameters)
    rolled = {**parameters, "before_ms": window.before().from_ms}
    by = "1h" if window.step_s % 3600 == 0 else "1m"
    counts = reading.rows_later(_HERE / "health_counts_1m.sql", rolled)
    percentiles = reading.rows_later(_HERE / f"health_percentiles_{by}.sql", rolled)

    def joined() -> list[dict[str, Any]]:
        found = {(row["is_now"], row["bucket"]): row for row in percentiles()}
        return [row | found.get((row["is_now"], row["bucket"]), {}) for row in counts()]

    return joined


def _total(rows: Sequence[dict[str, Any]], *, is_now: bool) -> dict[str, Any]:
    """Return the row of a whole range; a range without requests gets a row without values."""
    nothing = {**dict.fromkeys(SUMMARY_COLUMNS), "num_requests": 0}
    return next((r for r in rows if bool(r["is_now"]) == is_now and not r["bucket"]), nothing)
