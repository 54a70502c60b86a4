"""Packs finished engine steps into records, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel_runtime.engine.sender import StepSender
from evenkeel_runtime.wire.steps import ENTRY, MAX_BYTE, REPEATED, STEP, Held

# Maximum number of waiting steps, and of request entries to pack for them: packing a batch must not
# delay the next step noticeably.
_MAX_STEPS = 64
_MAX_ENTRIES = 1024
_NOT = int(Held.NOT)
_pack = ENTRY.pack
# Request id, number, context, prefill, recomputed and drafted tokens.
Scheduled = tuple[str, int, int, int, int, int]


def pack_held(number: int, reason: int, is_preempted: bool = False) -> bytes:
    """Return the packed entry of a request that was left waiting."""
    return _pack(number, 0, 0, 0, 0, 0, 0, 0, reason, is_preempted)


@dataclass(frozen=True, slots=True)
class HeldRequests:
    """The requests left waiting: why the queue waited, counts by individual reason, entries."""

    queue_held_by: int
    num_set_aside: tuple[int, int, int]
    entries: Sequence[bytes]


NONE_HELD = HeldRequests(_NOT, (0, 0, 0), ())


@dataclass(slots=True)
class EngineStep:
    """A scheduled step, completed once its output is back.

    `scheduled` is that of the step `num_again` steps earlier: every step since then had the same
    requests, each decoding one token. `emitted` is None if each request got one token.
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
    """Collects finished steps and packs them together when they are due.

    The model evicts the processor's caches between steps, so packing one step at a time costs
    several times as much as packing a batch (docs/decisions/0183-steps-packed-together.md).

    Args:
        sender: Sends the records; its interval determines when they are due.
    """

    def __init__(self, sender: StepSender) -> None:
        self._sender = sender
        self._steps: list[EngineStep] = []
        self._num_entries = 0
        # The last packed step, if an equal one can be encoded as its repetition.
        self._last: EngineStep | None = None
        self._num_packed = 0

    def add(self, step: EngineStep) -> None:
        """Add a finished step; pack all steps if the oldest is due or many are waiting."""
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
        """Pack the collected steps and pass them to the sender."""
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
        """Whether the previous step of the batch was the same one, with one token less."""
        last = self._last
        return (
            last is not None
            and last.scheduled is step.scheduled
            and last.num_again + 1 == step.num_again
            and self._sender.has_steps
        )
