"""Shares out the seconds of engine steps among their requests, so that the shares add up.

docs/metrics.md ("Engine seconds") defines the terms, docs/decisions/0290-engine-seconds.md explains
the choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenkeel_runtime.ledger.step_cost_model import (
    CONTEXT,
    DECODE,
    DRAFTED,
    FIXED,
    PAIRS,
    PREFILL,
    FloatArray,
    StepCost,
)
from evenkeel_runtime.ledger.timeline import Steps


@dataclass(slots=True)
class EngineSeconds:
    """Engine time of one request, in seconds.

    Attributes:
        spent_s: Its shares of the steps it was in.
        wasted_s: Of those, what nobody had any use of.
        saved_by_prefix_s: What computing its cached prompt tokens would have taken.
        saved_by_drafts_s: What generating its accepted drafts one by one would have taken more.
        energy_j: Its shares of the energy of those steps, in J; None if unknown.
    """

    spent_s: float = 0.0
    wasted_s: float = 0.0
    saved_by_prefix_s: float | None = None
    saved_by_drafts_s: float | None = None
    energy_j: float | None = None


# A step that is predicted to take less is not split by it: dividing by it would overflow.
_NO_COST_S = 1e-30


@dataclass(frozen=True, slots=True)
class StepShares:
    """Seconds per request row of some steps; the rows of requests left waiting have 0.

    Attributes:
        spent_s: Share of the step; the shares of a step add up to its duration.
        wasted_s: Of that, prefill after a preemption, and rejected drafts.
        saved_s: What accepted drafts saved.
    """

    spent_s: FloatArray
    wasted_s: FloatArray
    saved_s: FloatArray


def share_steps(steps: Steps, cost: StepCost) -> StepShares:
    """Return each row's share of its step.

    A step is split in proportion to the predicted cost of its rows; the fixed cost of a step counts
    in equal parts for the requests computed in it. If nothing has a predicted cost, the parts are
    equal.
    """
    entries, rows, num_steps = steps.entries, steps.rows(), len(steps)
    weights = cost.weights
    is_in = (entries["prefill_tokens"] > 0) | (entries["decode_tokens"] > 0)
    num_in = np.bincount(rows, is_in, num_steps)
    part = cost.predict_parts(entries) * is_in
    fixed = weights[FIXED] / np.maximum(num_in, 1)
    total = np.bincount(rows, part, num_steps) + weights[FIXED] * (num_in > 0)
    is_free = total < _NO_COST_S
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

    return StepShares(
        spent_s=(part + fixed_part) * scale,
        wasted_s=np.minimum(wasted * is_in, part) * scale,
        saved_s=saved * scale,
    )


def prefill_seconds(cost: StepCost, tokens: int) -> float:
    """Return what computing the first `tokens` of a prompt takes."""
    pairs = tokens * (tokens + 1) / 2
    return float(cost.weights[PREFILL] * tokens + cost.weights[PAIRS] * pairs)
