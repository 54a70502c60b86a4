"""Packs the engine steps that are over into records, many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel_runtime.engine.sender import StepSender
from evenkeel_runtime.wire.steps import ENTRY, MAX_BYTE, REPEATED, STEP, Held

# Most steps, and most of their requests to pack one by one, that wait: what is packed at once must
# not hold up the step that it follows.
_MAX_STEPS = 64
_MAX_ENTRIES = 1024
_NOT = int(Held.NOT)
_pack = ENTRY.pack
# Request id, number, context, prefill, recomputed and drafted tokens.
Scheduled = tuple[str, int, int, int, int, int]


def pack_held(number: int, reason: int, is_preempted: bool = False) -> bytes:
    """Return the entry of a request that was left waiting, by its number."""
    return _pack(number, 0, 0, 0, 0, 0, 0, 0, reason, is_preempted)


@dataclass(frozen=True, slots=True)
class HeldRequests:
    """Who was left waiting: by what the queue was, how many by reasons of their own, and whom."""

    queue_held_by: int
    num_set_aside: tuple[int, int, int]
    entries: Sequence[bytes]


NOBODY_HELD = HeldRequests(_NOT, (0, 0, 0), ())


@dataclass(slots=True)
class EngineStep:
    """A step that was scheduled, and, once its output is back, what came of it.

    `scheduled` is that of the step `num_again` steps before: since then, every step had the same
    requests, each with one token to decode. `emitted` is None where each got one token.
    """

    output: Any
    start_ns: int
    schedule_ns: int
    state: tuple[int, ...]
    scheduled: list[Scheduled]
    num_again: int
    held: HeldRequests
    end_ns: int = 0
    emitted: dict[str, int] | None = None


class StepPacker:
    """Keeps steps that are over until they are due, and packs them together.

    Between two steps the model has used the processor's caches: to pack a step there costs several
    times what it costs right behind another one (docs/decisions/0183-steps-packed-together.md).

    Args:
        sender: Where records go; its interval says when they are due.
    """

    def __init__(self, sender: StepSender) -> None:
        self._sender = sender
        self._steps: list[EngineStep] = []
        self._num_entries = 0
        # The last step that was packed, if one like it can be told as its repetition.
        self._last: EngineStep | None = None
        self._num_packed = 0

    def add(self, step: EngineStep) -> None:
        """Take in a step that is over; all are packed now if the oldest is due, or if many wait."""
        steps = self._steps
        steps.append(step)
        if step.emitted is not None or step.held.entries or not step.num_again:
            self._num_entries += len(step.scheduled) + len(step.held.entries)
        oldest_ns = self._sender.oldest_ns or steps[0].end_ns
        if (
            step.end_ns - oldest_ns >= self._sender.interval_ns
            or len(steps) >= _MAX_STEPS
            or self._num_entries >= _MAX_ENTRIES
        ):
            self.send()

    def send(self) -> None:
        """Pack what is here and give it to the sender."""
        steps, self._steps, self._num_entries = self._steps, [], 0
        for step in steps:
            self._pack_step(step)

    def _pack_step(self, step: EngineStep) -> None:
        entries: list[bytes] = []
        num_entries = REPEATED
        all_prefill = all_drafted = all_accepted = 0
        all_decode = len(step.scheduled)
        emitted = step.emitted
        is_plain = emitted is None and not step.held.entries
        if not (is_plain and self._repeats_the_last(step)):
            entries += step.held.entries
            all_decode = 0
            for request_id, number, context, prefill, recomputed, drafted in step.scheduled:
                tokens = 1 if emitted is None else emitted.get(request_id, 0)
                accepted = min(drafted, tokens - 1) if drafted and tokens else 0
                decode = 0 if prefill else 1
                all_prefill += prefill
                all_decode += decode
                all_drafted += drafted
                all_accepted += accepted
                if drafted > MAX_BYTE or tokens > MAX_BYTE:
                    drafted, accepted, tokens = (
                        min(n, MAX_BYTE) for n in (drafted, accepted, tokens)
                    )
                context += step.num_again
                entries.append(
                    _pack(
                        *(number, context, prefill, recomputed, decode),
                        *(drafted, accepted, tokens, _NOT, 0),
                    )
                )
            num_entries = len(entries)
        is_plain = is_plain and not all_prefill and not all_drafted
        self._last = step if is_plain else None
        row = STEP.pack(
            self._num_packed,
            step.start_ns,
            step.end_ns,
            min(step.schedule_ns, 0xFFFFFFFF),
            all_prefill,
            all_decode,
            all_drafted,
            all_accepted,
            *step.state,
            num_entries,
            step.held.queue_held_by,
        )
        self._num_packed += 1
        self._sender.add_step(row, entries, step.end_ns)

    def _repeats_the_last(self, step: EngineStep) -> bool:
        """Whether the step packed before, in the same batch, was this one with one token less."""
        last = self._last
        return (
            last is not None
            and last.scheduled is step.scheduled
            and last.num_again + 1 == step.num_again
            and self._sender.has_steps
        )
