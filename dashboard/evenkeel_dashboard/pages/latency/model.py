"""The latency page's measures, definitions, cohorts, bins and clicked point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evenkeel.engines.reported import silent_sources
from evenkeel.token_latency import ZERO_GAPS
from evenkeel_dashboard.draw.window import Window

Row = Mapping[str, Any]

# The column of each measure, if it has another name.
_FIELDS = {"itl": "itl_p99_s"}

DEFINITIONS = {
    "ours": "evenkeel",
    "vllm": "vLLM, benchmark",
    "vllm_api": "vLLM, API fields",
    "mlperf": "MLPerf",
    "otel": "OpenTelemetry",
    "guidellm": "guidellm",
}
DIMENSIONS = {
    "": "all requests",
    "model": "model",
    "tenant": "tenant",
    "slo_class": "SLO class",
    "prompt": "prompt version",
    "finish_reason": "finish reason",
    "route": "route",
}
PERCENTILES = {"p95": "p95", "p50": "p50", "p99": "p99"}
BINS_A_DECADE = 10
MAX_LINES = 7
# Shorter values count as a microsecond, as in the heatmap's queries.
_LOWEST_BIN = -6 * BINS_A_DECADE

_ARRIVAL = "arrival → first token, queue included"
_DECODE = "(end − first token) / (output tokens − 1)"
_MEANINGS = {
    ("ttft", "vllm_api"): "first scheduled → first token: the queue is left out",
    ("ttft", "otel"): f"{_ARRIVAL}; failed and aborted requests left out",
    ("itl", "vllm"): "every gap between two emissions, of all requests together",
    ("itl", "vllm_api"): "every gap between two emissions, of all requests together",
    ("itl", "mlperf"): "has no ITL: its TPOT",
    ("itl", "otel"): "has no ITL: its time per output token, without failed requests",
    ("itl", "guidellm"): "(last − first token) / (output tokens − 1), one value per request",
    ("tpot", "ours"): "(last − first token) / (output tokens − 1)",
    ("tpot", "vllm"): f"{_DECODE}; 0 for answers of one token",
    ("tpot", "vllm_api"): _DECODE,
    ("tpot", "mlperf"): _DECODE,
    ("tpot", "otel"): f"{_DECODE}; failed and aborted requests left out",
    ("tpot", "guidellm"): "(end − arrival) / output tokens: the first token's wait is in it",
}
_OURS = {
    "ttft": _ARRIVAL,
    "itl": f"each request's own p99 gap per token; {ZERO_GAPS}",
    "stall": "longest gap between two emissions of a request",
    "queue": "arrival → first scheduled",
    "e2e": "arrival → end",
}


@dataclass(frozen=True, slots=True)
class Picked:
    """The clicked point or bin of a chart, which selects the requests behind it.

    Attributes:
        from_ms: Start of its step, Unix milliseconds; `to_ms` is the end.
        low_s: Lower bound, inclusive; `high_s` is the upper bound, exclusive.
        near_s: Requests nearest to this value come first.
        cohort: Only this cohort; "" for all.
        view: The name of the view whose values these are; "" for any.
    """

    from_ms: int
    to_ms: int
    low_s: float
    high_s: float
    near_s: float
    cohort: str = ""
    view: str = ""

    def to_param(self) -> str:
        """Return it as a URL parameter."""
        numbers = f"{self.low_s:.6g}~{self.high_s:.6g}~{self.near_s:.6g}"
        view = f"{self.view}:" if self.view else ""
        return f"{view}{self.from_ms}~{self.to_ms}~{numbers}~{self.cohort}"

    @classmethod
    def from_param(cls, text: str) -> Picked | None:
        """Parse a value written by `to_param`; None if it is invalid."""
        parts = text.split("~", 5)
        if len(parts) != 6:
            return None
        view, _, first = parts[0].rpartition(":")
        try:
            begin, end = int(first), int(parts[1])
            low, high, near = (float(part) for part in parts[2:5])
        except ValueError:
            return None
        is_sane = 0 <= begin < end < 1 << 53 and all(map(math.isfinite, (low, high, near)))
        return cls(begin, end, low, high, near, parts[5], view) if is_sane else None


def picked_of(text: str, view: str) -> Picked | None:
    """Return what the URL says was picked; None if it was in another view, of other values."""
    picked = Picked.from_param(text)
    return picked if picked is not None and picked.view in ("", view) else None


def step_shown(begin_ms: int, step_s: int, window: Window) -> tuple[int, int]:
    """Return the part of a step within the range: only its requests were counted and drawn."""
    return max(begin_ms, window.from_ms), min(begin_ms + step_s * 1000, window.to_ms)


@dataclass(frozen=True, slots=True)
class Heat:
    """Requests by step and bin: `counts[i][j]` for bin i and step j; None if there are none."""

    steps: Sequence[datetime]
    bins: Sequence[int]
    counts: Sequence[Sequence[float | None]]


NOTHING_ABOVE_S = 1e9
"""An upper bound above any latency."""


def meaning(measure: str, definition: str) -> str:
    """Return a definition of a measure in words."""
    return _MEANINGS.get((measure, definition), _OURS.get(measure, ""))


def missing_words(sources: Sequence[str], measure: str) -> str:
    """Return why no request of a range has a measure, and what to do.

    Args:
        sources: Who sent the requests, as in `requests.source`.
        measure: The measure.
    """
    if not sources:
        return (
            "Choose a longer range, or set the filters to all. What engines count themselves is "
            "on the Engine page."
        )
    silent = silent_sources(sources, _FIELDS.get(measure, f"{measure}_s"))
    if len(silent) < len(sources):
        return "Choose a longer range, or set the filters to all."
    return f"It is not reported by {' and '.join(silent)}, which sent this range's requests."


def differs(measure: str, definition: str) -> bool:
    """Return whether a tool defines a measure differently than we do."""
    return definition != "ours" and (
        (measure, definition) in _MEANINGS or (definition == "otel" and measure in _OURS)
    )


def one_in(num_requests: float, limit: int) -> int:
    """Return n such that reading one in n requests reads about `limit` at most."""
    return max(1, math.ceil(num_requests / limit))


def bin_edges(number: int) -> tuple[float, float]:
    """Return the lower bounds of a bin and of the next one, in seconds."""
    return 10 ** (number / BINS_A_DECADE), 10 ** ((number + 1) / BINS_A_DECADE)


def bin_values(number: int) -> tuple[float, float]:
    """Return the bounds of the values that a bin holds: the lowest also has all below it, and 0."""
    low_s, high_s = bin_edges(number)
    return (0.0 if number <= _LOWEST_BIN else low_s), high_s


def bin_of(value_s: float) -> int:
    """Return the bin that holds a value above 0 seconds."""
    return math.floor(math.log10(value_s) * BINS_A_DECADE)


def bin_middle(number: int) -> float:
    """Return the geometric middle of a bin, in seconds."""
    return float(10 ** ((number + 0.5) / BINS_A_DECADE))


def heat(rows: Sequence[Row]) -> Heat:
    """Return rows of bucket, bin and count as a grid, without empty bins at the edges."""
    steps = sorted({row["bucket"] for row in rows})
    if not steps:
        return Heat([], [], [])
    numbers = [row["bin"] for row in rows]
    bins = list(range(min(numbers), max(numbers) + 1))
    found = {(row["bin"], row["bucket"]): row["num_requests"] for row in rows}
    return Heat(steps, bins, [[found.get((b, step)) for step in steps] for b in bins])


def axis_ticks_s(bins: Sequence[int]) -> list[float]:
    """Return round axis values over some bins: powers of ten, or finer if there are few.

    Bins without a round value have their two ends.
    """
    if not bins:
        return []
    low, high = bins[0] // BINS_A_DECADE, -(-(bins[-1] + 1) // BINS_A_DECADE)
    steps = (1.0,) if high - low > 2 else (1.0, 2.0, 5.0)
    least, most = bin_edges(bins[0])[0], bin_edges(bins[-1])[1]
    ticks = [step * 10.0**decade for decade in range(low, high + 1) for step in steps]
    return [tick for tick in ticks if least * 0.99 <= tick <= most * 1.01] or [least, most]


def is_value(cohort: str) -> bool:
    """Return whether a cohort's name is a value to filter by, not that requests have none."""
    return cohort != "none" and not cohort.endswith("@?")


def cohort_names(rows: Sequence[Row]) -> list[str]:
    """Return the cohorts to draw, largest first; the rest appear only in the table."""
    return [row["cohort"] for row in rows[:MAX_LINES]]
