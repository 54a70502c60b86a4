"""Builds engine steps for tests, in milliseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from evenkeel_runtime.ledger.attribution import RequestTimes
from evenkeel_runtime.ledger.step_cost_model import StepCost
from evenkeel_runtime.ledger.timeline import Steps, lay_out
from evenkeel_runtime.wire.steps import (
    ENTRY,
    ENTRY_TYPE,
    STEP,
    STEP_TYPE,
    Batch,
    EntryArray,
    Held,
    RequestEvent,
    StepArray,
)

MS = 1_000_000
ME = 0
# 2 ms a step, 0.1 ms a prompt token, 1 ms a decoding request, 0.5 ms a drafted token.
COST = StepCost(np.array([2e-3, 1e-4, 0.0, 1e-3, 0.0, 5e-4]), 100, 0.05)


@dataclass(frozen=True, slots=True)
class Part:
    """One request in a step."""

    request: int = ME
    context: int = 0
    prefill: int = 0
    recomputed: int = 0
    decode: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    held_by: Held = Held.NOT
    is_preempted: bool = False

    def pack(self) -> bytes:
        return ENTRY.pack(
            self.request,
            self.context,
            self.prefill,
            self.recomputed,
            self.decode,
            self.drafted,
            self.accepted,
            self.emitted,
            self.held_by,
            self.is_preempted,
        )


def prefill(request: int, tokens: int, context: int = 0, emitted: int = 1) -> Part:
    return Part(request, context, tokens, emitted=emitted)


def decode(request: int, context: int = 100) -> Part:
    return Part(request, context, decode=1, emitted=1)


@dataclass(frozen=True, slots=True)
class Step:
    """One engine step; times in milliseconds."""

    start_ms: float
    end_ms: float
    parts: Sequence[Part] = ()
    held_by: Held = Held.NOT
    follows_loss: bool = False
    state: Sequence[int] = field(default=(0,) * 9)

    def pack(self, number: int) -> bytes:
        return STEP.pack(
            number,
            int(self.start_ms * MS),
            int(self.end_ms * MS),
            0,
            sum(p.prefill for p in self.parts),
            sum(p.decode for p in self.parts),
            sum(p.drafted for p in self.parts),
            sum(p.accepted for p in self.parts),
            *self.state,
            len(self.parts),
            self.held_by,
        )


def pack(steps: Sequence[Step]) -> tuple[StepArray, EntryArray]:
    table = np.frombuffer(b"".join(s.pack(i) for i, s in enumerate(steps)), STEP_TYPE)
    entries = np.frombuffer(b"".join(p.pack() for s in steps for p in s.parts), ENTRY_TYPE)
    return table, entries


def build(*steps: Step) -> Steps:
    table, entries = pack(steps)
    return lay_out(table, entries, np.array([s.follows_loss for s in steps], dtype=np.bool_))


def times(
    arrival: float,
    first: float | None,
    last: float | None,
    submitted: float | None = None,
    holds: Mapping[str, float] | None = None,
) -> RequestTimes:
    """Times in milliseconds; the request is over 1 ms after its last one."""
    end = max(t for t in (arrival, first, last, 0) if t is not None) + 1
    first_ns, last_ns, submitted_ns = (
        None if t is None else int(t * MS) for t in (first, last, submitted)
    )
    in_ns = (int(arrival * MS), int(end * MS), first_ns, last_ns, submitted_ns)
    return RequestTimes(*in_ns, holds={k: ms / 1e3 for k, ms in (holds or {}).items()})


def batch(
    sequence: int, steps: list[Step] | None = None, *events: RequestEvent, lost_steps: int = 0
) -> Batch:
    table, entries = pack(steps or [])
    return Batch(0, sequence, lost_steps, table, entries, events)
