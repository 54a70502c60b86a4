"""The cache hook between the request hook and the engine: answer, draft or compare.

A cache failure never fails a request: each step is guarded, and errors are counted and logged once,
and the model serves the request.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from time import perf_counter
from typing import Any, TypeVar

from evenkeel import spans
from evenkeel_runtime.request.hook import RequestHook, enter_engine
from evenkeel_runtime.request.trace import EngineRun, charge_to
from evenkeel_runtime.response_cache import vllm_outputs
from evenkeel_runtime.response_cache.answer_drafts import draft_answers, record_verified
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.entry import CacheEntry
from evenkeel_runtime.response_cache.lookup import (
    Details,
    Lookup,
    describe_control,
    describe_lookup,
    find_outcome,
    look_up,
    record_unused,
    record_verdict,
    stop_looking,
    verdict_word,
)
from evenkeel_runtime.response_cache.near_hit_rule import may_serve
from evenkeel_runtime.response_cache.neighbours import Neighbour, Sketch
from evenkeel_runtime.response_cache.policy_reload import PolicyFile, follow
from evenkeel_runtime.response_cache.private_text import PrivateText
from evenkeel_runtime.response_cache.question import Bypass, Question, read_question
from evenkeel_runtime.response_cache.replays import (
    EngineCall,
    Replays,
)
from evenkeel_runtime.response_cache.settings_file import HitMode
from evenkeel_runtime.response_cache.vllm_outputs import Gathered, make_entry
from evenkeel_runtime.response_cache.weights import Weights
from evenkeel_runtime.wire.cause import Cause

logger = logging.getLogger(__name__)

Outputs = AsyncGenerator[Any, None]
T = TypeVar("T")
U = TypeVar("U")


class _RunningCount:
    """Counts what clients wait for."""

    def __init__(self) -> None:
        self.num = 0

    async def count(self, outputs: Outputs) -> Outputs:
        """Yield a request's outputs, which count until they end."""
        self.num += 1
        try:
            async for output in outputs:
                yield output
        finally:
            self.num -= 1
            await outputs.aclose()


class CachedEngine:
    """The cache hook of one server.

    Args:
        cache: The cache.
        hook: The request hook; records replays, counts failures.
        engine: vLLM's engine client.
        random_share: Returns a random number in [0, 1), to choose what to compare.
        file: The cache's file, if it is watched.
    """

    def __init__(
        self,
        cache: ResponseCache,
        hook: RequestHook,
        engine: Any,
        random_share: Callable[[], float] = random.random,
        file: PolicyFile | None = None,
    ) -> None:
        self.cache = cache
        self._hook = hook
        self._engine = engine
        self._weights = Weights(engine)
        cache.controls.load(self._weights.model)
        self._user_words = cache.policy.user_words
        self._private = PrivateText(self._user_words)
        self._random = random_share
        self._running = _RunningCount()
        self.replays = Replays(cache, hook, engine, self._weights, lambda: self._running.num == 0)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._file = file
        self._follower: asyncio.Task[None] | None = None

    @property
    def num_background(self) -> int:
        """Number of answers being compared or stored."""
        return len(self._tasks)

    def start(self) -> None:
        """Follow the cache's file and other runtimes until the server stops."""
        if self._follower is None:
            upkeep = follow(self.cache, self._file, self._record_error)
            self._follower = asyncio.get_running_loop().create_task(upkeep)

    def record_weight_change(self) -> None:
        """Serve no answer, and trust no evidence, of the weights so far."""
        self._weights.change()
        # As with a deletion, answers that began before are neither stored nor compared.
        self.cache.deletions.count += 1
        self.cache.controls.start_over(self._weights.model)

    def answer(
        self, run: EngineRun, prompt: Any, params: Any, request_id: str, options: dict[str, Any]
    ) -> Outputs:
        """Return the outputs of one run, from the engine or the cache."""
        call = EngineCall(run, prompt, params, request_id, options, self._weights.num_changes)
        self.start()
        try:
            question = self._read(call)
        except Exception as error:
            self._record_error(error)
            question = Bypass("internal_error")
        if isinstance(question, Bypass):
            if not run.is_later_beam:
                self.cache.counts.bypasses[question.reason] += 1
                self.cache.counts.outcomes["bypass"] += 1
            run.response_cache = "bypass"
            run.cache[spans.CACHE_REASON] = question.reason
            return self._running.count(self._bypass(call, question.question))
        return self._running.count(self._answer(call, question))

    def _read(self, call: EngineCall) -> Question | Bypass:
        request = call.run.request
        if request is None or request.path != "/v1/chat/completions":
            return Bypass("not_chat")
        sampling = vllm_outputs.read_sampling(call.params)
        rendered = vllm_outputs.read_prompt(call.prompt)
        if sampling is None or rendered is None:
            return Bypass("not_text")
        if self._user_words != self.cache.policy.user_words:
            self._user_words = self.cache.policy.user_words
            self._private = PrivateText(self._user_words)
        return read_question(
            bytes(request.body),
            request.caller,
            sampling,
            self._weights.describe(call.options.get("lora_request")),
            self.cache.modes.policy,
            self._private,
            rendered,
        )

    async def _answer(self, call: EngineCall, question: Question) -> Outputs:
        looking: asyncio.Task[Lookup] | None = None
        found, gathered = Lookup(), Gathered(num_deletions=self.cache.deletions.count)
        drafted: list[CacheEntry] = []
        sketch = functools.cache(functools.partial(self.cache.sketch, question))
        only_exact = False
        if question.policy.mode is HitMode.SHADOW:
            # Concurrently with the model: observation must not add latency.
            looking = asyncio.get_running_loop().create_task(self._look_up(question, sketch))
        else:
            try:
                with charge_to(call.run, Cause.HOST_CACHE):
                    only_exact = not self._may_serve_any(question)
                    found = await self._look_up(question, sketch, only_exact)
                    question = self.cache.modes.as_now(question)
                    hit = await self._guard(self._choose(call, question, found), None)
                    if hit is None:
                        drafted = await self._draft(call, question, found.nearest)
                        call.run.response_cache = "draft" if drafted else None
            except BaseException:
                # The client left.
                self._record_outcome(call.run, question, found)
                raise
            if hit is not None:
                yield hit
                return
        try:
            await enter_engine(call.run, call.options)
            began = perf_counter()
            async with aclosing(self._generate(call)) as outputs:
                async for output in outputs:
                    vllm_outputs.gather(gathered, output)
                    yield output
        except BaseException:
            # The client left, or the engine failed: all that is known is what was found.
            self._record_outcome(call.run, question, stop_looking(looking, found))
            raise
        generation_s = perf_counter() - began
        if call.run.is_cut and gathered.finish_reason == "length":
            # It ends where control cut it: no answer for others, and none to compare.
            gathered.finish_reason = None
        if record_verified(call.run, self.cache.counts, drafted, gathered):
            call.run.response_cache = "verified"
        if only_exact and question.policy.mode is not HitMode.OFF:
            looking = asyncio.get_running_loop().create_task(self._look_up(question, sketch))
        if looking is None:
            self._record_outcome(call.run, question, found)
        # The response finishes meanwhile; the request's record waits for the result.
        learning = self._in_background(self._learn(call.run, question, looking or found, gathered))
        call.run.learning = learning
        self._in_background(self._keep(question, sketch, gathered, generation_s, learning))

    async def _learn(
        self,
        run: EngineRun,
        question: Question,
        looking: Lookup | asyncio.Task[Lookup],
        gathered: Gathered,
    ) -> Lookup:
        """Compare the model's own answer with the cached one; return the lookup."""
        if isinstance(looking, Lookup):
            found = looking
        else:
            found = await looking
            run.cache.update(describe_lookup(question, found))
            self._record_outcome(run, question, found)
            if found.near is not None:
                control = self.cache.control(question.policy)
                run.cache.update(describe_control(control, found.near.hit_class))
        compared: Details = await self._guard(self._compare(question, found, gathered), {})
        run.cache |= compared
        if gathered.is_whole and run.response_cache != "verified":
            record_unused(self.cache.counts, question, found, compared)
        return found

    def _record_outcome(self, run: EngineRun, question: Question, found: Lookup) -> None:
        run.response_cache = run.response_cache or find_outcome(question, found)
        self.cache.counts.outcomes[run.response_cache] += 1

    def _may_serve_any(self, question: Question) -> bool:
        """Whether near hits of some class are served; else an embedding only adds evidence."""
        try:
            is_serving = question.policy.mode is HitMode.SERVE
            return is_serving and bool(self.cache.control(question.policy).served)
        except Exception as error:
            self._record_error(error)
            return False

    async def _look_up(
        self, question: Question, sketch: Sketch, only_exact: bool = False
    ) -> Lookup:
        return await self._guard(look_up(self.cache, question, sketch, only_exact), Lookup())

    async def _choose(self, call: EngineCall, question: Question, found: Lookup) -> Any:
        """Return the cached output to serve, if any."""
        call.run.cache.update(describe_lookup(question, found))
        is_outdated = self._weights.have_changed_since(call.num_changes)
        if question.policy.mode in (HitMode.SHADOW, HitMode.OFF) or is_outdated:
            return None
        control = self.cache.control(question.policy)
        entry, near = found.exact, found.near
        if entry is not None and vllm_outputs.fits(call.params, entry):
            return self._serve(call, "exact", entry)
        if near is None or not vllm_outputs.fits(call.params, near.entry):
            return None
        call.run.cache.update(describe_control(control, near.hit_class))
        queue_replay = functools.partial(self.replays.add, call, question, near)
        if may_serve(question.policy, control, near, self._random, queue_replay):
            return self._serve(call, "semantic", near.entry)
        return None

    def _serve(self, call: EngineCall, layer: str, entry: CacheEntry) -> Any:
        run = call.run
        output = vllm_outputs.make_hit(call.request_id, call.prompt, entry)
        run.is_from_cache = True
        # A guard's objection that the evidence overrides is no reason.
        run.cache.pop(spans.CACHE_REASON, None)
        run.response_cache = layer
        run.cache[spans.CACHE_SAVED_TOKENS] = len(entry.token_ids)
        run.cache[spans.CACHE_SAVED_S] = entry.generation_s
        if run.request is not None:
            run.request.cache_header = layer
        self.cache.counts.outcomes[layer] += 1
        self.cache.counts.record_saved(layer, len(entry.token_ids), entry.generation_s)
        return output

    async def _compare(self, question: Question, found: Lookup, gathered: Gathered) -> Details:
        """Compare the model's own answer with what the cache would have served."""
        cache = self.cache
        is_deleted = gathered.num_deletions != cache.deletions.count
        if not gathered.is_whole or is_deleted:
            return {}
        if found.exact is not None:
            is_same = await cache.compare_answers(found.exact.text, gathered.text)
            if is_same is None:
                return {}
            cache.counts.verdicts["exact", verdict_word(is_same)] += 1
            return {spans.CACHE_VERDICT: verdict_word(is_same)}
        near, control = found.near, cache.control(question.policy)
        if near is None or not control.is_candidate(near.hit_class):
            return {}
        miss = cache.record_near_miss(question, near)
        is_judged = self._random() < control.verdict_ratio(near.hit_class.kind)
        if miss is None and not is_judged:
            return {}
        is_same = await cache.compare_answers(near.entry.text, gathered.text)
        if is_same is None:
            return {}
        if miss is not None:
            miss.was_same = is_same
        said: Details = {spans.CACHE_VERDICT: verdict_word(is_same)}
        return record_verdict(cache, question, near, is_same) if is_judged else said

    async def _keep(
        self,
        question: Question,
        sketch: Sketch,
        gathered: Gathered,
        generation_s: float,
        learning: asyncio.Task[Lookup | None],
    ) -> None:
        found = await learning
        counts, text = self.cache.counts, gathered.text
        is_off = self.cache.modes.as_now(question).policy.mode is HitMode.OFF
        if not gathered.is_whole or not text:
            counts.not_kept["unfinished"] += 1
        elif is_off or gathered.num_deletions != self.cache.deletions.count:
            # It began before the deletion, perhaps from what was to be deleted.
            counts.not_kept["route_off" if is_off else "deleted_meanwhile"] += 1
        elif self._private.find_personal(text) is not None:
            counts.not_kept["personal_data"] += 1
        else:
            entry = make_entry(question, gathered, generation_s)
            vector = None if found is None else found.vector
            await self.cache.keep(question, entry, vector, sketch)

    async def _bypass(self, call: EngineCall, question: Question | None) -> Outputs:
        drafted: list[CacheEntry] = []
        gathered = Gathered(num_deletions=self.cache.deletions.count)
        if question is not None:
            with charge_to(call.run, Cause.HOST_CACHE):
                drafted = await self._draft(call, self.cache.modes.as_now(question))
        await enter_engine(call.run, call.options)
        async with aclosing(self._generate(call)) as outputs:
            async for output in outputs:
                if drafted:
                    vllm_outputs.gather(gathered, output)
                yield output
        record_verified(call.run, self.cache.counts, drafted, gathered)

    async def _draft(
        self, call: EngineCall, question: Question, nearest: Sequence[Neighbour] | None = None
    ) -> list[CacheEntry]:
        drafting = draft_answers(self.cache, question, call.run, call.params, nearest)
        return await self._guard(drafting, [])

    def _generate(self, call: EngineCall) -> Outputs:
        outputs: Outputs = self._engine.generate(
            call.prompt, call.params, call.request_id, **call.options
        )
        return outputs

    def _in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T | None]:
        guarded: Coroutine[Any, Any, T | None] = self._guard(work, None)
        task = asyncio.get_running_loop().create_task(guarded)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guard(self, work: Awaitable[T], otherwise: U) -> T | U:
        try:
            return await work
        except Exception as error:
            self._record_error(error)
            return otherwise

    def _record_error(self, error: Exception) -> None:
        self.cache.counts.errors["internal"] += 1
        self._hook.recorder.record_internal_error(error)
