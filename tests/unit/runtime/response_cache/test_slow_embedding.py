"""Whatever becomes of embeddings, a request waits for them up to the limit, and is recorded."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.sampling_params import RequestOutputKind, SamplingParams

from evenkeel import spans
from evenkeel.embedding import Encoder, Vectors, load_encoder
from evenkeel.spans import Status
from evenkeel_runtime.adapter.vllm import find_beam_search
from evenkeel_runtime.request.hook import EngineReader, RequestHook
from evenkeel_runtime.request.trace import CURRENT_REQUEST, HttpRequest, Refusal
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.cached_engine import CachedEngine
from evenkeel_runtime.response_cache.hit_class import KNOWN_WORDS, HitClass
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.replays import PendingReplay
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode, RoutePolicy
from evenkeel_runtime.wire.caller import Caller
from evenkeel_runtime.wire.cause import Cause
from evenkeel_runtime.wire.observation import Observation

ASKED = "Please, how can I return the items?"
UNLIKE = "Which colours do your kettles come in?"


class SlowEncoder:
    """The real encoder; embeddings of texts with a certain part wait until it is `opened`."""

    def __init__(self, hangs_on: str = "") -> None:
        self._hangs_on = hangs_on
        self._encoder: Encoder = load_encoder()
        self.opened = Event()
        self.texts: list[str] = []
        self.num_sketches = 0

    def sketch(self, text: str) -> Vectors | None:
        self.num_sketches += 1
        return self._encoder.sketch(text)

    def encode(self, text: str) -> Vectors:
        self.texts.append(text)
        assert self._hangs_on not in text or self.opened.wait(600)
        return self._encoder.encode(text)


class Model:
    """An engine with one answer."""

    model_config = None
    text = "Send it back within a month."
    finish_reason = "stop"

    async def generate(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        completion = SimpleNamespace(
            index=0,
            text=self.text,
            token_ids=[1, 2],
            finish_reason=self.finish_reason,
            stop_reason=None,
        )
        yield SimpleNamespace(outputs=[completion], finished=True, prompt_token_ids=[1])


class Notebook:
    def __init__(self) -> None:
        self.seen: list[Observation] = []

    def record(self, seen: Observation) -> None:
        self.seen.append(seen)

    def record_internal_error(self, error: Exception) -> None:
        raise error


class Server:
    """The cache and its hook in front of a model."""

    def __init__(self, mode: HitMode, encoder: SlowEncoder, limit_s: float) -> None:
        route = RoutePolicy(mode=mode, similarities=(0.7,))
        policy = CachePolicy(embedding_timeout_s=limit_s, routes=(route,))
        self.cache = ResponseCache(
            policy,
            MemoryBackend(1 << 20),
            encoder,  # type: ignore[arg-type]
            AuditLog(None),
        )
        self.notebook = Notebook()
        reader = EngineReader(
            is_streamed=lambda params: False,
            record_output=lambda run, output: 0,
            read_engine=lambda run, seen: None,
            find_times=lambda request_id: [],
            find_beam_search=find_beam_search,
        )
        self.hook = RequestHook(self.notebook, reader, "support")  # type: ignore[arg-type]
        self.model = Model()
        self.options: dict[str, Any] = {}
        self.template = "User: {}\nAssistant:"
        self.engine = CachedEngine(self.cache, self.hook, self.model)

    async def ask(self, text: str, max_tokens: int = 16, *, is_cut: bool = False) -> None:
        """Ask as a client does, to the end of the response."""
        final_only = RequestOutputKind.FINAL_ONLY
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, output_kind=final_only)
        request = HttpRequest("chat", Caller(tenant="acme"), path="/v1/chat/completions")
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        request.body += json.dumps(body).encode()
        token = CURRENT_REQUEST.set(request)
        try:
            run = self.hook.start_run("r", params)
            run.is_cut = is_cut
            rendered = self.template.format(text)
            prompt = {"type": "token", "prompt_token_ids": [1], "prompt": rendered}
            outputs = self.engine.answer(run, prompt, params, "r", dict(self.options))
            async for _ in self.hook.observe(run, outputs):
                pass
        finally:
            CURRENT_REQUEST.reset(token)
        request.http_status = 200
        self.hook.finish_request(request, lambda: Refusal("r", "m", "none"))

    async def know(self, *texts: str) -> None:
        """Let the cache have answers to these, in the scope that `ask` asks in."""
        for text in texts:
            await self.ask(text)
        await self.settle()
        self.notebook.seen.clear()

    async def settle(self) -> None:
        while self.engine.num_background:
            await asyncio.sleep(0.01)


@pytest.fixture
def encoder() -> Iterator[SlowEncoder]:
    encoder = SlowEncoder()
    yield encoder
    encoder.opened.set()


@pytest.mark.parametrize(
    ("mode", "serves_a_kind"),
    [
        pytest.param(HitMode.SERVE, True, id="serve"),
        pytest.param(HitMode.SERVE, False, id="serve, without evidence"),
        pytest.param(HitMode.DRAFT, True, id="draft"),
        pytest.param(HitMode.SHADOW, True, id="shadow"),
    ],
)
async def test_a_hung_embedding_holds_nobody_and_every_answer_is_kept(
    mode: HitMode, serves_a_kind: bool, encoder: SlowEncoder
) -> None:
    server = Server(mode, encoder, 1.0)
    await server.know("How do I return an item?")
    if serves_a_kind:
        control = server.cache.control(server.cache.policy.routes[0])
        control.served[KNOWN_WORDS] = control.evidence[KNOWN_WORDS][0]
    async with asyncio.timeout(120):
        await asyncio.gather(*(server.ask(f"{ASKED} And {n} more?") for n in range(40)))
        await server.settle()
    counts = server.cache.counts
    assert counts.stored == 41
    assert set(counts.embeddings) == {"late", "queue_full"}
    assert counts.embeddings.total() == 40
    assert len(encoder.texts) == 1  # What is given up is not embedded.
    assert (
        counts.outcomes
        == {
            HitMode.SHADOW: {"miss": 41},
            HitMode.SERVE: {"miss": 1, "draft": 40},
            HitMode.DRAFT: {"miss": 1, "draft": 40},
        }[mode]
    )
    assert len(server.notebook.seen) == 40
    reasons = {seen.cache[spans.CACHE_REASON] for seen in server.notebook.seen}
    assert reasons == {"embedding_late", "embedding_queue_full"}
    # The ledger has it where a near hit could have been served; else nobody waits.
    held = [seen.holds.get(Cause.HOST_CACHE, 0.0) for seen in server.notebook.seen]
    assert (max(held) >= 1.0) is (mode is HitMode.SERVE and serves_a_kind)
    await server.cache.close()


class FailingEncoder(SlowEncoder):
    def encode(self, text: str) -> Vectors:
        raise MemoryError(text)


@pytest.mark.parametrize("mode", [HitMode.SERVE, HitMode.DRAFT, HitMode.SHADOW])
async def test_an_embedding_that_fails_costs_nobody_an_answer(mode: HitMode) -> None:
    server = Server(mode, FailingEncoder(), 10)
    errors: list[Exception] = []
    server.notebook.record_internal_error = errors.append  # type: ignore[assignment, method-assign]
    await server.know("How do I return an item?")
    await server.ask(ASKED)
    await server.settle()
    (seen,) = server.notebook.seen
    assert (seen.status, seen.response_cache in ("miss", "draft")) == (Status.OK, True)
    assert server.cache.counts.stored == 2
    assert {type(error) for error in errors} == {MemoryError}
    await server.cache.close()


class FailingModel(Model):
    """An engine that fails, or whose answers cannot be compared."""

    def __init__(self, error: Exception | None = None, *, errored: bool = False) -> None:
        self._error = error
        self.errored = errored

    async def generate(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        if self._error is not None:
            raise self._error
        async for output in super().generate():
            yield output


@pytest.mark.parametrize(
    ("model", "num_found"),
    [
        pytest.param(FailingModel(RuntimeError("no room")), 1, id="the replay fails"),
        pytest.param(FailingModel(), 1, id="its comparison fails"),
        pytest.param(FailingModel(RuntimeError("dead"), errored=True), 0, id="the engine is dead"),
    ],
)
async def test_a_served_hit_that_could_not_be_checked_counts_as_wrong(
    model: FailingModel, num_found: int
) -> None:
    server = Server(HitMode.SERVE, FailingEncoder(), 10)
    server.notebook.record_internal_error = lambda error: None  # type: ignore[method-assign]
    server.engine = CachedEngine(server.cache, server.hook, model)
    policy = server.cache.policy.routes[0]
    near: Any = SimpleNamespace(
        hit_class=HitClass(KNOWN_WORDS, 0.9, 0.4),
        similarity=0.9,
        entry=SimpleNamespace(text="Never.", token_ids=(1,)),
    )
    question: Any = SimpleNamespace(policy=policy)
    replay: Any = PendingReplay("r", question, near, "p", SamplingParams(), {}, Caller(), True, 1.0)
    wrong_hits = server.cache.control(policy).wrong_hits
    wrong_hits.num_pending = 1
    await server.engine.replays.run(replay)
    assert (wrong_hits.num_pending, wrong_hits.num_detected) == (0, num_found)
    await server.cache.close()


async def test_where_nothing_is_near_nothing_is_embedded(encoder: SlowEncoder) -> None:
    server = Server(HitMode.SERVE, encoder, 10)
    await server.know("How do I return an item?")
    await server.ask(UNLIKE)
    await server.settle()
    assert encoder.texts == []
    assert server.cache.counts.embeddings == {"nothing_near": 1}
    assert server.cache.counts.stored == 2
    await server.cache.close()


@pytest.mark.parametrize("mode", [HitMode.SERVE, HitMode.DRAFT, HitMode.SHADOW])
async def test_evidence_that_cannot_be_read_costs_nobody_an_answer(
    mode: HitMode, encoder: SlowEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(policy: RoutePolicy) -> None:
        raise OSError("no evidence")

    server = Server(mode, encoder, 10)
    errors: list[Exception] = []
    server.notebook.record_internal_error = errors.append  # type: ignore[assignment, method-assign]
    await server.know("How do I return an item?")
    monkeypatch.setattr(server.cache.controls, "find", fail)
    await server.ask(ASKED)
    await server.settle()
    (seen,) = server.notebook.seen
    assert seen.status is Status.OK
    assert server.cache.counts.stored == 2
    assert {type(error) for error in errors} == {OSError}
    assert server.cache.counts.outcomes.total() == 2
    monkeypatch.undo()
    await server.cache.close()


@pytest.mark.parametrize("mode", [HitMode.SERVE, HitMode.DRAFT, HitMode.SHADOW])
async def test_a_static_vector_is_computed_once_and_serves_to_store_the_answer(
    mode: HitMode, encoder: SlowEncoder
) -> None:
    server = Server(mode, encoder, 10)
    # The last one has too many tokens to have a vector.
    await server.know("How do I return an item?", UNLIKE, "word " * 400)
    assert (encoder.num_sketches, len(server.cache.index)) == (3, 2)
    assert server.cache.counts.stored == 3
    await server.cache.close()


async def test_a_response_does_not_wait_for_a_comparison_and_its_record_does() -> None:
    encoder = SlowEncoder(hangs_on="month")
    server = Server(HitMode.SERVE, encoder, 10)
    await server.know("How do I return an item?")
    server.model.text = "Within a month, send it back."
    async with asyncio.timeout(120):
        await server.ask(ASKED)
        while len(encoder.texts) < 3:  # The questions, and the first of the answers.
            await asyncio.sleep(0.01)
    assert server.notebook.seen == []
    encoder.opened.set()
    await server.settle()
    (seen,) = server.notebook.seen
    assert seen.cache[spans.CACHE_VERDICT] == "same"
    assert server.cache.counts.verdicts == {("semantic", "same"): 1}
    await server.cache.close()


async def test_a_comparison_that_is_under_way_at_the_end_does_not_cost_the_record() -> None:
    encoder = SlowEncoder(hangs_on="month")
    server = Server(HitMode.SERVE, encoder, 10)
    await server.know("How do I return an item?")
    server.model.text = "Within a month, send it back."
    await server.ask(ASKED)
    assert server.notebook.seen == []
    server.hook.close()
    assert [seen.response_cache for seen in server.notebook.seen] == ["draft"]
    encoder.opened.set()
    await server.settle()
    assert len(server.notebook.seen) == 1
    await server.cache.close()


async def test_comparisons_have_a_bounded_queue_that_does_not_look_at_what_is_compared() -> None:
    encoder = SlowEncoder(hangs_on="month")
    server = Server(HitMode.SERVE, encoder, 10)
    cache = server.cache
    compare = partial(cache.compare_answers, "It is in a month.", "It is in the month.")
    tasks = [asyncio.create_task(compare())]
    while not encoder.texts:
        await asyncio.sleep(0.01)
    tasks += [asyncio.create_task(compare()) for _ in range(20)]
    await asyncio.sleep(0)
    patient = asyncio.create_task(cache.compare_answers("Yes.", "Yes.", 100))
    # These are plainly equal, yet left out like the others: else only those would be counted.
    assert await cache.compare_answers("Yes.", "Yes.") is None
    encoder.opened.set()
    said = await asyncio.gather(*tasks)
    assert await patient is True
    assert said.count(None) == cache.counts.embeddings["comparison_dropped"] - 1 == 4
    await cache.close()
