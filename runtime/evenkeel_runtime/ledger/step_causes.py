"""Splits each engine step among the causes that a request may charge it to."""

from __future__ import annotations

import numpy as np

from evenkeel_runtime.ledger.step_cost_model import DRAFTED, PREFILL, FloatArray
from evenkeel_runtime.ledger.step_costs import PricedSteps, price_parts
from evenkeel_runtime.ledger.timeline import IntArray, OwnPart
from evenkeel_runtime.wire.cause import CAUSES, Cause
from evenkeel_runtime.wire.steps import Held

_COLUMN = {cause: column for column, cause in enumerate(CAUSES)}
_QUEUE_CAUSE = {
    Held.NOT: Cause.QUEUE_OTHER,
    Held.BUDGET: Cause.QUEUE_BUDGET,
    Held.KV: Cause.QUEUE_KV,
    Held.SEATS: Cause.QUEUE_SEATS,
    Held.GRAMMAR: Cause.QUEUE_GRAMMAR,
    Held.REMOTE_KV: Cause.QUEUE_REMOTE_KV,
    Held.OTHER: Cause.QUEUE_OTHER,
}
_QUEUE_COLUMN = np.array([_COLUMN[_QUEUE_CAUSE[held]] for held in Held])
# External waits: they continue whether a step is running or not.
_AWAITED = np.isin(np.arange(len(Held)), (Held.GRAMMAR, Held.REMOTE_KV))


def share_out(own: OwnPart, priced: PricedSteps, queued_ns: int) -> FloatArray:
    """Return the share of each cause (rows) in each step (columns); each column sums to 1."""
    steps, cost = priced.steps, priced.cost
    shares = np.zeros((len(CAUSES), len(steps)))
    own_prefill, own_decode = price_parts(own.features, cost)
    # Features are whole numbers: a request alone in a step sees exactly 0 of others.
    others_prefill, others_decode = price_parts(steps.features - own.features, cost)
    rejected = own.rejected_tokens * cost.weights[DRAFTED]
    is_prefilling = own.features[:, PREFILL] > 0
    own_prefill += priced.fixed_s * is_prefilling
    own_decode += priced.fixed_s * ~is_prefilling - rejected

    is_in = own.is_scheduled
    plain_ratio = 1.0 - own.recomputed_ratio - own.lost_ratio
    for cause, part in (
        (Cause.PREFILL_OWN, own_prefill * plain_ratio),
        (Cause.PREFILL_CACHE_MISS, own_prefill * own.lost_ratio),
        (Cause.PREEMPTION, own_prefill * own.recomputed_ratio),
        (Cause.PREFILL_OTHERS, others_prefill),
        (Cause.DECODE_OWN, own_decode),
        (Cause.SPECULATION, rejected),
        (Cause.DECODE_OTHERS, others_decode),
    ):
        np.maximum(part, 0.0, out=shares[_COLUMN[cause]], where=is_in)
    total = shares.sum(axis=0)
    # A step that cannot be split by cost is charged to the request itself.
    is_free = is_in & (total <= 0)
    if is_free.any():
        shares[_COLUMN[Cause.PREFILL_OWN], is_free & is_prefilling] = 1.0
        shares[_COLUMN[Cause.DECODE_OWN], is_free & ~is_prefilling] = 1.0
    np.divide(shares, total, out=shares, where=is_in & ~is_free)
    if not is_in.all():
        _share_out_waiting(shares, own, priced, queued_ns)
    return shares


def awaited_columns(own: OwnPart) -> IntArray:
    """Return per step the index in `CAUSES` of what blocked the request, or -1."""
    return np.where(_AWAITED[own.held_by], _QUEUE_COLUMN[own.held_by], -1)


def _share_out_waiting(
    shares: FloatArray, own: OwnPart, priced: PricedSteps, queued_ns: int
) -> None:
    """Fill in the shares of steps that the request was not in."""
    steps = priced.steps
    is_out = ~own.is_scheduled & own.is_preempted
    shares[_COLUMN[Cause.PREEMPTION], is_out] = 1.0
    is_waiting = ~own.is_scheduled & ~is_out
    # A step already running when the request arrived: the request waits for its parts.
    has_begun = steps.table["start_ns"].astype(np.int64) < queued_ns
    met = (is_waiting & has_begun).nonzero()[0]
    shares[_COLUMN[Cause.PREFILL_OTHERS], met] = prefill_ratio(priced)[met]
    shares[_COLUMN[Cause.DECODE_OTHERS], met] = 1.0 - shares[_COLUMN[Cause.PREFILL_OTHERS], met]
    held = (is_waiting & ~has_begun).nonzero()[0]
    reasons = np.where(own.held_by > 0, own.held_by, steps.table["held_by"])
    shares[_QUEUE_COLUMN[reasons[held]], held] = 1.0


def prefill_ratio(priced: PricedSteps) -> FloatArray:
    """Return the prefill share of each step that a request only waits for; the rest is decode."""
    total = priced.prefill_s + priced.decode_s
    ratio = np.zeros(len(total))
    np.divide(priced.prefill_s, total, out=ratio, where=total > 0)
    return ratio
