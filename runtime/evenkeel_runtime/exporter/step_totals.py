"""Totals of one engine's steps since the start, and averages over recent ones."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from evenkeel_runtime.ledger.timeline import Steps
from evenkeel_runtime.wire.snapshot import STEP_BOUNDS_S

# Number of steps and prompts that count as "recent".
_RECENT_STEPS = 1000
_RECENT_PROMPTS = 1000


@dataclass(frozen=True, slots=True)
class _Recent:
    """The steps of one batch."""

    num_steps: int
    seconds: float
    drafted: int
    accepted: int


@dataclass(slots=True)
class StepTotals:
    """Totals of an engine that only grow; the `recent_…` ratios cover the last steps.

    Attributes:
        num_steps: Steps that did work.
        seconds: Sum of their durations.
        by_duration: Steps per bucket of `STEP_BOUNDS_S`, the last one for longer steps; not
            cumulative.
        prefill_tokens: Prompt tokens computed.
        decode_tokens: Decode steps summed over requests.
        drafted_tokens: Draft tokens tried.
        accepted_tokens: Draft tokens accepted.
        num_preempted: Preemptions.
        prompt_tokens: Prompt tokens of the requests that were scheduled.
        cached_tokens: Of those, tokens found in the prefix cache.
    """

    num_steps: int = 0
    seconds: float = 0.0
    by_duration: list[int] = field(default_factory=lambda: [0] * (len(STEP_BOUNDS_S) + 1))
    prefill_tokens: int = 0
    decode_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    num_preempted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    _recent: deque[_Recent] = field(default_factory=deque)
    _recent_prompts: deque[tuple[int, int]] = field(
        default_factory=lambda: deque(maxlen=_RECENT_PROMPTS)
    )

    def add_steps(self, steps: Steps) -> None:
        """Add steps; steps that did no work are not counted."""
        table = steps.table
        did_work = (table["prefill_tokens"] > 0) | (table["decode_tokens"] > 0)
        seconds = ((steps.end_ns - steps.begin_ns) / 1e9)[did_work]
        self.num_preempted += int(table["num_preempted"].sum())
        if not len(seconds):
            return
        drafted = int(table["drafted_tokens"].sum())
        accepted = int(table["accepted_tokens"].sum())
        self.num_steps += len(seconds)
        self.seconds += float(seconds.sum())
        places = np.searchsorted(STEP_BOUNDS_S, seconds)
        for place, count in enumerate(np.bincount(places, minlength=len(self.by_duration))):
            self.by_duration[place] += int(count)
        self.prefill_tokens += int(table["prefill_tokens"].sum())
        self.decode_tokens += int(table["decode_tokens"].sum())
        self.drafted_tokens += drafted
        self.accepted_tokens += accepted
        self._recent.append(_Recent(len(seconds), float(seconds.sum()), drafted, accepted))
        while sum(r.num_steps for r in self._recent) - self._recent[0].num_steps >= _RECENT_STEPS:
            self._recent.popleft()

    def add_prompt(self, prompt_tokens: int, cached_tokens: int) -> None:
        """Add a request that was scheduled for the first time."""
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens
        self._recent_prompts.append((prompt_tokens, cached_tokens))

    @property
    def recent_step_s(self) -> float | None:
        """Return the mean duration of the last thousand steps; None before the first."""
        num_steps = sum(r.num_steps for r in self._recent)
        return sum(r.seconds for r in self._recent) / num_steps if num_steps else None

    @property
    def recent_acceptance_ratio(self) -> float | None:
        """Return accepted / drafted tokens of the last thousand steps; None without a draft."""
        drafted = sum(r.drafted for r in self._recent)
        return sum(r.accepted for r in self._recent) / drafted if drafted else None

    @property
    def recent_hit_ratio(self) -> float | None:
        """Return cached / prompt tokens of the last thousand requests; None before the first."""
        prompt = sum(tokens for tokens, _ in self._recent_prompts)
        return sum(cached for _, cached in self._recent_prompts) / prompt if prompt else None
