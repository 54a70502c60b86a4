"""Merges consecutive engine steps that are alike into runs: what is stored of an engine's past."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.step_record import Held
from runtime.timeline import Steps

# A run ends after this, so that rows never hide a second of change.
_LONGEST_RUN_NS = 1_000_000_000
# Most runs that wait to be taken: later ones are left out and counted.
MAX_RUNS = 4096
# Most requests in prefill that one run names.
_MAX_NAMED = 16


@dataclass(slots=True)
class StepRun:
    """Consecutive steps with the same requests at the same work; token counts are sums.

    Attributes:
        start_ns: Begin of the first step, on the monotonic clock.
        end_ns: End of the last.
        busy_ns: Time that steps took; the rest of it was the host's.
        longest_ns: Duration of the longest step.
        num_steps: How many steps.
        num_batched: Requests computed in a step; the same in all of them.
        num_running: Requests that the scheduler ran, after the step was planned.
        num_waiting: Requests in its queue.
        num_set_aside: Of those, set aside for a reason of their own (grammar, remote KV, other).
        held_by: Why the queue waited, by `Held`.
        blocks_live: KV blocks that requests used, at most.
        blocks_resident: KV blocks that a later prompt could reuse, in use or not, at most.
        blocks_total: KV blocks that there are.
        prefilling: The requests in prefill and their tokens.
    """

    start_ns: int
    end_ns: int
    busy_ns: int
    longest_ns: int
    num_steps: int
    num_batched: int
    num_running: int
    num_waiting: int
    num_set_aside: int
    held_by: int
    prefill_tokens: int
    decode_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    emitted_tokens: int
    num_preempted: int
    blocks_live: int
    blocks_resident: int
    blocks_total: int
    prefilling: list[tuple[str, int]] = field(default_factory=list)

    def extends(self, before: StepRun) -> bool:
        """Whether it is more of the same."""
        return (
            not self.prefill_tokens
            and not before.prefill_tokens
            and not self.num_preempted
            and not before.num_preempted
            and self.num_batched == before.num_batched
            and self.num_running == before.num_running
            and self.num_waiting == before.num_waiting
            and self.held_by == before.held_by
            and self.end_ns - before.start_ns <= _LONGEST_RUN_NS
        )

    def add(self, more: StepRun) -> None:
        """Take in a run that extends this one."""
        self.end_ns = more.end_ns
        self.busy_ns += more.busy_ns
        self.longest_ns = max(self.longest_ns, more.longest_ns)
        self.num_steps += more.num_steps
        self.decode_tokens += more.decode_tokens
        self.drafted_tokens += more.drafted_tokens
        self.accepted_tokens += more.accepted_tokens
        self.emitted_tokens += more.emitted_tokens
        self.blocks_live = max(self.blocks_live, more.blocks_live)
        self.blocks_resident = max(self.blocks_resident, more.blocks_resident)


class StepRuns:
    """Collects the runs of one engine until they are taken; bounded."""

    def __init__(self) -> None:
        self._runs: list[StepRun] = []
        self.num_dropped = 0
        self.last_batched = 0

    def add(self, steps: Steps, name_of: Callable[[int], str | None]) -> None:
        """Add steps; `name_of` says what the API calls a request, by its number."""
        at = 0
        for place in range(len(steps)):
            entries = steps.entries[at : at + int(steps.num_entries[place])]
            at += len(entries)
            run = _run_of(steps, place)
            is_computed = (entries["prefill_tokens"] > 0) | (entries["decode_tokens"] > 0)
            run.num_batched = self.last_batched = int(is_computed.sum())
            run.emitted_tokens = int(entries["emitted_tokens"].sum())
            if run.prefill_tokens:
                mine = entries[entries["prefill_tokens"] > 0][:_MAX_NAMED]
                for row in mine:
                    name = name_of(int(row["request"])) or ""
                    run.prefilling.append((name, int(row["prefill_tokens"])))
            if self._runs and run.extends(self._runs[-1]):
                self._runs[-1].add(run)
            elif len(self._runs) < MAX_RUNS:
                self._runs.append(run)
            else:
                self.num_dropped += 1

    def take(self) -> list[StepRun]:
        """Return the runs since the last call."""
        runs, self._runs = self._runs, []
        return runs


def _run_of(steps: Steps, place: int) -> StepRun:
    row = steps.table[place]
    begin_ns, end_ns = int(steps.begin_ns[place]), int(steps.end_ns[place])
    set_aside = ("num_waiting_grammar", "num_waiting_remote_kv", "num_waiting_other")
    return StepRun(
        start_ns=begin_ns,
        end_ns=end_ns,
        busy_ns=end_ns - begin_ns,
        longest_ns=end_ns - begin_ns,
        num_steps=1,
        num_batched=0,
        num_running=int(row["num_running"]),
        num_waiting=int(row["num_waiting"]),
        num_set_aside=sum(int(row[name]) for name in set_aside),
        held_by=int(row["held_by"]),
        prefill_tokens=int(row["prefill_tokens"]),
        decode_tokens=int(row["decode_tokens"]),
        drafted_tokens=int(row["drafted_tokens"]),
        accepted_tokens=int(row["accepted_tokens"]),
        emitted_tokens=0,
        num_preempted=int(row["num_preempted"]),
        blocks_live=int(row["blocks_total"]) - int(row["blocks_free"]),
        blocks_resident=int(row["blocks_cached"]),
        blocks_total=int(row["blocks_total"]),
    )


def describe_held(held_by: int) -> str:
    """Return the word for why a queue waited; empty where it did not."""
    return "" if held_by == Held.NOT else Held(held_by).name.lower()
