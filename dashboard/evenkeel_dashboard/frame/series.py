"""Prepares series for charts: every step of the range is present, so that gaps are visible."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pandas as pd

from evenkeel.times import to_datetime
from evenkeel_dashboard.draw.charts import ShadedPeriod
from evenkeel_dashboard.draw.window import Window

if TYPE_CHECKING:
    from collections.abc import Mapping


def fill_gaps(frame: pd.DataFrame, columns: Sequence[str], window: Window) -> pd.DataFrame:
    """Return the columns with one row per step of the window; rows missing in the frame are empty.

    An empty frame may lack the columns, because the client leaves them out.
    Numbers become floats, NaN if missing; `bucket` becomes naive UTC, as the window.
    """
    step_ms = window.step_s * 1000
    first_ms = window.from_ms // step_ms * step_ms
    steps = pd.to_datetime(range(first_ms, window.to_ms, step_ms), unit="ms").astype(
        "datetime64[ns]"
    )
    if frame.empty:
        return pd.DataFrame({"bucket": steps, **dict.fromkeys(columns, float("nan"))})
    buckets = pd.to_datetime(frame["bucket"], utc=True).dt.tz_localize(None)
    filled = frame.assign(bucket=buckets.astype("datetime64[ns]")).set_index("bucket")
    filled = filled.loc[~filled.index.duplicated(), list(columns)].reindex(steps).astype("float64")
    filled.index.name = "bucket"
    return filled.reset_index()


def firing_periods(alerts: Sequence[Mapping[str, Any]], window: Window) -> list[ShadedPeriod]:
    """Return the periods in which alerts fired, cut to the window; skip those that only pended."""
    begin, end = naive_utc(window.from_ms), naive_utc(window.to_ms)
    periods = []
    for alert in alerts:
        if alert["fired_ms"] is None:
            continue
        start = max(naive_utc(alert["fired_ms"]), begin)
        stop = end if alert["ended_ms"] is None else min(naive_utc(alert["ended_ms"]), end)
        if start < stop:
            severity = str(alert["severity"])
            periods.append(
                ShadedPeriod(start, stop, f"{severity} firing", is_urgent=severity == "page")
            )
    return periods


def naive_utc(unix_ms: int) -> datetime:
    """Return Unix milliseconds as a naive UTC time, as in the frames."""
    return to_datetime(unix_ms * 10**6).replace(tzinfo=None)
