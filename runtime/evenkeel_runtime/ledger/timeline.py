"""The engine steps around one request, laid out so that each moment belongs to one step or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenkeel_runtime.ledger.step_cost_model import (
    DRAFTED,
    FEATURES,
    FIXED,
    PREFILL,
    FloatArray,
    features_of,
)
from evenkeel_runtime.wire.steps import EntryArray, StepArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """The engine's records of one request; for several sequences (`n`), earliest times and sums.

    Attributes:
        numbers: Numbers of its sequences in the engine's records.
        queued_ns: When it entered the scheduler's queue.
        cached_tokens: Prompt tokens found in the prefix cache.
        lost_tokens: Prompt tokens after those that were cached earlier and evicted.
        prompt_tokens: Length of its prompt.
        block_tokens: Tokens per block of the prefix cache; 0 before it was scheduled.
        evicted_ns: When the first lost block was evicted; 0 if unknown.
        evicted_by: Number of the request that took its block; None if unknown.
        left_ns: When the scheduler released its last sequence; None until recorded.
    """

    numbers: tuple[int, ...]
    queued_ns: int
    cached_tokens: int = 0
    lost_tokens: int = 0
    prompt_tokens: int = 0
    block_tokens: int = 0
    evicted_ns: int = 0
    evicted_by: int | None = None
    left_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """Consecutive steps of one engine with all their requests.

    Under asynchronous scheduling steps overlap: a step is then taken to begin when the one before
    it ended, because the device works on one at a time.

    Attributes:
        table: The step records.
        entries: Their requests, one step after the other.
        begin_ns: When each began to occupy the engine; never before the end of the one before.
        end_ns: When each ended; never before its begin.
        follows_loss: Whether records are missing right before the step.
        num_entries: How many request rows each has.
        features: The cost features of each, its requests' summed and the fixed cost 1.
    """

    table: StepArray
    entries: EntryArray
    begin_ns: IntArray
    end_ns: IntArray
    follows_loss: BoolArray
    num_entries: IntArray
    features: FloatArray

    def __len__(self) -> int:
        return len(self.table)

    def cut(self, span: StepRange) -> Steps:
        """Return a part of the steps; nothing is copied."""
        steps, entries = span.steps, span.entries
        return Steps(
            self.table[steps],
            self.entries[entries],
            self.begin_ns[steps],
            self.end_ns[steps],
            self.follows_loss[steps],
            self.num_entries[steps],
            self.features[steps],
        )

    def find(self, from_ns: int, to_ns: int) -> StepRange:
        """Return the range of the steps that overlap an interval."""
        first = int(np.searchsorted(self.end_ns, from_ns))
        last = max(first, int(np.searchsorted(self.begin_ns, to_ns, side="right")))
        before = int(self.num_entries[:first].sum())
        return StepRange(
            slice(first, last), slice(before, before + int(self.num_entries[first:last].sum()))
        )

    def rows(self) -> IntArray:
        """Return the step of each request row, counted from 0."""
        return np.repeat(np.arange(len(self)), self.num_entries)


@dataclass(frozen=True, slots=True)
class StepRange:
    """Consecutive steps among others, and their request rows."""

    steps: slice
    entries: slice


def lay_out(
    table: StepArray,
    entries: EntryArray,
    follows_loss: BoolArray | None = None,
    previous_end_ns: int = 0,
    features: FloatArray | None = None,
) -> Steps:
    """Return the steps laid out in time.

    Args:
        table: Step records in the order of their end.
        entries: Their requests, `table["num_entries"]` each.
        follows_loss: Whether records are missing right before each step; nowhere if None.
        previous_end_ns: End of the step before the first.
        features: The steps' cost features, where they are known already.
    """
    ends = np.maximum.accumulate(table["end_ns"].astype(np.int64))
    before = np.concatenate(([previous_end_ns], ends[:-1])) if len(ends) else ends
    begins = np.minimum(np.maximum(table["start_ns"].astype(np.int64), before), ends)
    num_entries = table["num_entries"].astype(np.int64)
    if features is None:
        rows = np.repeat(np.arange(len(table)), num_entries)
        features = sum_by_step(features_of(entries), rows, len(table))
        features[:, FIXED] = 1.0
    if follows_loss is None:
        follows_loss = np.zeros(len(table), dtype=np.bool_)
    return Steps(table, entries, begins, ends, follows_loss, num_entries, features)


def sum_by_step(values: FloatArray, rows: IntArray, num_steps: int) -> FloatArray:
    """Return the sums of the columns of `values` over the entries of each step."""
    sums = np.empty((num_steps, values.shape[1]))
    for column in range(values.shape[1]):
        sums[:, column] = np.bincount(rows, values[:, column], num_steps)
    return sums


@dataclass(frozen=True, slots=True)
class OwnPart:
    """Work of one request in each step.

    Attributes:
        features: Its cost features; zeros where it was not scheduled.
        recomputed_ratio: Share of its prefill that a preemption had discarded.
        lost_ratio: Share of its prefill that was in the prefix cache earlier.
        rejected_tokens: Its draft tokens that were rejected.
        emitted: Tokens emitted for it.
        drafted: Its draft tokens that were tried.
        accepted: Of those, the accepted ones.
        is_scheduled: Whether it was in the step.
        is_preempted: Whether it was between a preemption and its return.
        held_by: Why it was blocked, by `Held`; 0 if for the queue's reason.
        drafts: Not by step: the length of each draft of each of its sequences.
        agreed: Of those, the accepted tokens.
    """

    features: FloatArray
    recomputed_ratio: FloatArray
    lost_ratio: FloatArray
    rejected_tokens: FloatArray
    emitted: FloatArray
    drafted: IntArray
    accepted: IntArray
    is_scheduled: BoolArray
    is_preempted: BoolArray
    held_by: IntArray
    drafts: IntArray
    agreed: IntArray


def find_own(steps: Steps, request: EngineRequest) -> OwnPart:
    """Return what the request did in each of the steps."""
    places = is_one_of(steps.entries["request"], request.numbers).nonzero()[0]
    own = steps.entries[places]
    rows = np.searchsorted(np.cumsum(steps.num_entries), places, side="right")
    recomputed = own["recomputed_tokens"]
    start = own["context_tokens"].astype(np.float64)
    end = start + own["prefill_tokens"]
    lost_until = request.cached_tokens + request.lost_tokens
    lost = np.minimum(end, lost_until) - np.maximum(start, request.cached_tokens)
    # Recomputed tokens were already counted, as lost or not, the first time.
    lost[(recomputed > 0) | (lost < 0)] = 0.0
    held_by, is_draft = own["held_by"], own["drafted_tokens"] > 0
    parts = np.empty((len(FEATURES) + 6, len(own)))
    parts[: len(FEATURES)] = features_of(own).T
    parts[len(FEATURES) :] = (
        *(recomputed, lost, own["emitted_tokens"], own["accepted_tokens"]),
        *(own["is_preempted"], (own["prefill_tokens"] > 0) | (own["decode_tokens"] > 0)),
    )
    whole = np.zeros((len(parts), len(steps)))
    held = np.zeros(len(steps))
    if (rows[1:] > rows[:-1]).all():
        # At most one row per step, as for one sequence: nothing to sum.
        whole[:, rows] = parts
        held[rows] = held_by
    else:
        for part, sums in zip(parts, whole, strict=True):
            sums[:] = np.bincount(rows, part, len(steps))
        np.maximum.at(held, rows, held_by.astype(np.float64))
    prefill, drafted = np.maximum(whole[PREFILL], 1.0), whole[DRAFTED]
    recomputed, lost, emitted, accepted, preempted, is_in = whole[len(FEATURES) :]
    is_scheduled = is_in > 0
    return OwnPart(
        features=whole[: len(FEATURES)].T,
        recomputed_ratio=recomputed / prefill,
        lost_ratio=lost / prefill,
        rejected_tokens=np.maximum(drafted - accepted, 0.0),
        emitted=emitted,
        drafted=drafted.astype(np.int64),
        accepted=accepted.astype(np.int64),
        is_scheduled=is_scheduled,
        is_preempted=_since_preemption(preempted > 0, is_scheduled),
        held_by=np.where(is_scheduled, 0.0, held).astype(np.int64),
        drafts=own["drafted_tokens"][is_draft],
        agreed=own["accepted_tokens"][is_draft],
    )


def is_one_of(values: NDArray[Any], wanted: tuple[int, ...]) -> BoolArray:
    """Return a mask of `values` equal to any of a few numbers, without sorting."""
    found = np.zeros(len(values), dtype=np.bool_)
    for number in wanted:
        found |= values == number
    return found


def _since_preemption(is_preempted: BoolArray, is_scheduled: BoolArray) -> BoolArray:
    """Return per step whether the request's last event up to it was a preemption."""
    if not is_preempted.any():
        return is_preempted
    order = np.arange(len(is_preempted))
    preempted_at = np.maximum.accumulate(np.where(is_preempted, order, -1))
    scheduled_at = np.maximum.accumulate(np.where(is_scheduled, order, -1))
    is_out: BoolArray = preempted_at > scheduled_at
    return is_out
