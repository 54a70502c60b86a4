"""Simulate continuous batching: how long an engine is busy with a list of requests.

Each step generates a token for every running request and spends what is left of its token budget
on prompts, first come, first served. Steps that only decode are added up in closed form until a
request arrives or ends, so a simulation takes as long as there are requests, not tokens.
docs/decisions/0354-what-if-by-replay.md explains the choice.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class StepSpeed:
    """Seconds of an engine step: coefficients times what the step computes.

    Steps with and without prompts have coefficients of their own, because engines run different
    code for them.

    Attributes:
        decode: Of steps that only decode: fixed, per request, context token and draft token.
        mixed: Of steps with prompts: the same, then per prompt token and attended pair.
        gap_s: Time between two steps.
    """

    decode: tuple[float, ...]
    mixed: tuple[float, ...]
    gap_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What limits a batch; infinite if unknown.

    Attributes:
        seats: Running requests.
        budget: Tokens of a step.
        blocks: Blocks of the KV cache.
        per_request: Blocks that a request holds in any case.
        per_token: Blocks that a token of its context adds.
        per_shared: Blocks less for a token of its prompt that was cached: others hold it too.
        recomputed: Tokens that a preempted request computes again; the rest is still cached.
    """

    seats: float = math.inf
    budget: float = math.inf
    blocks: float = math.inf
    per_request: float = 0.0
    per_token: float = 0.0
    per_shared: float = 0.0
    recomputed: float = math.inf

    def blocks_of(self, task: Task) -> float:
        """Return the blocks that a request holds once its prompt is computed."""
        held = self.per_request + self.per_token * task.prompt - self.per_shared * task.shared
        return max(held, 0.0)


class Task(NamedTuple):
    """What an engine computes for one request.

    Attributes:
        arrival_s: Its arrival.
        prompt: Prompt tokens.
        cached: Of those, tokens found in the prefix cache; fewer than `prompt`.
        steps: Steps after the one with its first token.
        growth: Tokens by which each of them lengthens its context.
        drafts: Draft tokens that each of them tries.
        shared: Tokens of the prompt that were cached when it was first admitted.
    """

    arrival_s: float
    prompt: int
    cached: int
    steps: int
    growth: float = 1.0
    drafts: float = 0.0
    shared: int = 0


def busy_seconds(
    tasks: Sequence[Task], speed: StepSpeed, limits: BatchLimits, edges_s: Sequence[float]
) -> list[float]:
    """Return the seconds that an engine spends in steps, by interval.

    Args:
        tasks: The requests in the order of arrival; the engine is empty before the first.
        speed: How long steps take.
        limits: What limits them.
        edges_s: Begin of the first interval, and the end of each.
    """
    engine = _SimulatedEngine(speed, limits)
    busy_s = [0.0] * (len(edges_s) - 1)
    now_s = tasks[0].arrival_s if tasks else edges_s[-1]
    arrived = place = 0
    while now_s < edges_s[-1]:
        while arrived < len(tasks) and tasks[arrived].arrival_s <= now_s:
            engine.waiting.append(tasks[arrived])
            arrived += 1
        next_s = tasks[arrived].arrival_s if arrived < len(tasks) else math.inf
        if engine.is_empty:
            now_s = next_s
            continue
        num_steps, seconds = engine.step(next_s - now_s)
        then_s = now_s + seconds + num_steps * speed.gap_s
        ratio = seconds / max(then_s - now_s, 1e-12)
        while place < len(busy_s):
            part_s = min(then_s, edges_s[place + 1]) - max(now_s, edges_s[place])
            busy_s[place] += ratio * max(0.0, part_s)
            if then_s < edges_s[place + 1]:
                break
            place += 1
        now_s = then_s
    return busy_s


class _SimulatedEngine:
    """The requests of an engine, and its next steps."""

    def __init__(self, speed: StepSpeed, limits: BatchLimits) -> None:
        self._speed, self._limits = speed, limits
        self.waiting: deque[Task] = deque()
        # Prompts that are partly computed: how much is computed of each.
        self._prefilling: list[tuple[Task, int]] = []
        # In the order of admission, with the step in which its first token came.
        self._decoding: dict[int, tuple[Task, int]] = {}
        self._ends: list[tuple[int, int]] = []
        self._num_admitted = self._num_running = 0
        self._num_steps = 0
        self._context = self._growth = self._drafts = self._blocks = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether it has no requests."""
        return not (self.waiting or self._prefilling or self._decoding)

    def step(self, until_s: float) -> tuple[int, float]:
        """Compute one step with prompts, or steps that only decode.

        Args:
            until_s: After which time the first of several steps must end.

        Returns:
            How many steps, and their seconds.
        """
        has_room = not self._make_room()
        if self._prefilling or (self.waiting and has_room and self._fits(self.waiting[0])):
            return 1, self._prefill(has_room)
        return self._decode(math.inf if self.waiting else until_s)

    def _fits(self, task: Task) -> bool:
        limits = self._limits
        needed = self._next_blocks + limits.blocks_of(task)
        return self._num_running < limits.seats and (
            needed <= limits.blocks or not self._num_running
        )

    @property
    def _next_blocks(self) -> float:
        return self._blocks + self._limits.per_token * self._growth

    def _prefill(self, admits: bool) -> float:
        fixed, each, read, draft, token, pair = self._speed.mixed
        seconds = fixed + each * len(self._decoding) + read * self._context + draft * self._drafts
        left = self._limits.budget - len(self._decoding) - self._drafts
        pending, self._prefilling = self._prefilling, []
        done: list[Task] = []
        tokens, pairs = 0, 0.0
        while left >= 1:
            if pending:
                task, computed = pending.pop(0)
            elif admits and self.waiting and self._fits(self.waiting[0]):
                task = self.waiting.popleft()
                computed = task.cached
                self._blocks += self._limits.blocks_of(task)
                self._num_running += 1
            else:
                break
            size = int(min(task.prompt - computed, left))
            left -= size
            tokens += size
            pairs += size * (computed + (size + 1) / 2)
            if computed + size == task.prompt:
                done.append(task)
            else:
                self._prefilling.append((task, computed + size))
        self._prefilling += pending
        self._advance(1)
        for task in done:
            self._begin_decode(task)
        return seconds + token * tokens + pair * pairs

    def _begin_decode(self, task: Task) -> None:
        if task.steps <= 0:
            self._num_running -= 1
            self._blocks -= self._limits.blocks_of(task)
            return
        number = self._num_admitted = self._num_admitted + 1
        self._decoding[number] = task, self._num_steps
        heappush(self._ends, (self._num_steps + task.steps, number))
        self._context += task.prompt
        self._growth += task.growth
        self._drafts += task.drafts

    def _decode(self, until_s: float) -> tuple[int, float]:
        fixed, each, read, draft = self._speed.decode
        first_s = fixed + each * len(self._decoding) + read * self._context + draft * self._drafts
        more_s = read * self._growth
        num = self._ends[0][0] - self._num_steps
        if (added := self._limits.per_token * self._growth) > 0:
            num = min(num, int(min((self._limits.blocks - self._blocks) / added, 1e9)))
        if until_s < math.inf:
            num = min(num, _steps_within(until_s, first_s + self._speed.gap_s, more_s))
        num = max(num, 1)
        self._advance(num)
        return num, num * first_s + more_s * num * (num - 1) / 2

    def _advance(self, num_steps: int) -> None:
        self._num_steps += num_steps
        self._context += num_steps * self._growth
        self._blocks += num_steps * self._growth * self._limits.per_token
        while self._ends and self._ends[0][0] <= self._num_steps:
            number = heappop(self._ends)[1]
            if number in self._decoding:
                self._remove(number)
        # Preempted requests leave their ends behind.
        while self._ends and self._ends[0][1] not in self._decoding:
            heappop(self._ends)

    def _remove(self, number: int) -> tuple[Task, int, int]:
        """Take a request out; return it with its context and the steps that it has made."""
        task, since = self._decoding.pop(number)
        num_steps = self._num_steps - since
        context = task.prompt + num_steps * task.growth
        self._context -= context
        self._blocks -= (
            self._limits.blocks_of(task) + self._limits.per_token * num_steps * task.growth
        )
        self._growth -= task.growth
        self._drafts -= task.drafts
        self._num_running -= 1
        if not self._decoding:
            # No rounding errors remain.
            self._context = self._growth = self._drafts = 0.0
        if not self._num_running:
            self._blocks = 0.0
        return task, int(context), num_steps

    def _make_room(self) -> bool:
        """Preempt the newest requests until the next step has room; return whether any was."""
        has_preempted = False
        while len(self._decoding) > 1 and self._next_blocks > self._limits.blocks:
            task, context, num_steps = self._remove(next(reversed(self._decoding)))
            cached = int(max(context + 1 - self._limits.recomputed, 0))
            left = task.steps - num_steps - 1
            self.waiting.appendleft(
                task._replace(prompt=context + 1, cached=min(cached, context), steps=left)
            )
            has_preempted = True
        return has_preempted


def _steps_within(until_s: float, first_s: float, more_s: float) -> int:
    """Return the first number of steps that take `until_s`, if each takes `more_s` longer."""
    if first_s * 1e9 <= until_s:
        return 10**9
    linear = first_s - more_s / 2
    if more_s * until_s < 1e-12 * linear * linear:
        return math.ceil(until_s / linear)
    return math.ceil((math.sqrt(linear * linear + 2 * more_s * until_s) - linear) / more_s)
