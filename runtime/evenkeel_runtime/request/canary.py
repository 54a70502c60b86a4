"""Canary that replays a sample of speculatively decoded greedy requests without drafts.

Drafts must not change the output of a greedy request. A replay waits until the server is idle and
runs at the lowest priority if vLLM's scheduling policy supports priorities.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from random import Random
from time import monotonic_ns, time_ns
from typing import Any, Protocol

from evenkeel_runtime.request.trace import EngineRun
from evenkeel_runtime.speculation.draftable import is_sampled
from evenkeel_runtime.wire.drafts import LAST_PRIORITY, NO_TENANT, SPECULATE_KEY, TENANT_KEY
from evenkeel_runtime.wire.observation import CanaryResult

logger = logging.getLogger(__name__)

MATCH, MISMATCH, SKIPPED = "match", "mismatch", "skipped"
_MAX_QUEUED = 16
_POLL_S = 0.2


class ReplayEngine(Protocol):
    """The part of vLLM's engine that the canary uses; the adapter provides it."""

    has_priorities: bool

    def is_idle(self) -> bool:
        """Return whether no request is in progress."""
        ...

    def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **options: Any
    ) -> AsyncGenerator[Any, None]:
        """Generate the outputs of a request."""
        ...


@dataclass(frozen=True, slots=True)
class _Replay:
    """A finished request to replay.

    Attributes:
        arrival_ns: When it arrived: older weights may have answered it since they changed.
    """

    request_id: str
    prompt: dict[str, Any]
    params: Any
    answer: tuple[int, ...]
    arrival_ns: int


class Canary:
    """Replays a sample of the greedy requests that had drafts; use only on the event loop.

    Args:
        ratio: Fraction of requests to replay.
        engine: Runs the replays.
        record: Called with each result.
        random: Random generator for the sampling.
    """

    def __init__(
        self,
        ratio: float,
        engine: ReplayEngine,
        record: Callable[[CanaryResult], None],
        random: Random,
    ) -> None:
        self._ratio = ratio
        self._engine = engine
        self._record = record
        self._random = random
        self._queue: deque[_Replay] = deque()
        self._task: asyncio.Task[None] | None = None
        self._weights_changed_ns = 0
        self.counts: Counter[str] = Counter({MATCH: 0, MISMATCH: 0, SKIPPED: 0})

    def record_weight_change(self) -> None:
        """Replay no answer so far: other weights would give another."""
        self._weights_changed_ns = monotonic_ns()

    def consider(self, run: EngineRun) -> None:
        """Decide at random whether to replay a starting run; if so, start collecting its tokens."""
        if self._ratio and self._random.random() < self._ratio and _is_replayable(run.params):
            run.canary_tokens = []

    def record_output(self, run: EngineRun, output: Any) -> None:
        """Collect the output tokens of a sampled run."""
        completions = output.outputs
        if run.canary_tokens is None or not isinstance(completions, list):
            return
        tokens = completions[0].token_ids
        run.canary_tokens = [*run.canary_tokens, *tokens] if run.is_streamed else list(tokens)

    def enqueue(self, run: EngineRun) -> None:
        """Queue a sampled run for replay if it finished normally and had drafts."""
        tokens, run.canary_tokens = run.canary_tokens, None
        output = run.last_output
        prompt = getattr(output, "prompt_token_ids", None)
        if not tokens or not run.drafts_by_source or run.finish_reason not in ("stop", "length"):
            return
        if not prompt or getattr(output, "lora_request", None) is not None:
            return
        if len(self._queue) >= _MAX_QUEUED:
            self.counts[SKIPPED] += 1
            return
        params = run.params.clone()
        extra = params.extra_args or {}
        params.extra_args = extra | {SPECULATE_KEY: False, TENANT_KEY: NO_TENANT}
        # A unique salt keeps the tenant's prompt out of the shared prefix cache.
        salt = f"canary-{run.request_id}"
        text = {"prompt_token_ids": list(prompt), "cache_salt": salt}
        self._queue.append(_Replay(run.request_id, text, params, tuple(tokens), run.arrival_ns))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._replay_all())

    async def _replay_all(self) -> None:
        while self._queue:
            while not self._engine.is_idle():
                await asyncio.sleep(_POLL_S)
            replay = self._queue.popleft()
            try:
                if self._may_compare(replay):
                    await self._replay(replay)
                else:
                    self.counts[SKIPPED] += 1
            except Exception as error:
                self.counts[SKIPPED] += 1
                logger.debug("canary of %s failed: %r", replay.request_id, error)

    def _may_compare(self, replay: _Replay) -> bool:
        return replay.arrival_ns >= self._weights_changed_ns

    async def _replay(self, replay: _Replay) -> None:
        tokens: list[int] = []
        options = {"priority": LAST_PRIORITY} if self._engine.has_priorities else {}
        request_id = f"canary-{replay.request_id}"
        outputs = self._engine.generate(replay.prompt, replay.params, request_id, **options)
        is_streamed = _is_streamed(replay.params)
        async for output in outputs:
            new = output.outputs[0].token_ids
            tokens = [*tokens, *new] if is_streamed else list(new)
        if not self._may_compare(replay):
            self.counts[SKIPPED] += 1
            return
        at = find_difference(replay.answer, tokens)
        result = MATCH if at is None else MISMATCH
        self.counts[result] += 1
        if at is not None and self.counts[MISMATCH] == 1:
            logger.warning(
                "a greedy answer differs without drafts; further mismatches are only counted: "
                "request_id=%s token=%d",
                replay.request_id,
                at,
            )
        self._record(
            CanaryResult(
                of_request_id=replay.request_id,
                unix_ns=time_ns(),
                result=result,
                num_tokens=len(replay.answer),
                first_difference=at,
            )
        )


def find_difference(answer: Sequence[int], again: Sequence[int]) -> int | None:
    """Return the first index where the two differ (one ending early counts), or None if equal."""
    for at, (a, b) in enumerate(zip(answer, again, strict=False)):
        if a != b:
            return at
    return None if len(answer) == len(again) else min(len(answer), len(again))


def _is_replayable(params: Any) -> bool:
    """Return whether the parameters ask for one greedy answer that depends only on the prompt."""
    if getattr(params, "temperature", None) is None or is_sampled(params):
        return False
    return (params.n or 1) == 1 and not params.stop and params.prompt_logprobs is None


def _is_streamed(params: Any) -> bool:
    return getattr(params.output_kind, "name", "") == "DELTA"
