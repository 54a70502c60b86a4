"""Fit how long an engine's steps take, from its stored steps and the requests that were in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenkeel.nonnegative import solve_nonnegative
from evenkeel.whatif.batching import BatchLimits, StepSpeed

FloatArray = NDArray[np.float64]
Row = Mapping[str, Any]
# Fewer runs of steps of a kind are no basis for a fit.
MIN_RUNS = 8
# Weight of the prior that keeps the fit solvable, per step.
_PRIOR = 1e-6
_FIXED, _DECODES, _CONTEXT, _DRAFTS, _PROMPT, _PAIRS = range(6)


@dataclass(frozen=True, slots=True)
class StepWork:
    """What runs of steps computed and how long they took; one row per run.

    Attributes:
        features: Per step: 1, decoding requests, context tokens, draft tokens, prompt tokens,
            attended pairs.
        seconds: Per step.
        num_steps: Steps of the run.
    """

    features: FloatArray
    seconds: FloatArray
    num_steps: FloatArray

    def only(self, chosen: NDArray[np.bool_]) -> StepWork:
        """Return the chosen runs."""
        return StepWork(self.features[chosen], self.seconds[chosen], self.num_steps[chosen])


def step_work(runs: Sequence[Row], requests: Sequence[Row]) -> StepWork:
    """Return what runs of steps computed.

    Args:
        runs: Rows of the query `engine_runs`, in the order of time.
        requests: Rows of the query `engine_requests`.
    """
    num_steps = column(runs, "num_steps")
    middle_s = column(runs, "time_s") + column(runs, "duration_s") / 2
    features = np.stack(
        [
            np.ones(len(runs)),
            column(runs, "decode_tokens") / num_steps,
            context_at(middle_s, requests),
            column(runs, "drafted_tokens") / num_steps,
            column(runs, "prefill_tokens") / num_steps,
            _pairs_of(runs, requests),
        ],
        axis=1,
    )
    return StepWork(features, column(runs, "busy_s") / num_steps, num_steps)


def context_at(times_s: FloatArray, requests: Sequence[Row]) -> FloatArray:
    """Return the tokens in the contexts of all decoding requests at some times.

    A request's context grows evenly from its first token to its last.
    """
    made = column(requests, "output_tokens")
    return _sum_at(times_s, requests, column(requests, "input_tokens"), made)


def _sum_at(
    times_s: FloatArray, requests: Sequence[Row], first: FloatArray, growth: FloatArray
) -> FloatArray:
    """Return a sum over the requests that decode at each time.

    Args:
        times_s: The times.
        requests: The requests.
        first: What each adds at its first token.
        growth: What it adds more until its last.
    """
    begin_s = column(requests, "time_s") + column(requests, "ttft_s")
    end_s = column(requests, "time_s") + column(requests, "e2e_s")
    decodes = (column(requests, "output_tokens") > 1) & (end_s > begin_s)
    begin_s, end_s = begin_s[decodes], end_s[decodes]
    slope = growth[decodes] / (end_s - begin_s)
    offset = first[decodes] - slope * begin_s
    total = np.zeros(len(times_s))
    for at_s, sign in ((begin_s, 1.0), (end_s, -1.0)):
        order = np.argsort(at_s)
        place = np.searchsorted(at_s[order], times_s, side="right")
        for values, factor in ((offset, 1.0), (slope, times_s)):
            sums = np.concatenate([[0.0], np.cumsum(values[order])])
            total += sign * factor * sums[place]
    return np.maximum(total, 0.0)


def _pairs_of(runs: Sequence[Row], requests: Sequence[Row]) -> FloatArray:
    """Return the token pairs in the attention of the prompts of each run."""
    computed = {row["request_id"]: row["cached_tokens"] or 0 for row in requests}
    pairs = np.zeros(len(runs))
    for place, row in enumerate(runs):
        for name, size in zip(row["prefilling_request_id"], row["prefilling_tokens"], strict=True):
            before = computed.get(name, 0)
            pairs[place] += size * (before + (size + 1) / 2)
            computed[name] = before + size
    return pairs


def fit_speed(work: StepWork, gap_s: float) -> StepSpeed | None:
    """Return how long steps take; None if there are too few."""
    is_mixed = work.features[:, _PROMPT] > 0
    decode = _fit(work, ~is_mixed, _PROMPT)
    mixed = _fit(work, is_mixed, _PAIRS + 1)
    if decode is None or mixed is None:
        # Both kinds together, if there are few of one.
        mixed = _fit(work, is_mixed | ~is_mixed, _PAIRS + 1, 2 * MIN_RUNS)
        if mixed is None:
            return None
        decode = mixed[:_PROMPT]
    return StepSpeed(decode, mixed, gap_s)


def unexplained_s(work: StepWork, speed: StepSpeed) -> FloatArray:
    """Return measured less fitted seconds of each run."""
    is_mixed = work.features[:, _PROMPT] > 0
    decode = work.features[:, :_PROMPT] @ np.array(speed.decode)
    fitted = np.where(is_mixed, work.features @ np.array(speed.mixed), decode)
    return np.asarray((work.seconds - fitted) * work.num_steps, dtype=np.float64)


def _fit(
    work: StepWork, chosen: NDArray[np.bool_], num_features: int, min_runs: int = MIN_RUNS
) -> tuple[float, ...] | None:
    """Return coefficients that make the relative errors small and their sum zero."""
    chosen = chosen & (work.seconds > 0)
    if chosen.sum() < min_runs:
        return None
    features, seconds = work.features[chosen][:, :num_features], work.seconds[chosen]
    num_steps = work.num_steps[chosen]
    weights = np.array(_least_squares(features / seconds[:, None], num_steps))
    weights *= (num_steps @ seconds) / (num_steps @ (features @ weights))
    return tuple(weights.tolist())


def host_gap(runs: Sequence[Row]) -> float:
    """Return the mean time between two steps of a run."""
    gaps_s = (column(runs, "duration_s") - column(runs, "busy_s")).sum()
    num = (column(runs, "num_steps") - 1).sum()
    return float(gaps_s / num) if num else 0.0


def limits_of(runs: Sequence[Row], requests: Sequence[Row], work: StepWork) -> BatchLimits:
    """Return the limits of batches that requests met; others are infinite."""
    held = np.array([row["held_by"] for row in runs])
    seats = budget = math.inf
    if (held == "seats").any():
        seats = float(column(runs, "num_running")[held == "seats"].max())
    is_mixed = work.features[:, _PROMPT] > 0
    if (held == "budget").any() or _has_split_prompts(runs):
        tokens = work.features[:, [_DECODES, _DRAFTS, _PROMPT]].sum(axis=1)
        budget = float(tokens[is_mixed].max(initial=1.0))
    limits = BatchLimits(seats, budget)
    num_preempted = float(column(runs, "num_preempted").sum())
    if not num_preempted and not (held == "kv").any():
        return limits
    live = column(runs, "blocks_live")
    known = (live > 0) & (work.features[:, _DECODES] > 0) & ~is_mixed
    if not known.any():
        return limits
    # What blocks are held for, from steps without prompts; shared ones count once among several.
    times_s = (column(runs, "time_s") + column(runs, "duration_s"))[known]
    cached = column(requests, "cached_tokens")
    shared = _sum_at(times_s, requests, cached, np.zeros(len(cached)))
    columns = np.stack([*work.features[known][:, [_DECODES, _CONTEXT]].T, -shared], axis=1)
    per_request, per_token, per_shared = _least_squares(columns / live[known][:, None])
    recomputed = math.inf
    if num_preempted:
        computed = column(runs, "prefill_tokens").sum()
        first = np.maximum(column(requests, "input_tokens") - cached, 1.0).sum()
        recomputed = max(float(computed - first) / num_preempted, 1.0)
    return BatchLimits(
        seats,
        budget,
        float(column(runs, "blocks_total").max()),
        per_request,
        per_token,
        per_shared,
        recomputed,
    )


def _least_squares(rows: FloatArray, weights: FloatArray | None = None) -> tuple[float, ...]:
    """Return coefficients, none negative, with which the rows add up to about 1 each."""
    weights = np.ones(len(rows)) if weights is None else weights
    unit = np.sqrt((rows**2 * weights[:, None]).sum(axis=0) / weights.sum())
    unit[unit == 0] = 1.0
    rows = rows / unit
    prior = np.eye(rows.shape[1]) * _PRIOR * weights.sum()
    normal = rows.T @ (rows * weights[:, None]) + prior
    return tuple((solve_nonnegative(normal, rows.T @ weights) / unit).tolist())


def _has_split_prompts(runs: Sequence[Row]) -> bool:
    """Return whether a prompt took several steps."""
    seen: set[str] = set()
    for row in runs:
        if not seen.isdisjoint(row["prefilling_request_id"]):
            return True
        seen.update(row["prefilling_request_id"])
    return False


def column(rows: Sequence[Row], name: str) -> FloatArray:
    """Return a column of rows; 0 where it has no value."""
    return np.array([row[name] or 0 for row in rows], dtype=np.float64)
