"""Replays of served answers on the model while it is idle."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any
from uuid import uuid4

from evenkeel import spans
from evenkeel_runtime.request.hook import RequestHook
from evenkeel_runtime.request.trace import CURRENT_REQUEST, EngineRun, HttpRequest
from evenkeel_runtime.response_cache import vllm_outputs
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.hit_class import NearHit
from evenkeel_runtime.response_cache.lookup import Details, record_verdict
from evenkeel_runtime.response_cache.question import Question
from evenkeel_runtime.response_cache.vllm_outputs import Gathered
from evenkeel_runtime.response_cache.weights import Weights
from evenkeel_runtime.wire.caller import Caller
from evenkeel_runtime.wire.drafts import NO_TENANT, TENANT_KEY
from evenkeel_runtime.wire.observation import REPLAY

_MAX_WAITING = 64
# A server that is never idle would gather no evidence: after this time a replay runs anyway.
_MAX_WAIT_S = 30.0
_LOOK_EVERY_S = 0.05
# How often a replay tries to have its answer compared: over 30 s.
_COMPARISON_TRIES = 600

logger = logging.getLogger(__name__)


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


class Replays:
    """A bounded queue, processed one at a time.

    Args:
        cache: The cache, whose evidence the replays are.
        hook: The request hook; records replays, counts failures.
        engine: vLLM's engine client.
        weights: The weights that answer now.
        is_idle: Whether no client is waiting for the engine.
    """

    def __init__(
        self,
        cache: ResponseCache,
        hook: RequestHook,
        engine: Any,
        weights: Weights,
        is_idle: Callable[[], bool],
    ) -> None:
        self._cache = cache
        self._hook = hook
        self._engine = engine
        self._weights = weights
        self._is_idle = is_idle
        self._waiting: deque[PendingReplay] = deque()
        self._worker: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, call: EngineCall, question: Question, near: NearHit, ratio: float) -> bool:
        """Queue a replay; return False if the queue is full, whatever the answer was."""
        if len(self._waiting) >= _MAX_WAITING:
            self._cache.counts.replays["dropped"] += 1
            return False
        self._waiting.append(make_pending(self._engine, call, question, near, ratio))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())
        self._cache.counts.replays["queued"] += 1
        self._cache.control(question.policy).wrong_hits.num_pending += 1
        return True

    async def _work(self) -> None:
        while self._waiting:
            if self._may_run(self._waiting[0]):
                await self.run(self._waiting.popleft())
            else:
                await asyncio.sleep(_LOOK_EVERY_S)

    def _may_run(self, replay: PendingReplay) -> bool:
        has_waited = monotonic() - replay.asked_at_s >= _MAX_WAIT_S
        return replay.can_run_any_time or has_waited or self._is_idle()

    async def run(self, replay: PendingReplay) -> None:
        """Replay a cached answer's request on the model, and compare."""
        counts = self._cache.counts
        if self._weights.have_changed_since(replay.num_changes):
            counts.replays["dropped"] += 1
            return
        run = start_replay(self._hook, replay)
        control = self._cache.control(replay.question.policy)
        try:
            async for _ in self._hook.observe(run, self._outputs(run, replay)):
                pass
        except Exception as error:
            counts.replays["failed"] += 1
            logger.debug("a replay failed", exc_info=error)
        finally:
            control.wrong_hits.record_replayed()
        if self._weights.have_changed_since(replay.num_changes):
            return
        # A dead engine says nothing about the hit, and nothing is served from now on.
        if spans.CACHE_VERDICT not in run.cache and not getattr(self._engine, "errored", False):
            hit_class = replay.near.hit_class
            self._cache.controls.record_unjudged(replay.question.policy, hit_class, replay.ratio)

    async def _outputs(self, run: EngineRun, replay: PendingReplay) -> AsyncGenerator[Any, None]:
        gathered = Gathered()
        outputs = self._engine.generate(
            replay.prompt, replay.params, replay.request_id, **replay.options
        )
        try:
            async for output in outputs:
                vllm_outputs.gather(gathered, output)
                yield output
        finally:
            await outputs.aclose()
        if gathered.is_whole:
            try:
                run.cache |= await self._judge(replay, gathered.text)
            except Exception as error:
                self._cache.counts.errors["internal"] += 1
                self._hook.recorder.record_internal_error(error)
            self._cache.counts.replays["done"] += 1

    async def _judge(self, replay: PendingReplay, text: str) -> Details:
        # The bound on wrong hits counts on the verdict of each replay.
        near, tries = replay.near, _COMPARISON_TRIES
        is_same = await self._cache.compare_answers(near.entry.text, text, tries)
        if is_same is None or self._weights.have_changed_since(replay.num_changes):
            return {}
        return record_verdict(self._cache, replay.question, near, is_same, replay.ratio)
