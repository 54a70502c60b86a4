"""Replays of served answers on the model while it is idle."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any
from uuid import uuid4

from evenkeel import spans
from evenkeel_runtime.request.hook import RequestHook
from evenkeel_runtime.request.trace import CURRENT_REQUEST, EngineRun, HttpRequest
from evenkeel_runtime.response_cache import vllm_outputs
from evenkeel_runtime.response_cache.hit_class import NearHit
from evenkeel_runtime.response_cache.question import Question
from evenkeel_runtime.wire.caller import Caller
from evenkeel_runtime.wire.drafts import NO_TENANT, TENANT_KEY
from evenkeel_runtime.wire.observation import REPLAY

_MAX_WAITING = 64
# A server that is never idle would gather no evidence: after this time a replay runs anyway.
_MAX_WAIT_S = 30.0
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One call of the engine.

    Attributes:
        num_changes: How often the weights had changed before.
    """

    run: EngineRun
    prompt: Any
    params: Any
    request_id: str
    options: dict[str, Any]
    num_changes: int = 0


@dataclass(frozen=True, slots=True)
class PendingReplay:
    """One answer to check: the question as the engine would have received it, and the answer.

    Attributes:
        can_run_any_time: Whether the engine itself schedules it after all other requests.
        ratio: Share of served hits that were to be replayed when this one was served.
        num_changes: How often the weights had changed before.
    """

    request_id: str
    question: Question
    near: NearHit
    prompt: Any
    params: Any
    options: dict[str, Any]
    caller: Caller
    can_run_any_time: bool
    ratio: float
    num_changes: int = 0
    asked_at_s: float = field(default_factory=monotonic)


def make_pending(
    engine: Any, call: EngineCall, question: Question, near: NearHit, ratio: float
) -> PendingReplay:
    """Return the replay of a call that the cache answers."""
    options, is_last = vllm_outputs.make_replay_options(engine, call.options)
    caller = Caller() if call.run.request is None else call.run.request.caller
    return PendingReplay(
        request_id=f"replay-{uuid4().hex}",
        question=question,
        near=near,
        prompt=call.prompt,
        params=vllm_outputs.make_replay(call.params),
        options=options,
        caller=replace(caller, session_id=None, parent=None, trace_state=""),
        can_run_any_time=is_last,
        ratio=ratio,
        num_changes=call.num_changes,
    )


def start_replay(hook: RequestHook, replay: PendingReplay) -> EngineRun:
    """Return the run of a replay: nobody's request, for which no tenant pays."""
    CURRENT_REQUEST.set(None)  # The worker's context is a copy of an arbitrary request's.
    run = hook.start_run(replay.request_id, replay.params)
    run.request = HttpRequest(
        "chat", replay.caller, run.arrival_ns, run.arrival_unix_ns, is_over=True
    )
    run.params.extra_args = (run.params.extra_args or {}) | {TENANT_KEY: NO_TENANT}
    run.response_cache = REPLAY
    run.cache[spans.CACHE_SIMILARITY] = replay.near.similarity
    return run


class RunningCount:
    """Counts what clients wait for."""

    def __init__(self) -> None:
        self.num = 0

    async def count(self, outputs: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """Yield a request's outputs, which count until they end."""
        self.num += 1
        try:
            async for output in outputs:
                yield output
        finally:
            self.num -= 1
            await outputs.aclose()


class Replays:
    """A bounded queue, processed one at a time.

    Args:
        run: Runs one replay to completion; raises only on cancellation.
        is_idle: Whether no client is waiting for the engine.
    """

    def __init__(
        self, run: Callable[[PendingReplay], Awaitable[None]], is_idle: Callable[[], bool]
    ) -> None:
        self._run = run
        self._is_idle = is_idle
        self._waiting: deque[PendingReplay] = deque()
        self._worker: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, replay: PendingReplay) -> bool:
        """Queue a replay; return False if the queue is full, whatever the answer was."""
        if len(self._waiting) >= _MAX_WAITING:
            return False
        self._waiting.append(replay)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())
        return True

    async def _work(self) -> None:
        while self._waiting:
            if self._may_run(self._waiting[0]):
                await self._run(self._waiting.popleft())
            else:
                await asyncio.sleep(_LOOK_EVERY_S)

    def _may_run(self, replay: PendingReplay) -> bool:
        has_waited = monotonic() - replay.asked_at_s >= _MAX_WAIT_S
        return replay.can_run_any_time or has_waited or self._is_idle()
