"""The demo's figures, read back from the store."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from evenkeel.errors import CannotMeasureError
from evenkeel.store import Store
from evenkeel_demo.traffic import ClientCounters, DemoPhase

_HERE = Path(__file__).parent
# The objective of slos.yaml.
OBJECTIVE_S = 1.0
QUANTILES = ("p50", "p95", "p99")
# Requests become queryable 3 s after the runtime sends them, later on a busy machine.
SETTLE_S = 4.0
SETTLED_WITHIN_S = 60.0


def measure(store: Store, since: datetime) -> dict[str, Any]:
    """Return the figures of all requests stored since a time; missing values are None.

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


def measure_settled(store: Store, since: datetime, num_sent: int) -> dict[str, Any]:
    """Return the figures once all requests sent are stored, or no more arrive.

    Raises:
        CannotMeasureError: If nothing was stored.
        StoreError: If the store does not answer.
    """
    deadline_s, num_before = time.monotonic() + SETTLED_WITHIN_S, 0
    while True:
        time.sleep(SETTLE_S)
        figures = measure(store, since)
        num_stored = figures["requests"]
        if num_stored >= num_sent or num_stored == num_before or time.monotonic() > deadline_s:
            return figures
        num_before = num_stored


def compare_crowds(counters: ClientCounters) -> dict[str, dict[str, Any]]:
    """Return how chats fared during the two crowds: without control and with it.

    Returns:
        For `watching` and `acting`: the number of chats, the ratio with a first token within
        OBJECTIVE_S, and percentiles of TTFT in seconds; None without chats. And the median of the
        long prompts that crowd them; None without any.
    """
    chats = describe_chats(counters)
    return {
        mode: chats[phase]
        | {"long_ttft_p50_s": quantile(sorted(counters.long_ttft_s_by_phase.get(phase, [])), 0.5)}
        for mode, phase in (("watching", DemoPhase.CROWDED), ("acting", DemoPhase.CONTROLLED))
    }


def describe_chats(counters: ClientCounters) -> dict[DemoPhase, dict[str, Any]]:
    """Return how the chats that began in each phase fared; the same values as of a crowd."""
    return {phase: _chats(counters.ttft_s_by_phase.get(phase, [])) for phase in DemoPhase}


def _chats(ttft_s: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(ttft_s)
    num_in_time = sum(value <= OBJECTIVE_S for value in ordered)
    return {
        "chats": len(ordered),
        "in_time_ratio": num_in_time / len(ordered) if ordered else None,
        "ttft_p50_s": quantile(ordered, 0.50),
        "ttft_p95_s": quantile(ordered, 0.95),
    }


def quantile(ordered: Sequence[float], q: float) -> float | None:
    """Return a quantile of ascending values; None if there are none."""
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)] if ordered else None


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
