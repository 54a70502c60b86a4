"""The numbers that the store accepts, by table and column: finite, and within a range.

The views of the schema contain these ranges as literals, and docs/guide/data-model.md lists them;
tests compare all three. A refused number is missing from its column, named in the row's
`refused_numbers`, and counted in the table of the same name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` up to and including `high`; excludes NaN and infinities."""

    low: float
    high: float
    is_whole: bool = False


# Eleven days: longer requests are not judged, and end outside the partitions.
SECONDS = Range(0, 1e6)
# More than any context window; larger ones would drown a token SLO's other events.
TOKENS = Range(0, 1e8, is_whole=True)
# Clients send the largest 32-bit number to mean "no limit".
REQUESTED_TOKENS = Range(0, 4294967295, is_whole=True)
WEIGHT = Range(1, 1e6)
SHARE = Range(0, 1)
# A weight is 1 / probability.
DRAWN_PROBABILITY = Range(1e-6, 1)
SCORE = Range(-1e9, 1e9)
COUNT = Range(0, 4294967295, is_whole=True)
# A span of steps is about a second long; each day that its rows fall on is a partition.
STEP_START = Range(0, 3600)

# In the order of the views' arrays.
REQUESTS: Mapping[str, Range] = {
    "max_tokens": REQUESTED_TOKENS,
    "input_tokens": TOKENS,
    "output_tokens": TOKENS,
    "cached_tokens": TOKENS,
    "wasted_tokens": TOKENS,
    "drafted_tokens": TOKENS,
    "accepted_tokens": TOKENS,
    "http_status": Range(100, 599, is_whole=True),
    "temperature": Range(0, 100),
    "queue_s": SECONDS,
    "prefill_s": SECONDS,
    "decode_s": SECONDS,
    "ttft_s": SECONDS,
    "tpot_s": SECONDS,
    "itl_p50_s": SECONDS,
    "itl_p99_s": SECONDS,
    "stall_s": SECONDS,
    "e2e_s": SECONDS,
    "sample_weight": WEIGHT,
    "detail_probability": SHARE,
}
# Per element; one refused element refuses the whole list.
REQUEST_LISTS: Mapping[str, Range] = {
    "drafted_by_position": TOKENS,
    "accepted_by_position": TOKENS,
    "emission_time_s": SECONDS,
    "emission_tokens": TOKENS,
}
# Per value of the map.
LEDGER = SECONDS
EVAL_RESULTS: Mapping[str, Range] = {
    "score": SCORE,
    "output_tokens": TOKENS,
    "client_ttft_s": SECONDS,
    "client_e2e_s": SECONDS,
    "estimate": SCORE,
    "lower": SCORE,
    "upper": SCORE,
    "num_pairs": COUNT,
}
FEEDBACK: Mapping[str, Range] = {"score": SHARE}
LIVE_EVALUATIONS: Mapping[str, Range] = {
    "probability": DRAWN_PROBABILITY,
    "score": SHARE,
    "lag_s": SECONDS,
}
# Lists of the span; in these columns, which have no NULL, what is refused is 0.
ENGINE_STEPS: Mapping[str, Range] = {
    "start_s": STEP_START,
    "duration_s": SECONDS,
    "busy_s": SECONDS,
    "longest_s": SECONDS,
    "num_steps": COUNT,
    "num_batched": COUNT,
    "num_running": COUNT,
    "num_waiting": COUNT,
    "num_set_aside": COUNT,
    "prefill_tokens": COUNT,
    "decode_tokens": COUNT,
    "drafted_tokens": COUNT,
    "accepted_tokens": COUNT,
    "emitted_tokens": COUNT,
    "num_preempted": COUNT,
    "blocks_live": COUNT,
    "blocks_resident": COUNT,
    "blocks_total": COUNT,
}
METRIC = Range(-1e30, 1e30)
# The widest buckets of an exponential histogram end at the largest number there is.
BOUND = Range(-sys.float_info.max, sys.float_info.max)
METRIC_COUNT = Range(0, 1e15, is_whole=True)
# Bounds ascend, with one more count than bounds; otherwise all buckets are refused.
ENGINE_STATE: Mapping[str, Range] = {
    "value": METRIC,
    "sum": METRIC,
    "min": METRIC,
    "max": METRIC,
    "count": METRIC_COUNT,
    "bounds": BOUND,
    "bucket_counts": METRIC_COUNT,
}
BY_TABLE: Mapping[str, Mapping[str, Range]] = {
    "requests": {**REQUESTS, **REQUEST_LISTS, "ledger": LEDGER},
    "eval_results": EVAL_RESULTS,
    "feedback": FEEDBACK,
    "live_evaluations": LIVE_EVALUATIONS,
    "engine_steps": ENGINE_STEPS,
    "engine_state": ENGINE_STATE,
}
REASONS = ("not_a_number", "not_finite", "out_of_range", "lengths_differ")


def sql_arrays(ranges: Mapping[str, Range]) -> tuple[str, str, str, str]:
    """Return names, lows, highs and whether they are integers, as the views write them."""
    return (
        _array([f"'{name}'" for name in ranges]),
        _array([_number(each.low) for each in ranges.values()]),
        _array([_number(each.high) for each in ranges.values()]),
        _array([str(int(each.is_whole)) for each in ranges.values()]),
    )


def _array(elements: Sequence[str]) -> str:
    return f"[{', '.join(elements)}]"


def _number(value: float) -> str:
    return f"{value:.0f}." if abs(value) < 1e16 and value == int(value) else repr(value)
