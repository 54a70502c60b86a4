"""What the demo measured, read back from the store as any reader would."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Any

from evenkeel.errors import CannotMeasureError
from evenkeel.store import Store

_HERE = Path(__file__).parent
QUANTILES = ("p50", "p95", "p99")


def measure(store: Store, since: datetime) -> dict[str, Any]:
    """Return the figures of all requests stored since a time; None where there is no value.

    Raises:
        CannotMeasureError: If nothing was stored.
        StoreError: If the store does not answer.
    """
    row = store.rows(_HERE / "demo_report.sql", {"since": since})[0]
    if row["requests"] == 0:
        raise CannotMeasureError(f"no request was stored since {since:%H:%M:%S} UTC")
    for name in ("ttft_s", "itl_s"):
        row[name] = dict(zip(QUANTILES, map(_finite, row[name] or [None] * 3), strict=True))
    return row


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
