"""How requests end, against an engine of async generators in vLLM's place."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel.spans import Status
from evenkeel_runtime.adapter.engine_client import ObservedEngine
from evenkeel_runtime.adapter.vllm import find_beam_search
from evenkeel_runtime.request.hook import EngineReader, RequestHook, enter_engine
from evenkeel_runtime.request.trace import (
    CURRENT_REQUEST,
    EngineRun,
    HttpRequest,
    Refusal,
)
from evenkeel_runtime.wire.drafts import TENANT_KEY
from evenkeel_runtime.wire.observation import Observation


@dataclass
class Params:
    extra_args: dict[str, Any] | None = None


class QueueOverflowError(Exception):
    """Named as vLLM's."""


@dataclass
class Notebook:
    """A recorder that keeps what it is given."""

    seen: list[Observation] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def record(self, observation: Observation) -> None:
        self.seen.append(observation)

    def record_internal_error(self, error: Exception) -> None:
        self.errors.append(error)

    def count_malformed_headers(self, _: object) -> None:
        pass


@dataclass
class Times:
    num_generation_tokens: int = 7
    scheduled_ts: float = 0.0
    first_token_ts: float = 0.0
    last_token_ts: float = 0.0


class Engine:
    """Yields `steps` and raises `error`; knows whether it was closed."""

    def __init__(self, steps: int = 3, error: Exception | None = None, waits: bool = False) -> None:
        self.steps, self.error, self.waits = steps, error, waits
        self.was_closed = False
        self.is_running = True

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **_: Any
    ) -> AsyncGenerator[int, None]:
        try:
            for step in range(self.steps):
                yield step
            if self.waits:
                await asyncio.Event().wait()
            if self.error is not None:
                raise self.error
        finally:
            self.was_closed = True

    def check_admission(self, n: int = 1) -> None:
        raise QueueOverflowError


def record_output(run: EngineRun, output: Any) -> int:
    run.last_output = output
    return 1


def read_engine(run: EngineRun, seen: Observation) -> None:
    seen.output_tokens = sum(run.emission_tokens)


def observe(engine: Engine, **reader: Any) -> tuple[ObservedEngine, Notebook]:
    notebook = Notebook()
    functions = {
        "is_streamed": lambda params: True,
        "record_output": record_output,
        "read_engine": read_engine,
        "find_times": lambda request_id: [[Times()]],
        "find_beam_search": find_beam_search,
    } | reader
    hook = RequestHook(notebook, EngineReader(**functions), "support")  # type: ignore[arg-type]
    return ObservedEngine(engine, hook), notebook


def arrive() -> HttpRequest:
    request = HttpRequest("chat", read_nothing())
    CURRENT_REQUEST.set(request)
    return request


def read_nothing() -> Any:
    from evenkeel_runtime.wire.caller import Caller

    return Caller(tenant="acme")


def refuse() -> Refusal:
    return Refusal("refused-1", "support", "http_400")


async def test_outputs_pass_through_unchanged_and_are_recorded_when_the_response_ends() -> None:
    engine, notebook = observe(Engine(steps=3))
    request = arrive()
    outputs = [output async for output in engine.generate("p", object(), "r-1")]
    assert outputs == [0, 1, 2]
    assert notebook.seen == []
    request.http_status = 200
    engine.hook.finish_request(request, refuse)
    (seen,) = notebook.seen
    assert (seen.status, seen.request_id, seen.model) == (Status.OK, "r-1", "support")
    assert seen.emission_tokens == [1, 1, 1]
    assert seen.arrival_ns == request.arrival_ns <= seen.emission_ns[0] <= seen.end_ns
    assert seen.tenant == "acme"


async def test_a_call_without_an_http_request_is_recorded_when_it_ends() -> None:
    CURRENT_REQUEST.set(None)
    engine, notebook = observe(Engine())
    _ = [output async for output in engine.generate("p", object(), "r-1")]
    assert [s.operation for s in notebook.seen] == ["generate_content"]


async def test_a_background_call_counts_from_its_own_start() -> None:
    engine, notebook = observe(Engine())
    request = arrive()
    request.http_status = 200
    engine.hook.finish_request(request, refuse)
    _ = [output async for output in engine.generate("p", object(), "r-1")]
    assert notebook.seen[0].arrival_ns > request.arrival_ns


async def test_a_background_call_is_its_callers() -> None:
    engine, notebook = observe(Engine())
    request = arrive()
    engine.hook.finish_request(request, refuse)
    params = Params(extra_args={TENANT_KEY: "rival"})
    _ = [output async for output in engine.generate("p", params, "r-1")]
    assert params.extra_args == {TENANT_KEY: "acme"}
    seen = notebook.seen[-1]
    assert (seen.tenant, seen.operation, seen.status) == ("acme", request.operation, Status.OK)


async def test_a_call_without_an_http_request_has_no_tenant() -> None:
    CURRENT_REQUEST.set(None)
    engine, _ = observe(Engine())
    params = Params(extra_args={TENANT_KEY: "rival"})
    engine.hook.start_run("r-1", params)
    assert params.extra_args is None


async def test_a_cancelled_task_of_a_client_that_left_is_an_abort_and_is_recorded_once() -> None:
    inner = Engine(steps=2, waits=True)
    engine, notebook = observe(inner)
    request = arrive()

    async def consume() -> None:
        async for _ in engine.generate("p", object(), "r-1"):
            pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(0)
    engine.hook.client_left(request)
    task.cancel()
    # vLLM's handler returns before the cancelled task has run.
    engine.hook.finish_request(request, refuse)
    with pytest.raises(asyncio.CancelledError):
        await task
    (seen,) = notebook.seen
    assert (seen.status, seen.delivered_tokens) == (Status.ABORTED, 2)
    assert inner.was_closed


async def test_a_generator_that_is_dropped_between_tokens_is_an_abort() -> None:
    inner = Engine(steps=5)
    engine, notebook = observe(inner)
    request = arrive()
    stream = engine.generate("p", object(), "r-1")
    await anext(stream)
    engine.hook.client_left(request)
    engine.hook.finish_request(request, refuse)
    assert notebook.seen == []
    await stream.aclose()
    assert [s.status for s in notebook.seen] == [Status.ABORTED]
    assert inner.was_closed


async def test_a_generator_that_never_runs_is_recorded_with_its_http_request() -> None:
    engine, notebook = observe(Engine())
    request = arrive()
    stream = engine.generate("p", object(), "r-1")
    engine.hook.client_left(request)
    engine.hook.finish_request(request, refuse)
    await stream.aclose()
    assert [(s.status, s.submitted_ns) for s in notebook.seen] == [(Status.ABORTED, None)]


async def test_a_client_that_leaves_the_gate_has_nothing_in_the_engine() -> None:
    class Door:
        async def enter(self) -> None:
            await asyncio.Event().wait()

    engine, notebook = observe(Engine())
    request = arrive()
    request.door = Door()  # type: ignore[assignment]

    async def answer(run: EngineRun) -> AsyncGenerator[int, None]:
        await enter_engine(run, {})
        yield 1

    async def consume() -> None:
        run = engine.hook.start_run("r-1", object())
        async for _ in engine.hook.observe(run, answer(run)):
            pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(0)
    engine.hook.client_left(request)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    engine.hook.finish_request(request, refuse)
    assert [(s.status, s.submitted_ns) for s in notebook.seen] == [(Status.ABORTED, None)]


@pytest.mark.parametrize("still_looks", [True, False])
async def test_a_client_that_leaves_while_the_cache_looks_has_nothing_in_the_engine(
    still_looks: bool,
) -> None:
    class Cache:
        def record_weight_change(self) -> None: ...

        async def answer(self, run: EngineRun, *_: Any) -> AsyncGenerator[int, None]:
            if still_looks:
                await asyncio.Event().wait()
            await enter_engine(run, {})
            yield 1

    inner = Engine()
    inner.collective_rpc = None  # type: ignore[attr-defined]
    observed, notebook = observe(inner)
    engine = ObservedEngine(inner, observed.hook, cache=Cache())  # type: ignore[arg-type]
    request = arrive()
    stream = engine.generate("p", object(), "r-1")
    task = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    engine.hook.client_left(request)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await stream.aclose()
    engine.hook.finish_request(request, refuse)
    found = [(seen.status, seen.submitted_ns is None) for seen in notebook.seen]
    assert found == [(Status.ABORTED, still_looks)]


async def test_a_cancellation_while_the_client_waits_is_an_error() -> None:
    engine, notebook = observe(Engine(waits=True))
    request = arrive()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            async for _ in engine.generate("p", object(), "r-1"):
                pass
    engine.hook.finish_request(request, refuse)
    assert [(s.status, s.error_type) for s in notebook.seen] == [(Status.ERROR, "cancelled")]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        pytest.param(RuntimeError("x"), Status.ERROR, id="the engine failed"),
        pytest.param(QueueOverflowError(), Status.SHED, id="admission control refused"),
    ],
)
async def test_errors_of_the_engine_reach_the_caller_and_the_record(
    error: Exception, status: Status
) -> None:
    engine, notebook = observe(Engine(steps=0, error=error))
    request = arrive()
    with pytest.raises(type(error)):
        _ = [output async for output in engine.generate("p", object(), "r-1")]
    engine.hook.finish_request(request, refuse)
    assert [(s.status, s.error_type) for s in notebook.seen] == [(status, type(error).__name__)]


async def test_a_failed_response_after_a_good_run_is_an_error() -> None:
    engine, notebook = observe(Engine())
    request = arrive()
    _ = [output async for output in engine.generate("p", object(), "r-1")]
    request.http_status = 500
    engine.hook.finish_request(request, refuse)
    assert [(s.status, s.error_type) for s in notebook.seen] == [(Status.ERROR, "http_500")]


@pytest.mark.parametrize(
    ("http_status", "num_records"),
    [
        pytest.param(200, 0, id="answered without the engine"),
        pytest.param(400, 1, id="refused"),
        pytest.param(None, 1, id="ended without a response"),
    ],
)
async def test_requests_without_an_engine_run(http_status: int | None, num_records: int) -> None:
    engine, notebook = observe(Engine())
    request = arrive()
    request.http_status = http_status
    engine.hook.finish_request(request, refuse)
    assert len(notebook.seen) == num_records
    assert all(not s.reached_engine for s in notebook.seen)


async def test_admission_refused_up_front_is_shed() -> None:
    engine, notebook = observe(Engine())
    request = arrive()
    with pytest.raises(QueueOverflowError):
        engine.check_admission()
    request.http_status = 503
    engine.hook.finish_request(request, refuse)
    assert [(s.status, s.error_type) for s in notebook.seen] == [
        (Status.SHED, "QueueOverflowError")
    ]


async def test_an_error_of_the_hook_loses_the_record_and_not_the_answer() -> None:
    def fail(*_: object) -> int:
        raise AttributeError("vLLM changed")

    engine, notebook = observe(Engine(steps=2), record_output=fail, read_engine=fail)
    request = arrive()
    assert [output async for output in engine.generate("p", object(), "r-1")] == [0, 1]
    engine.hook.finish_request(request, refuse)
    assert notebook.seen == []
    assert {type(error) for error in notebook.errors} == {AttributeError}


async def test_a_client_that_leaves_after_the_last_byte_has_aborted_nothing() -> None:
    engine, notebook = observe(Engine())
    request = arrive()
    _ = [output async for output in engine.generate("p", object(), "r-1")]
    request.http_status, request.is_complete = 200, True
    engine.hook.client_left(request)
    engine.hook.finish_request(request, refuse)
    assert [s.status for s in notebook.seen] == [Status.OK]


def test_everything_else_is_the_real_engines() -> None:
    inner = Engine()
    engine, _ = observe(inner)
    assert engine.is_running
    assert isinstance(engine, Engine)
    inner.is_running = False
    assert not engine.is_running


async def test_a_beam_search_is_one_request_with_the_tokens_of_all_beams() -> None:
    engine, notebook = observe(Engine(steps=1))
    request = arrive()
    params = SimpleNamespace(detokenize=False)
    for request_id in ("cmpl-1-aa-beam-0", "cmpl-1-bb-beam-0", "cmpl-1-bb-beam-1"):
        _ = [output async for output in engine.generate("p", params, request_id)]
        # Each step ends at its only token.
        request.runs[-1].finish_reason = "length"
    request.http_status = 200
    engine.hook.finish_request(request, refuse)
    (seen,) = notebook.seen
    assert (seen.request_id, seen.output_tokens, seen.status) == ("cmpl-1", 3, Status.OK)
    assert seen.num_sequences > 1
    # Whether the answer was cut is not known.
    assert seen.finish_reason is None


async def test_each_prompt_of_a_beam_search_is_a_request() -> None:
    engine, notebook = observe(Engine(steps=1))
    request = arrive()
    params = SimpleNamespace(detokenize=False)
    for request_id in ("cmpl-1-0-aa-beam-0", "cmpl-1-1-bb-beam-0", "cmpl-1-0-cc-beam-1"):
        _ = [output async for output in engine.generate("p", params, request_id)]
    request.http_status = 200
    engine.hook.finish_request(request, refuse)
    found = [(seen.request_id, seen.output_tokens) for seen in notebook.seen]
    assert found == [("cmpl-1-0", 2), ("cmpl-1-1", 1)]


@pytest.mark.parametrize("leaves", ["in a step", "before one", "between two"])
async def test_a_beam_search_whose_client_leaves_has_aborted(leaves: str) -> None:
    inner = Engine(steps=1)
    engine, notebook = observe(inner)
    request = arrive()
    params = SimpleNamespace(detokenize=False)
    _ = [output async for output in engine.generate("p", params, "cmpl-1-aa-beam-0")]
    second = None
    if leaves != "between two":
        inner.waits = True
        second = engine.generate("p", params, "cmpl-1-bb-beam-0")
    if leaves == "in a step" and second is not None:
        await anext(second)
    engine.hook.client_left(request)
    # vLLM answers, though nobody is there.
    request.http_status = 200
    engine.hook.finish_request(request, refuse)
    if second is not None:
        await second.aclose()
    assert [(s.status, s.error_type) for s in notebook.seen] == [(Status.ABORTED, None)]


async def test_a_beam_search_fails_with_any_of_its_steps() -> None:
    inner = Engine(steps=1)
    engine, notebook = observe(inner)
    request = arrive()
    params = SimpleNamespace(detokenize=False)
    _ = [output async for output in engine.generate("p", params, "cmpl-1-aa-beam-0")]
    inner.error = RuntimeError("x")
    under_way = engine.generate("p", params, "cmpl-1-bb-beam-0")
    await anext(under_way)
    with pytest.raises(RuntimeError):
        _ = [output async for output in engine.generate("p", params, "cmpl-1-bb-beam-1")]
    # What vLLM answers is the consequence, as is that it waits for no other beam.
    request.http_status = 500
    engine.hook.finish_request(request, refuse)
    await under_way.aclose()
    assert [(s.status, s.error_type) for s in notebook.seen] == [(Status.ERROR, "RuntimeError")]


@pytest.mark.parametrize(
    ("is_beam_search", "expected"),
    [
        pytest.param(True, 10 + 3, id="each step's prompt is the prompt and the answer so far"),
        pytest.param(False, 10 + 11 + 11 + 3, id="prompts of a caller who chose such an id"),
    ],
)
async def test_the_prompt_of_a_beam_search_is_charged_once(
    is_beam_search: bool, expected: int
) -> None:
    engine, _ = observe(Engine(steps=1))
    request = arrive()
    params = SimpleNamespace(detokenize=not is_beam_search)
    for request_id, size in (("c-1-aa-beam-0", 10), ("c-1-bb-beam-0", 11), ("c-1-bb-beam-1", 11)):
        _ = [output async for output in engine.generate("p", params, request_id)]
        request.runs[-1].last_output = SimpleNamespace(prompt_token_ids=[1] * size)
    assert request.count_tokens() == expected


@pytest.mark.parametrize(
    ("is_streamed", "generated", "expected"),
    [
        pytest.param(False, 7, 3 + 7, id="an answer that was to come in one piece"),
        pytest.param(True, 7, 3 + 7, id="a stream whose first tokens were under way"),
        pytest.param(False, 0, 0, id="nothing was computed yet"),
    ],
)
async def test_whoever_leaves_is_charged_what_the_engine_had_generated(
    is_streamed: bool, generated: int, expected: int
) -> None:
    engine, _ = observe(
        Engine(steps=0, waits=True),
        is_streamed=lambda params: is_streamed,
        find_times=lambda request_id: [[Times(generated)]],
    )
    request = arrive()
    stream = engine.generate({"prompt_token_ids": [1, 2, 3]}, object(), "r-1")
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    engine.hook.client_left(request)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert request.count_tokens() == expected


@pytest.mark.parametrize(
    ("num_namesakes", "is_at_gate"),
    [
        pytest.param(2, False, id="two requests in the engine"),
        pytest.param(1, True, id="one in the engine, and this one at the gate"),
    ],
)
async def test_nobody_is_charged_for_another_request_with_the_same_id(
    num_namesakes: int, is_at_gate: bool
) -> None:
    engine, _ = observe(
        Engine(steps=1, waits=True),
        find_times=lambda request_id: [[Times(5000)]] * num_namesakes,
    )
    request = arrive()
    stream = engine.generate({"prompt_token_ids": [1, 2, 3]}, object(), "r-1")
    await anext(stream)
    run = request.runs[0]
    run.last_output = SimpleNamespace(prompt_token_ids=[1, 2, 3])
    run.is_at_gate = is_at_gate
    engine.hook.client_left(request)
    await stream.aclose()
    assert request.count_tokens() == 3 + 1


async def test_what_fails_before_any_output_never_waited_for_the_engine() -> None:
    engine, notebook = observe(Engine(steps=0, error=ValueError("too long")))
    request = arrive()
    with pytest.raises(ValueError, match="too long"):
        _ = [output async for output in engine.generate("p", object(), "r-1")]
    engine.hook.finish_request(request, refuse)
    assert not notebook.seen[0].reached_engine


@pytest.mark.parametrize(
    ("finish_reason", "error_type"),
    [
        pytest.param("abort", "engine_abort", id="the engine gave it up for the server"),
        pytest.param("error", "engine_error", id="the engine failed at it"),
    ],
)
async def test_finish_reasons_that_are_errors(finish_reason: str, error_type: str) -> None:
    def count(run: EngineRun, output: Any) -> int:
        run.finish_reason = finish_reason
        return 1

    engine, notebook = observe(Engine(), record_output=count)
    request = arrive()
    _ = [output async for output in engine.generate("p", object(), "r-1")]
    request.http_status = 200
    engine.hook.finish_request(request, refuse)
    assert [(s.status, s.error_type) for s in notebook.seen] == [(Status.ERROR, error_type)]


async def test_a_run_is_in_flight_while_its_outputs_come() -> None:
    engine, _ = observe(Engine(steps=2))
    arrive()
    outputs = engine.generate("p", object(), "r-1")
    assert list(engine.hook.running) == []
    await anext(outputs)
    assert [run.request_id for run in engine.hook.running.values()] == ["r-1"]
    await outputs.aclose()
    assert list(engine.hook.running) == []


async def test_of_several_answers_no_tokens_are_kept() -> None:
    engine, _ = observe(Engine())
    for n, expected in ((1, 1), (4, 0)):
        run = engine.hook.start_run("r", SimpleNamespace(n=n))
        run.kept.append([1])
        assert len(run.kept) == expected
