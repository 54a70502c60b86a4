"""Shares each engine step out among the causes that a request may charge it to."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from runtime.step_cost import CONTEXT, DECODE, DRAFTED, FIXED, PAIRS, PREFILL, FloatArray, StepCost
from runtime.step_record import Held
from runtime.timeline import OwnPart, Steps


class Cause(StrEnum):
    """What a moment of a request was spent on; docs/ledger.md has the formulas."""

    HOST_INPUT = "host.input"
    QUEUE_GATE = "queue.gate"
    QUEUE_BUDGET = "queue.budget"
    QUEUE_KV = "queue.kv"
    QUEUE_SEATS = "queue.seats"
    QUEUE_GRAMMAR = "queue.grammar"
    QUEUE_REMOTE_KV = "queue.remote_kv"
    QUEUE_OTHER = "queue.other"
    PREFILL_OWN = "prefill.own"
    PREFILL_CACHE_MISS = "prefill.cache_miss"
    PREFILL_OTHERS = "prefill.others"
    DECODE_OWN = "decode.own"
    DECODE_OTHERS = "decode.others"
    PREEMPTION = "preemption"
    SPECULATION = "speculation"
    HOST_GAP = "host.gap"
    HOST_OUTPUT = "host.output"
    UNOBSERVED = "unobserved"


CAUSES = tuple(Cause)
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
_IS_PREFILL = np.isin(np.arange(6), (PREFILL, PAIRS))
_IS_DECODE = np.isin(np.arange(6), (DECODE, CONTEXT, DRAFTED))


def share_out(own: OwnPart, steps: Steps, cost: StepCost, queued_ns: int) -> FloatArray:
    """Return one row a step: the share of each cause in it, which sum to 1."""
    shares = np.zeros((len(steps), len(CAUSES)))
    weights = cost.weights
    others = np.maximum(steps.features - own.features, 0.0)
    others_prefill = others[:, _IS_PREFILL] @ weights[_IS_PREFILL]
    others_decode = others[:, _IS_DECODE] @ weights[_IS_DECODE]
    own_prefill = own.features[:, _IS_PREFILL] @ weights[_IS_PREFILL]
    rejected = own.rejected_tokens * weights[DRAFTED]
    own_decode = own.features[:, _IS_DECODE] @ weights[_IS_DECODE] - rejected
    is_prefilling = own.features[:, PREFILL] > 0
    own_prefill = own_prefill + np.where(is_prefilling, weights[FIXED], 0.0)
    own_decode = own_decode + np.where(is_prefilling, 0.0, weights[FIXED])

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
        shares[is_in, _COLUMN[cause]] = np.maximum(part, 0.0)[is_in]
    # A step that cannot be shared out by cost is its request's own.
    is_free = is_in & (shares.sum(axis=1) <= 0)
    shares[is_free & is_prefilling, _COLUMN[Cause.PREFILL_OWN]] = 1.0
    shares[is_free & ~is_prefilling, _COLUMN[Cause.DECODE_OWN]] = 1.0

    is_out = ~is_in & own.is_preempted
    shares[is_out, _COLUMN[Cause.PREEMPTION]] = 1.0
    # A step that was already running when the request came: its parts are what it waits for.
    is_met = ~is_in & ~is_out & (steps.table["start_ns"].astype(np.int64) < queued_ns)
    shares[is_met] = others_shares(steps, cost)[is_met]
    is_held = ~is_in & ~is_out & ~is_met
    reasons = np.where(own.held_by > 0, own.held_by, steps.table["held_by"])
    shares[np.flatnonzero(is_held), _QUEUE_COLUMN[reasons[is_held]]] = 1.0
    total = shares.sum(axis=1, keepdims=True)
    normalised: FloatArray = shares / total
    return normalised


def others_shares(steps: Steps, cost: StepCost) -> FloatArray:
    """Shares of steps that a request only waits for: all of each is others' work."""
    shares = np.zeros((len(steps), len(CAUSES)))
    shares[:, _COLUMN[Cause.PREFILL_OTHERS]] = (
        steps.features[:, _IS_PREFILL] @ cost.weights[_IS_PREFILL]
    )
    shares[:, _COLUMN[Cause.DECODE_OTHERS]] = (
        steps.features[:, _IS_DECODE] @ cost.weights[_IS_DECODE]
    )
    total = shares.sum(axis=1, keepdims=True)
    shares[total[:, 0] <= 0, _COLUMN[Cause.DECODE_OTHERS]] = 1.0
    normalised: FloatArray = shares / np.where(total > 0, total, 1.0)
    return normalised
