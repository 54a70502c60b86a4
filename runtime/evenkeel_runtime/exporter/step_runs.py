"""Merges similar consecutive engine steps into runs, the form in which steps are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenkeel_runtime.ledger.timeline import IntArray, Steps
from evenkeel_runtime.wire.steps import Held

# Longest run, so that a row never hides more than a second of change.
_LONGEST_RUN_NS = 1_000_000_000
# Maximum number of pending runs: later ones are dropped and counted.
MAX_RUNS = 4096
# Maximum number of prefilling requests listed per run.
_MAX_NAMED = 16
_SET_ASIDE = ("num_waiting_grammar", "num_waiting_remote_kv", "num_waiting_other")


@dataclass(slots=True)
class StepRun:
    """Consecutive steps with the same requests doing the same work; token counts are sums.

    Attributes:
        start_ns: Start of the first step, on the monotonic clock.
        end_ns: End of the last.
        busy_ns: Time spent in steps; the rest is host time.
        longest_ns: Duration of the longest step.
        num_steps: Number of steps.
        num_batched: Requests computed per step; the same in all of them.
        num_running: Running requests after scheduling.
        num_waiting: Requests in the scheduler's queue.
        num_set_aside: Of those, blocked for a reason of their own (grammar, remote KV, other).
        held_by: Why the queue waited, by `Held`.
        blocks_live: KV blocks in use by requests, maximum.
        blocks_resident: KV blocks that a later prompt could reuse, in use or not, maximum.
        blocks_total: All KV blocks.
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
        """Return whether the other run continues this one."""
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
        """Extend this run by another."""
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
    """Bounded buffer of one engine's runs."""

    def __init__(self) -> None:
        self._runs: list[StepRun] = []
        self.num_dropped = 0
        self.last_batched = 0

    def add(self, steps: Steps, name_of: Callable[[int], str | None]) -> None:
        """Add steps; `name_of` returns the API id of a request by its number."""
        named = _find_prefilling(steps, name_of)
        for place, run in _runs_of(steps):
            self.last_batched = run.num_batched
            run.prefilling = named.get(place, [])
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


def _find_prefilling(
    steps: Steps, name_of: Callable[[int], str | None]
) -> dict[int, list[tuple[str, int]]]:
    """Return the requests in prefill and their tokens, by step index."""
    entries, rows = steps.entries, steps.rows()
    found: dict[int, list[tuple[str, int]]] = {}
    for index in (entries["prefill_tokens"]).nonzero()[0]:
        mine = found.setdefault(int(rows[index]), [])
        if len(mine) < _MAX_NAMED:
            name = name_of(int(entries["request"][index])) or ""
            mine.append((name, int(entries["prefill_tokens"][index])))
    return found


def _runs_of(steps: Steps) -> Iterator[tuple[int, StepRun]]:
    """Yield the runs among the steps, each with the index of its first step."""
    if not len(steps):
        return
    table, entries, rows = steps.table, steps.entries, steps.rows()
    is_computed = (entries["prefill_tokens"] > 0) | (entries["decode_tokens"] > 0)
    num_batched = np.bincount(rows[is_computed], minlength=len(steps))
    alike = (num_batched, *(table[name] for name in ("num_running", "num_waiting", "held_by")))
    starts = _find_starts(steps, alike)
    busy_ns = steps.end_ns - steps.begin_ns
    emitted = np.bincount(rows, entries["emitted_tokens"], len(steps)).astype(np.int64)
    blocks_live = table["blocks_total"].astype(np.int64) - table["blocks_free"]
    ends = np.append(starts[1:], len(steps))
    columns: dict[str, NDArray[Any]] = {
        "start_ns": steps.begin_ns[starts],
        "end_ns": steps.end_ns[ends - 1],
        "busy_ns": np.add.reduceat(busy_ns, starts),
        "longest_ns": np.maximum.reduceat(busy_ns, starts),
        "num_steps": ends - starts,
        "num_batched": num_batched[starts],
        "num_set_aside": np.sum([table[name][starts] for name in _SET_ASIDE], axis=0),
        "emitted_tokens": np.add.reduceat(emitted, starts),
        "blocks_live": np.maximum.reduceat(blocks_live, starts),
        "blocks_resident": np.maximum.reduceat(table["blocks_cached"], starts),
    }
    for name in ("num_running", "num_waiting", "held_by", "num_preempted", "blocks_total"):
        columns[name] = table[name][starts]
    for name in ("prefill_tokens", "decode_tokens", "drafted_tokens", "accepted_tokens"):
        columns[name] = np.add.reduceat(table[name].astype(np.int64), starts)
    cells = zip(*(column.tolist() for column in columns.values()), strict=True)
    for place, values in zip(starts.tolist(), cells, strict=True):
        yield place, StepRun(**dict(zip(columns, values, strict=True)))


def _find_starts(steps: Steps, alike: Sequence[NDArray[Any]]) -> IntArray:
    """Return the first step of each run: where a column or the kind of work changes."""
    table = steps.table
    is_lone = (table["prefill_tokens"] > 0) | (table["num_preempted"] > 0)
    is_start = np.ones(len(steps), dtype=np.bool_)
    is_start[1:] = is_lone[1:] | is_lone[:-1]
    for column in alike:
        is_start[1:] |= column[1:] != column[:-1]
    start = 0
    for end in (*is_start.nonzero()[0][1:].tolist(), len(steps)):
        # Split runs that would be too long.
        while steps.end_ns[end - 1] - steps.begin_ns[start] > _LONGEST_RUN_NS and end - start > 1:
            limit_ns = steps.begin_ns[start] + _LONGEST_RUN_NS
            cut = int(np.searchsorted(steps.end_ns, limit_ns, side="right"))
            start = min(max(cut, start + 1), end - 1)
            is_start[start] = True
        start = end
    return is_start.nonzero()[0]


def describe_held(held_by: int) -> str:
    """Return the name of the reason why the queue waited; empty if it did not."""
    return "" if held_by == Held.NOT else Held(held_by).name.lower()
