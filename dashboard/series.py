"""Series made ready to draw: every step of the range present, so that a gap is seen as a gap."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pandas as pd

from dashboard.figures import Period
from dashboard.selection import Window

if TYPE_CHECKING:
    from collections.abc import Mapping


def fill_gaps(frame: pd.DataFrame, columns: Sequence[str], window: Window) -> pd.DataFrame:
    """Return the columns with one row a step of the window, empty where the frame has none.

    A frame of no rows need not have the columns: the client leaves them out then.
    Numbers become floats with NaN for no value; `bucket` becomes naive UTC, the window's own zone.
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


def firing_periods(alerts: Sequence[Mapping[str, Any]], window: Window) -> list[Period]:
    """Return when alerts fired, cut to the window; those that never fired are left out."""
    begin, end = _naive_ms(window.from_ms), _naive_ms(window.to_ms)
    periods = []
    for alert in alerts:
        if alert["fired_ms"] is None:
            continue
        start = max(_naive_ms(alert["fired_ms"]), begin)
        stop = end if alert["ended_ms"] is None else min(_naive_ms(alert["ended_ms"]), end)
        if start < stop:
            periods.append(Period(start, stop, f"{alert['slo']} ({alert['severity']})"))
    return periods


def _naive_ms(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, tz=UTC).replace(tzinfo=None)
