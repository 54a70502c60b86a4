"""Shares out the seconds of engine steps among their requests, so that the shares add up.

docs/metrics.md ("Engine seconds") defines the terms, docs/decisions/0290-engine-seconds.md explains
the choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenkeel_runtime.ledger.cost import (
    CONTEXT,
    DECODE,
    DRAFTED,
    FIXED,
    PAIRS,
    PREFILL,
    FloatArray,
    StepCost,
)
from evenkeel_runtime.ledger.timeline import BoolArray, IntArray, Steps
from evenkeel_runtime.wire.steps import Held

# Reasons for a queue in which others wait for the room that a request takes.
_NO_ROOM = (Held.BUDGET, Held.KV, Held.SEATS)


@dataclass(slots=True)
class EngineSeconds:
    """Engine time of one request, in seconds.

    Attributes:
        spent_s: Its shares of the steps it was in.
        wasted_s: Of those, what nobody had any use of.
        avoidable_s: What the engine would have been spared without all requests of its tenant:
            the sum over a tenant's requests is what the tenant's absence would save.
        saved_by_prefix_s: What computing its cached prompt tokens would have taken.
        saved_by_drafts_s: What generating its accepted drafts one by one would have taken more.
    """

    spent_s: float = 0.0
    wasted_s: float = 0.0
    avoidable_s: float = 0.0
    saved_by_prefix_s: float | None = None
    saved_by_drafts_s: float | None = None


@dataclass(frozen=True, slots=True)
class StepShares:
    """Seconds per request row of some steps; the rows of requests left waiting have 0.

    Attributes:
        spent_s: Share of the step; the shares of a step add up to its duration.
        wasted_s: Of that, prefill after a preemption, and rejected drafts.
        avoidable_s: Of that, what the step would have been shorter without the row's owner.
        saved_s: What accepted drafts saved.
    """

    spent_s: FloatArray
    wasted_s: FloatArray
    avoidable_s: FloatArray
    saved_s: FloatArray


def share_steps(steps: Steps, cost: StepCost, owners: IntArray | None = None) -> StepShares:
    """Return each row's share of its step.

    A step is split in proportion to the predicted cost of its rows; the fixed cost of a step counts
    in equal parts for the requests computed in it. If nothing has a predicted cost, the parts are
    equal.

    The fixed cost is avoidable if all requests of the step have one owner, or if others waited for
    room: then another would have taken the place, and the engine would have needed fewer steps.

    Args:
        steps: The steps.
        cost: The step-cost model.
        owners: Who owns each row, as a number; each request owns itself if None.
    """
    entries, rows, num_steps = steps.entries, steps.rows(), len(steps)
    weights = cost.weights
    is_in = (entries["prefill_tokens"] > 0) | (entries["decode_tokens"] > 0)
    num_in = np.bincount(rows, is_in, num_steps)
    part = cost.predict_parts(entries) * is_in
    fixed = weights[FIXED] / np.maximum(num_in, 1)
    total = np.bincount(rows, part, num_steps) + weights[FIXED] * (num_in > 0)
    is_free = total <= 0
    # Without any predicted cost, the fixed part stands for all of it.
    fixed[is_free] = 1.0 / np.maximum(num_in[is_free], 1)
    total[is_free] = 1.0
    scale = ((steps.end_ns - steps.begin_ns) / 1e9 / total)[rows]
    fixed_part = fixed[rows] * is_in

    prefill = entries["prefill_tokens"].astype(np.float64)
    recomputed = np.minimum(entries["recomputed_tokens"] / np.maximum(prefill, 1.0), 1.0)
    context = entries["context_tokens"].astype(np.float64)
    own_prefill = prefill * (weights[PREFILL] + weights[PAIRS] * (context + (prefill + 1) / 2))
    accepted = entries["accepted_tokens"].astype(np.float64)
    rejected = np.maximum(entries["drafted_tokens"] - accepted, 0.0)
    wasted = own_prefill * recomputed + rejected * weights[DRAFTED]
    # Without the draft, each accepted token would have been a step of the request's own.
    plain_token = weights[DECODE] + weights[CONTEXT] * context + fixed_part
    saved = accepted * np.maximum(plain_token - weights[DRAFTED], 0.0)

    is_shared = _has_two_owners(entries["request"] if owners is None else owners, is_in, steps)
    has_queue = np.isin(steps.table["held_by"], _NO_ROOM)
    avoidable = part + fixed_part * (has_queue | ~is_shared)[rows]
    return StepShares(
        spent_s=(part + fixed_part) * scale,
        wasted_s=np.minimum(wasted * is_in, part) * scale,
        avoidable_s=avoidable * scale,
        saved_s=saved * scale,
    )


def _has_two_owners(owners: IntArray, is_in: BoolArray, steps: Steps) -> BoolArray:
    """Return whether the requests computed in each step have more than one owner."""
    rows = steps.rows()[is_in]
    own = owners[is_in].astype(np.int64)
    lowest = np.full(len(steps), np.iinfo(np.int64).max)
    highest = np.full(len(steps), -1, dtype=np.int64)
    np.minimum.at(lowest, rows, own)
    np.maximum.at(highest, rows, own)
    is_shared: BoolArray = highest > lowest
    return is_shared


def prefill_seconds(cost: StepCost, tokens: int) -> float:
    """Return what computing the first `tokens` of a prompt takes."""
    pairs = tokens * (tokens + 1) / 2
    return float(cost.weights[PREFILL] * tokens + cost.weights[PAIRS] * pairs)
