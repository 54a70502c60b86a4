"""The runtime against a real vLLM: what clients do, and what is recorded of it."""

import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest

from evenkeel.spans import SPAN_DECODE, SPAN_PREFILL, SPAN_QUEUE
from tests.fixtures.collector_process import wait_for
from tests.fixtures.private_walk import open_to_others
from tests.fixtures.served_model import (
    LONG_ANSWERS,
    LONG_TOKENS,
    QUEUE_REQUESTS,
    ServedModel,
    long_answer,
    waited_for_a_core_s,
)

QUESTION = "How do I reset my password? I cannot find the page where that is done."


def chat(**more: object) -> dict[str, object]:
    """A chat request of 24 tokens, whatever the model would rather say."""
    return {
        "model": "support",
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 24,
        "ignore_eos": True,
        "temperature": 0,
        "skip_special_tokens": False,
    } | more


@dataclass(frozen=True, slots=True)
class Streamed:
    request_id: str
    ttft_s: float
    e2e_s: float
    num_chunks: int


def stream_chat(client: httpx.Client, **more: object) -> Streamed:
    started = time.perf_counter()
    first = None
    request_id = ""
    num_chunks = 0
    with client.stream("POST", "/v1/chat/completions", json=chat(stream=True, **more)) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            request_id = chunk["id"]
            if chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
                num_chunks += 1
                first = first or time.perf_counter()
    assert first is not None
    return Streamed(request_id, first - started, time.perf_counter() - started, num_chunks)


def test_a_streamed_request_is_recorded_with_every_emission(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    streamed = stream_chat(client)
    span = served_model.wait_for_request(evenkeel__tenant=tenant)
    seen = span.attributes

    assert span.name == "chat support"
    assert span.scope == "evenkeel"
    assert span.resource["service.name"] == "evenkeel-runtime"
    assert span.resource["deployment.environment.name"] == "test"
    assert span.resource["evenkeel.engine.dtype"] == span.attributes["evenkeel.engine.dtype"]
    assert span.attributes["evenkeel.engine.tensor_parallel"] == 1
    assert seen["evenkeel.status"] == "ok"
    assert seen["evenkeel.request.id"] == streamed.request_id
    assert seen["gen_ai.response.finish_reasons"] == ["length"]
    assert seen["gen_ai.usage.output_tokens"] == 24
    assert seen["gen_ai.usage.input_tokens"] > 5
    assert sum(seen["evenkeel.emission_tokens"]) == 24
    times = seen["evenkeel.emission_time_s"]
    assert times == sorted(times)
    assert times[0] == pytest.approx(seen["evenkeel.ttft_s"])
    assert seen["evenkeel.tpot_s"] == pytest.approx((times[-1] - times[0]) / 23)
    assert "evenkeel.wasted_tokens" not in seen


def test_the_servers_ttft_is_within_the_clients(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    streamed = stream_chat(client)
    seen = served_model.wait_for_request(evenkeel__tenant=tenant).attributes
    assert 0 < seen["evenkeel.ttft_s"] <= streamed.ttft_s
    # The server's end is when its handler has returned: the client may have read it all by then.
    assert seen["evenkeel.ttft_s"] < seen["evenkeel.e2e_s"]


def test_queue_prefill_and_decode_touch_and_fill_the_request(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    stream_chat(client)
    span = served_model.wait_for_request(evenkeel__tenant=tenant)
    phases = served_model.children(span)
    queue, prefill, decode = (phases[n] for n in (SPAN_QUEUE, SPAN_PREFILL, SPAN_DECODE))
    seen = span.attributes

    assert queue.start_ns == span.start_ns
    assert queue.end_ns == prefill.start_ns
    assert prefill.end_ns == decode.start_ns
    assert decode.end_ns <= span.end_ns
    assert {p.trace_id for p in phases.values()} == {span.trace_id}
    assert seen["evenkeel.queue_s"] + seen["evenkeel.prefill_s"] == pytest.approx(
        seen["evenkeel.ttft_s"], abs=1e-6
    )
    parts = sum(seen[f"evenkeel.{name}_s"] for name in ("queue", "prefill", "decode"))
    # What is left is the end of the server's handler, as long as the machine makes it.
    assert parts <= seen["evenkeel.e2e_s"] + 1e-6
    after_the_first = seen["gen_ai.usage.output_tokens"] - 1
    assert after_the_first > 0
    assert seen["evenkeel.decode_s"] == pytest.approx(
        seen["evenkeel.tpot_s"] * after_the_first, abs=1e-6
    )
    assert abs(span.start_ns - time.time_ns()) < 600e9


def test_a_request_that_is_not_streamed_has_ttft_and_tpot_but_no_series(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    response = client.post("/v1/chat/completions", json=chat())
    seen = served_model.wait_for_request(evenkeel__tenant=tenant).attributes

    assert seen["evenkeel.request.id"] == response.json()["id"]
    assert seen["gen_ai.usage.output_tokens"] == 24
    assert 0 < seen["evenkeel.ttft_s"] < seen["evenkeel.e2e_s"]
    assert seen["evenkeel.tpot_s"] == pytest.approx(seen["evenkeel.decode_s"] / 23, rel=1e-3)
    assert "evenkeel.emission_time_s" not in seen
    assert "evenkeel.itl_p50_s" not in seen


def test_the_answer_shows_nothing_of_what_was_switched_on_for_the_records(
    client: httpx.Client,
) -> None:
    assert client.post("/v1/chat/completions", json=chat()).json().get("metrics") is None


def test_speculation_is_recorded_by_position(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    stream_chat(client)
    seen = served_model.wait_for_request(evenkeel__tenant=tenant).attributes
    drafted, accepted = (seen[f"evenkeel.{n}_by_position"] for n in ("drafted", "accepted"))

    assert sum(drafted) == seen["evenkeel.drafted_tokens"] > 0
    assert sum(accepted) == seen["evenkeel.accepted_tokens"]
    assert len(drafted) <= 8
    assert drafted == sorted(drafted, reverse=True)
    assert all(a <= d for a, d in zip(accepted, drafted, strict=False))


def test_what_the_caller_says_is_on_the_span(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    headers = {
        "x-evenkeel-session": "session-1",
        "x-evenkeel-prompt": "support-answer@3",
        "x-evenkeel-slo-class": "interactive",
        "x-evenkeel-route": "checkout/help",
    }
    client.post("/v1/chat/completions", json=chat(), headers=headers)
    seen = served_model.wait_for_request(evenkeel__tenant=tenant).attributes
    assert seen["gen_ai.conversation.id"] == "session-1"
    assert seen["evenkeel.prompt.name"] == "support-answer"
    assert seen["evenkeel.prompt.version"] == "3"
    assert seen["evenkeel.slo_class"] == "interactive"
    assert seen["evenkeel.route"] == "checkout/help"
    assert seen["gen_ai.request.max_tokens"] == 24


def test_headers_that_cannot_be_read_are_counted_and_the_request_is_served(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    before = served_model.metric("evenkeel_runtime_malformed_headers_total")
    headers = {"x-evenkeel-prompt": "no-version", "traceparent": "00-zz-zz-01"}
    response = client.post("/v1/chat/completions", json=chat(), headers=headers)
    assert response.status_code == 200
    assert (
        "evenkeel.prompt.name"
        not in served_model.wait_for_request(evenkeel__tenant=tenant).attributes
    )
    assert served_model.metric("evenkeel_runtime_malformed_headers_total") == before + 2
    client.post("/v1/chat/completions", json=chat(), headers=headers)
    said = (served_model.folder / "serve.log").read_text(errors="replace")
    for name in headers:
        assert said.count(f"only counted: header={name}") == 1


def test_the_callers_trace_is_continued(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    trace_id, parent_id = uuid.uuid4().hex, "00f067aa0ba902b7"
    headers = {"traceparent": f"00-{trace_id}-{parent_id}-01", "tracestate": "vendor=1"}
    client.post("/v1/chat/completions", json=chat(), headers=headers)
    span = served_model.wait_for_request(evenkeel__tenant=tenant)
    assert (span.trace_id, span.parent_span_id) == (trace_id, parent_id)
    assert span.trace_state == "vendor=1"


def test_a_repeated_prompt_shows_the_tokens_that_the_cache_gave(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    # The CPU's cache blocks hold 128 tokens: only a longer prompt can be found again.
    prompt = f"{tenant} " + "please help me with order number 123 " * 40
    for _ in range(2):
        more = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 2}
        assert client.post("/v1/chat/completions", json=chat(**more)).status_code == 200
    first, second = served_model.wait_for_requests(2, evenkeel__tenant=tenant)
    assert first.attributes["gen_ai.usage.cache_read.input_tokens"] == 0
    assert second.attributes["gen_ai.usage.cache_read.input_tokens"] >= 128


def test_an_aborted_stream_is_recorded_with_what_came_before(
    served_model: ServedModel, tenant: str
) -> None:
    before_s = waited_for_a_core_s(served_model.process.pid)
    with long_answer(served_model, tenant):
        pass
    span = served_model.wait_for_request(evenkeel__tenant=tenant)
    waited_s = waited_for_a_core_s(served_model.process.pid) - before_s
    seen = span.attributes
    assert seen["evenkeel.status"] == "aborted"
    assert span.status_code != 2
    assert 0 < seen["gen_ai.usage.output_tokens"] < LONG_TOKENS * LONG_ANSWERS
    # The engine goes on while the server, which has to tell it, waits for a core.
    per_s = seen["gen_ai.usage.output_tokens"] / seen["evenkeel.decode_s"]
    assert 0 <= seen["evenkeel.wasted_tokens"] < 100 + waited_s * per_s
    assert seen["evenkeel.ttft_s"] > 0
    assert SPAN_DECODE in served_model.children(span)


def test_an_aborted_request_that_is_not_streamed_wastes_all_it_made(
    served_model: ServedModel, tenant: str
) -> None:
    with long_answer(served_model, tenant, is_streamed=False):
        pass
    seen = served_model.wait_for_request(evenkeel__tenant=tenant).attributes
    assert seen["evenkeel.status"] == "aborted"
    assert 0 < seen["evenkeel.wasted_tokens"] == seen["gen_ai.usage.output_tokens"]
    assert seen["gen_ai.usage.output_tokens"] < LONG_TOKENS * LONG_ANSWERS
    assert seen["evenkeel.queue_s"] >= 0


def test_an_unknown_model_is_refused_and_recorded(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    response = client.post("/v1/chat/completions", json=chat(model="no-such-model"))
    assert response.status_code == 404
    span = served_model.wait_for_request(evenkeel__tenant=tenant)
    assert span.status_code == 2
    assert span.attributes["evenkeel.status"] == "error"
    assert span.attributes["error.type"] == "NotFoundError"
    assert span.attributes["gen_ai.request.model"] == "no-such-model"
    assert "evenkeel.queue_s" not in span.attributes
    assert served_model.children(span) == {}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{", id="not JSON"),
        pytest.param(b'{"model": "support"}', id="no messages"),
        pytest.param(json.dumps(chat(max_tokens=-1)).encode(), id="a negative length"),
        pytest.param(json.dumps(chat(messages=[])).encode(), id="an empty conversation"),
    ],
)
def test_a_bad_body_is_refused_and_recorded(
    served_model: ServedModel, client: httpx.Client, tenant: str, body: bytes
) -> None:
    headers = {"content-type": "application/json"}
    response = client.post("/v1/chat/completions", content=body, headers=headers)
    assert response.status_code in (400, 422)
    span = served_model.wait_for_request(evenkeel__tenant=tenant)
    assert span.attributes["evenkeel.status"] == "error"
    assert span.attributes["error.type"]
    assert span.attributes["gen_ai.request.model"] == "support"


def test_several_answers_to_one_prompt_are_one_request(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    more = {"n": 2, "temperature": 1.0}
    stream_chat(client, **more)
    seen = served_model.wait_for_request(evenkeel__tenant=tenant).attributes
    assert seen["gen_ai.usage.output_tokens"] == 48
    assert seen["evenkeel.ttft_s"] > 0
    assert "evenkeel.tpot_s" not in seen


def test_each_prompt_of_a_completion_is_recorded(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    body = {"model": "support", "prompt": ["one", "two"], "max_tokens": 4, "ignore_eos": True}
    assert client.post("/v1/completions", json=body).status_code == 200
    spans = served_model.wait_for_requests(2, evenkeel__tenant=tenant)
    assert {s.name for s in spans} == {"text_completion support"}
    assert {s.attributes["gen_ai.usage.output_tokens"] for s in spans} == {4}


def test_what_sagemaker_asks_is_recorded_once(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    response = client.post("/invocations", json=chat())
    span = served_model.wait_for_request(evenkeel__tenant=tenant)
    assert span.attributes["evenkeel.request.id"] == response.json()["id"]
    assert span.attributes["gen_ai.operation.name"] == "generate_content"


def test_other_paths_are_not_recorded(served_model: ServedModel, client: httpx.Client) -> None:
    before = served_model.metric("evenkeel_runtime_requests_total")
    assert client.get("/v1/models").status_code == 200
    assert client.post("/tokenize", json={"model": "support", "prompt": "hi"}).status_code == 200
    assert served_model.metric("evenkeel_runtime_requests_total") == before


def one_token(client: httpx.Client) -> int:
    return client.post("/v1/chat/completions", json=chat(max_tokens=1)).status_code


def test_a_collector_that_is_down_delays_no_request_and_loses_only_what_the_queue_cannot_hold(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    num_requests = QUEUE_REQUESTS + 40
    wait_for_metric(served_model, "evenkeel_runtime_spans_queued", 0)
    exported = served_model.metric("evenkeel_runtime_spans_exported_total")
    dropped = served_model.metric("evenkeel_runtime_spans_dropped_total")
    served_model.receiver.stop()
    try:
        with ThreadPoolExecutor(32) as pool:
            statuses = list(pool.map(lambda _: one_token(client), range(num_requests)))
        assert set(statuses) == {200}
        wait_for_metric(served_model, "evenkeel_runtime_spans_dropped_total", dropped + 40 * 4)
        wait_for_metric(served_model, "evenkeel_runtime_spans_queued", QUEUE_REQUESTS * 4)
        wait_for(lambda: served_model.metric("evenkeel_runtime_export_errors_total") > 0)
    finally:
        served_model.receiver.start()

    kept = served_model.wait_for_requests(QUEUE_REQUESTS, evenkeel__tenant=tenant)
    assert len(kept) == QUEUE_REQUESTS
    assert len({s.span_id for s in kept}) == QUEUE_REQUESTS
    wait_for_metric(served_model, "evenkeel_runtime_spans_queued", 0)
    exported += QUEUE_REQUESTS * 4
    assert served_model.metric("evenkeel_runtime_spans_exported_total") == exported


def test_spans_that_the_collector_refuses_are_counted_and_not_sent_again(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    wait_for_metric(served_model, "evenkeel_runtime_spans_queued", 0)
    dropped = served_model.metric("evenkeel_runtime_spans_dropped_total")
    served_model.receiver.answer = 400
    try:
        one_token(client)
        wait_for_metric(served_model, "evenkeel_runtime_spans_dropped_total", dropped + 4)
    finally:
        served_model.receiver.answer = 200
    one_token(client)
    assert served_model.wait_for_request(evenkeel__tenant=tenant)


def test_what_the_server_keeps_is_its_owners_alone(
    served_model: ServedModel, client: httpx.Client
) -> None:
    one_token(client)
    assert any((served_model.folder / "data").iterdir())
    assert open_to_others(served_model.folder / "data") == []


def wait_for_metric(served: ServedModel, name: str, value: float) -> None:
    wait_for(lambda: served.metric(name) == value)


def test_the_telemetry_made_no_error_of_its_own(served_model: ServedModel) -> None:
    """Runs last: every request of this file is behind it."""
    assert served_model.metric("evenkeel_runtime_internal_errors_total") == 0
    assert served_model.metric("evenkeel_runtime_exporter_restarts_total") == 0


def test_no_request_is_recorded_twice(served_model: ServedModel) -> None:
    seen = [s.attributes["evenkeel.request.id"] for s in served_model.spans() if s.kind == 2]
    assert len(seen) == len(set(seen))


def test_a_seed_holds_for_a_prompt_that_takes_several_steps(client: httpx.Client) -> None:
    """On a CPU, vLLM's engine would die of it."""

    def complete(number: int) -> str:
        asked = {
            "model": "support",
            "prompt": [number, *(20 + place % 1500 for place in range(3000))],
            "max_tokens": 8,
            "ignore_eos": True,
            "temperature": 1.0,
            "seed": number,
        }
        response = client.post("/v1/completions", json=asked)
        assert response.status_code == 200, response.text
        return str(response.json()["choices"][0]["text"])

    # Together they exceed what vLLM computes in a step, so most prompts are split.
    numbers = range(100, 108)
    with ThreadPoolExecutor(len(numbers)) as pool:
        together = list(pool.map(complete, numbers))
    assert together == [complete(number) for number in numbers]
