"""Requests that vLLM itself, OpenInference, OpenLLMetry and plain GenAI clients trace."""

import time
import uuid
from importlib.resources import files
from typing import Any

import httpx
import pytest
from vllm.tracing.utils import SpanAttributes as VllmAttributes

from tests.fixtures.collector_process import CollectorProcess, wait_for
from tests.fixtures.otlp_payload import trace_request
from tests.queries import query

SECOND = 10**9


VLLM = {
    VllmAttributes.GEN_AI_LATENCY_TIME_TO_FIRST_TOKEN: 0.25,
    VllmAttributes.GEN_AI_LATENCY_E2E: 1.5,
    VllmAttributes.GEN_AI_LATENCY_TIME_IN_QUEUE: 0.125,
    VllmAttributes.GEN_AI_USAGE_PROMPT_TOKENS: 100,
    VllmAttributes.GEN_AI_USAGE_COMPLETION_TOKENS: 11,
    VllmAttributes.GEN_AI_LATENCY_TIME_IN_MODEL_PREFILL: 0.0625,
    VllmAttributes.GEN_AI_LATENCY_TIME_IN_MODEL_DECODE: 1.25,
    VllmAttributes.GEN_AI_LATENCY_TIME_IN_MODEL_INFERENCE: 1.3125,
    VllmAttributes.GEN_AI_REQUEST_ID: "cmpl-1",
    VllmAttributes.GEN_AI_REQUEST_MAX_TOKENS: 64,
    VllmAttributes.GEN_AI_REQUEST_TEMPERATURE: 0.5,
}
OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "gpt-x",
    "llm.invocation_parameters": '{"temperature": 0.25}',
    "llm.token_count.prompt": 20,
    "llm.token_count.completion": 4,
    "llm.token_count.prompt_details.cache_read": 16,
    "session.id": "s-2",
}
OPENLLMETRY = {
    "llm.request.type": "chat",
    "gen_ai.system": "OpenAI",
    "gen_ai.request.model": "gpt-y",
    "gen_ai.response.id": "chatcmpl-3",
    "gen_ai.usage.prompt_tokens": 30,
    "gen_ai.usage.completion_tokens": 5,
    "gen_ai.completion.0.finish_reason": "length",
    "traceloop.prompt.key": "support",
    "traceloop.prompt.version": 2,
}
GEN_AI = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-z",
    "gen_ai.usage.input_tokens": 40,
    "gen_ai.usage.output_tokens": 6,
    "gen_ai.usage.reasoning.output_tokens": 4,
    "gen_ai.usage.cache_read.input_tokens": 0,
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.response.time_to_first_chunk": 0.75,
    "error.type": "timeout",
}


@pytest.mark.parametrize(
    ("source", "name", "attributes", "expected"),
    [
        pytest.param(
            "vllm",
            "llm_request",
            VLLM,
            {
                "model": "service of vllm", "request_id": "cmpl-1", "status": "ok",
                "input_tokens": 100, "output_tokens": 11, "cached_tokens": None, "ttft_s": 0.25,
                "e2e_s": 1.5, "queue_s": 0.125, "prefill_s": 0.0625, "decode_s": 1.25,
                "tpot_s": 0.125, "max_tokens": 64, "temperature": 0.5, "finish_reason": None,
            },
            id="vLLM",
        ),
        pytest.param(
            "openinference",
            "ChatCompletion",
            OPENINFERENCE,
            {
                "model": "gpt-x", "session_id": "s-2", "input_tokens": 20, "output_tokens": 4,
                "cached_tokens": 16, "temperature": 0.25, "ttft_s": 0.5, "e2e_s": 2.0,
                "tpot_s": None, "queue_s": None, "operation": "chat",
                "reasoning_tokens": None, "visible_tokens": 4, "visible_ttft_s": None,
            },
            id="OpenInference",
        ),
        pytest.param(
            "openllmetry",
            "openai.chat",
            OPENLLMETRY,
            {
                "model": "gpt-y", "request_id": "chatcmpl-3", "input_tokens": 30,
                "output_tokens": 5, "prompt_name": "support", "prompt_version": "2",
                "finish_reason": "length", "ttft_s": 0.5, "e2e_s": 2.0,
            },
            id="OpenLLMetry",
        ),
        pytest.param(
            "gen_ai",
            "chat gpt-z",
            GEN_AI,
            {
                "model": "gpt-z", "status": "error", "error_type": "timeout", "cached_tokens": 0,
                "input_tokens": 40, "output_tokens": 6, "finish_reason": "stop", "e2e_s": 2.0,
                "ttft_s": 0.75, "reasoning_tokens": 4, "visible_tokens": 2,
            },
            id="OpenTelemetry GenAI",
        ),
    ],
)  # fmt: skip
def test_a_request_of_another_instrumentation_is_a_row(
    collector: CollectorProcess,
    source: str,
    name: str,
    attributes: dict[str, Any],
    expected: dict[str, Any],
) -> None:
    now_ns = time.time_ns()
    request = trace_request(
        1,
        attributes,
        name=name,
        service=f"service of {source}",
        start_ns=now_ns,
        end_ns=now_ns + 2 * SECOND,
    )
    (span,) = request.resource_spans[0].scope_spans[0].spans
    span.kind = 3
    if source == "gen_ai":
        span.status.code = 2
    for chunk in ("First Token Stream Event", "llm.content.completion.chunk"):
        if source in ("openinference", "openllmetry"):
            span.events.add(name=chunk, time_unix_nano=now_ns + SECOND // 2)
    post(collector, request.SerializeToString())
    sql = "SELECT sum(num_requests) FROM requests_1m WHERE service = {s:String}"
    wait_for(lambda: collector.rows(sql, {"s": span_service(source)}) == [(1,)])
    client = collector.client()
    (row,) = client.query(
        "SELECT * FROM requests WHERE service = {s:String}",
        parameters={"s": span_service(source)},
    ).named_results()
    client.close()
    assert {key: row[key] for key in expected} == expected
    assert row["request_id"] == expected.get("request_id", span.span_id.hex())
    assert row["source"] == source


@pytest.mark.parametrize(
    ("parameters", "model_name", "expected"),
    [
        pytest.param('{"model": "asked", "max_tokens": 7}', None, ("asked", 7), id="it failed"),
        pytest.param('{"model": "asked"}', "answered-2026", ("asked", None), id="both are known"),
        pytest.param('{"model": null}', "answered", ("answered", None), id="null"),
        pytest.param("{", "answered", ("answered", None), id="no JSON"),
        pytest.param(None, "answered", ("answered", None), id="nothing asked"),
    ],
)
def test_an_openinference_request_has_the_model_that_was_asked_for(
    collector: CollectorProcess,
    request: pytest.FixtureRequest,
    parameters: str | None,
    model_name: str | None,
    expected: tuple[str, int | None],
) -> None:
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.invocation_parameters": parameters,
        "llm.model_name": model_name,
    }
    service = request.node.callspec.id
    given = {key: value for key, value in attributes.items() if value is not None}
    body = trace_request(1, given, name="ChatCompletion", service=service)
    body.resource_spans[0].scope_spans[0].spans[0].status.code = 2
    post(collector, body.SerializeToString())
    query = "SELECT model, max_tokens, status FROM requests WHERE service = {s:String}"
    wait_for(lambda: collector.rows(query, {"s": service}) == [(*expected, "error")])


# opentelemetry-instrumentation-google-generativeai 0.62.4 (OpenLLMetry).
GEMINI = {
    "gen_ai.provider.name": "gcp.gen_ai",
    "gen_ai.operation.name": "generate_content",
    "gen_ai.request.model": "gemini",
}
GEMINI_TOTAL = {**GEMINI, "gen_ai.usage.input_tokens": 100, "gen_ai.usage.total_tokens": 130}
UNNAMED = {"gen_ai.request.model": "m", "gen_ai.usage.output_tokens": 0}
REASONING = "gen_ai.usage.reasoning.output_tokens"
# packages/otel/src/legacy-open-telemetry.ts of vercel/ai.
AI_SDK_FAILED = {
    "ai.operationId": "ai.streamText.doStream",
    "gen_ai.system": "openai.chat",
    "gen_ai.request.model": "m",
}
AI_SDK = {
    **AI_SDK_FAILED,
    "gen_ai.usage.input_tokens": 50,
    "gen_ai.usage.output_tokens": 8,
    "ai.usage.cachedInputTokens": 20,
    "ai.usage.inputTokenDetails.cacheWriteTokens": 5,
    "ai.usage.reasoningTokens": 2,
}
# What frameworks and gateways send: the kind of the span, its attributes, and its request. Names
# are those of Strands (telemetry/tracer.py 1.62.0) and LiteLLM (integrations/, 1.110.2).
STRANDS = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "model of Strands",
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 20,
}
BEDROCK_CACHE = {
    "gen_ai.usage.cache_read.input_tokens": 60,
    "gen_ai.usage.cache_write_input_tokens": 10,
}
LITELLM = {
    "llm.request.type": "acompletion",
    "gen_ai.request.model": "model of LiteLLM",
    "gen_ai.response.id": "chatcmpl-litellm",
    "gen_ai.usage.input_tokens": 30,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.usage.total_tokens": 33,
    "gen_ai.cost.total_cost": 0.25,
}
LITELLM_V2 = {
    **{key: value for key, value in GEN_AI.items() if not key.startswith("gen_ai.usage")},
    "gen_ai.usage.input_tokens": 30,
    "litellm.cost.total": 0.5,
}
FINISH = "gen_ai.response.finish_reasons"
SOUND = {
    **GEN_AI,
    "gen_ai.usage.audio.input_tokens": 20,
    "gen_ai.usage.audio.output_tokens": 5,
}


@pytest.mark.parametrize(
    ("kind", "attributes", "expected"),
    [
        pytest.param(1, STRANDS, {"source": "gen_ai", "input_tokens": 100}, id="Strands"),
        pytest.param(
            1,
            {**STRANDS, **BEDROCK_CACHE, "gen_ai.usage.total_tokens": 190},
            {"input_tokens": 170, "cached_tokens": 60, "cache_write_tokens": 10},
            id="a total that has cached tokens besides the input's",
        ),
        pytest.param(
            1,
            {**STRANDS, **BEDROCK_CACHE, "gen_ai.usage.total_tokens": 120},
            {"input_tokens": 100, "cached_tokens": 60, "cache_write_tokens": 10},
            id="a total that has cached tokens among the input's",
        ),
        pytest.param(
            2,
            {**LITELLM, "gen_ai.operation.name": "acompletion"},
            {
                "source": "openllmetry", "operation": "chat", "request_id": "chatcmpl-litellm",
                "model": "model of LiteLLM", "input_tokens": 30, "given_cost": 0.25,
            },
            id="LiteLLM's proxy",
        ),
        pytest.param(1, LITELLM, {"operation": "chat"}, id="LiteLLM without content"),
        pytest.param(
            1,
            {**LITELLM, "litellm.cache_hit": True, "gen_ai.cost.total_cost": 0.25},
            {"given_cost": 0.0},
            id="LiteLLM's cache",
        ),
        pytest.param(
            1,
            {**LITELLM, "llm.request.type": "atext_completion"},
            {"operation": "text_completion"},
            id="LiteLLM's completions",
        ),
        pytest.param(3, LITELLM_V2, {"given_cost": 0.5, "input_tokens": 30}, id="LITELLM_OTEL_V2"),
        pytest.param(3, GEN_AI, {"status": "error"}, id="an error without a status"),
        pytest.param(3, SOUND, {"audio_tokens": 25, "input_tokens": 40}, id="sound"),
        pytest.param(
            3,
            {
                **GEMINI, "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20,
                "gen_ai.usage.cache_read.input_tokens": 30, "gen_ai.usage.total_tokens": 420,
            },
            {
                "input_tokens": 100, "output_tokens": 320, "reasoning_tokens": 300,
                "visible_tokens": 20,
            },
            id="Gemini's thoughts",
        ),
        pytest.param(
            3,
            {**GEMINI_TOTAL, "gen_ai.usage.output_tokens": 20, REASONING: 10},
            {"output_tokens": 30, "reasoning_tokens": 10, "visible_tokens": 20},
            id="Gemini's thoughts, stated, fewer than the output",
        ),
        pytest.param(
            3,
            {**GEMINI_TOTAL, "gen_ai.usage.output_tokens": 20, REASONING: 5},
            {"output_tokens": 20, "reasoning_tokens": 5, "visible_tokens": 15},
            id="a total that has prompts of Gemini's tools",
        ),
        pytest.param(
            3,
            GEMINI_TOTAL,
            {"output_tokens": 30, "reasoning_tokens": 30, "visible_tokens": None},
            id="Gemini's thoughts and no answer",
        ),
        pytest.param(
            3,
            {
                **STRANDS, "gen_ai.request.model": "grok-4", REASONING: 15,
                "gen_ai.usage.total_tokens": 135,
            },
            {"output_tokens": 35, "reasoning_tokens": 15, "visible_tokens": 20},
            id="reasoning that the total has besides the output",
        ),
        pytest.param(
            3,
            {**GEN_AI, "gen_ai.usage.total_tokens": 46},
            {"output_tokens": 6, "reasoning_tokens": 4, "visible_tokens": 2},
            id="reasoning within the output",
        ),
        pytest.param(
            1,
            AI_SDK,
            {
                "source": "gen_ai", "operation": "chat", "input_tokens": 50, "cached_tokens": 20,
                "reasoning_tokens": 2, "cache_write_tokens": 5, "ttft_s": 0.25,
            },
            id="the AI SDK",
        ),
        pytest.param(
            1, AI_SDK_FAILED, {"input_tokens": None, "model": "m"}, id="the AI SDK's error"
        ),
        pytest.param(
            3,
            {"gen_ai.request.model": "m", "gen_ai.usage.completion_tokens": 3},
            {"operation": "chat", "output_tokens": 3},
            id="conventions without operations",
        ),
        pytest.param(
            3,
            {**GEN_AI, "gen_ai.usage.reasoning.output_tokens": 40},
            {"visible_tokens": 6, "reasoning_tokens": 40},
            id="reasoning besides the output",
        ),
        *(
            pytest.param(3, {**GEN_AI, FINISH: sent}, {"finish_reason": kept}, id=f"ends by {sent}")
            for sent, kept in (
                (["max_tokens"], "length"),
                ("MAX_TOKENS", "length"),
                (["guardrail_intervened"], "content_filter"),
                (["SAFETY"], "content_filter"),
                (["end_turn"], "end_turn"),
            )
        ),
    ],
)  # fmt: skip
def test_what_frameworks_and_gateways_send_is_a_request(
    collector: CollectorProcess,
    request: pytest.FixtureRequest,
    kind: int,
    attributes: dict[str, Any],
    expected: dict[str, Any],
) -> None:
    service = request.node.callspec.id
    body = trace_request(1, attributes, name="call", service=service)
    (span,) = body.resource_spans[0].scope_spans[0].spans
    span.kind = kind
    if attributes is AI_SDK:
        first_ns = span.start_time_unix_nano + SECOND // 4
        span.events.add(name="ai.stream.firstChunk", time_unix_nano=first_ns)
    post(collector, body.SerializeToString())
    query = f"SELECT {', '.join(expected)} FROM requests WHERE service = {{s:String}}"
    wait_for(lambda: len(collector.rows(query, {"s": service})) == 1)
    assert collector.rows(query, {"s": service}) == [tuple(expected.values())]


def test_what_is_no_request_is_no_row(collector: CollectorProcess) -> None:
    others: list[tuple[str, dict[str, Any]]] = [
        ("embed", {"openinference.span.kind": "EMBEDDING", "llm.model_name": "m"}),
        ("chain", {"openinference.span.kind": "CHAIN"}),
        ("tool", {"gen_ai.operation.name": "execute_tool", "gen_ai.request.model": "m"}),
        ("llm_request", {"unrelated": 1}),
        ("streaming response from 'm' took 0.5s", {**GEN_AI, "logfire.span_type": "log"}),
        ("evenkeel.evaluation", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}),
        # LiteLLM without content names no operation, but its type, and all have output tokens.
        *(
            ("litellm_request", {**UNNAMED, "llm.request.type": type_})
            for type_ in ("aembedding", "arerank", "aimage_generation")
        ),
        ("embed", {**UNNAMED, "openinference.span.kind": "EMBEDDING"}),
        ("agent", {**UNNAMED, "openinference.span.kind": "AGENT"}),
    ]
    body = b"".join(
        trace_request(1, attributes, name=name, service="none").SerializeToString()
        for name, attributes in others
    )
    ours = trace_request(
        1, {**GEN_AI, "evenkeel.status": "shed"}, name="chat", service="ours"
    ).SerializeToString()
    post(collector, body + ours)
    wait_for(
        lambda: collector.rows("SELECT count() FROM requests WHERE service = 'ours'") == [(1,)]
    )
    assert collector.rows("SELECT status, source FROM requests WHERE service = 'ours'") == [
        ("shed", "evenkeel")
    ]
    assert collector.rows("SELECT count() FROM spans WHERE ServiceName = 'none'") == [(11,)]
    assert collector.rows("SELECT count() FROM requests WHERE service = 'none'") == [(0,)]


def test_the_engine_analyses_the_view_in_little_time(collector: CollectorProcess) -> None:
    """It does so at each insert, and replaces each alias by what it stands for."""
    ((select,),) = collector.rows(
        "SELECT as_select FROM system.tables"
        " WHERE database = currentDatabase() AND name = 'spans_of_others_to_requests'"
    )
    assert len(collector.rows(f"EXPLAIN QUERY TREE {select}")) < 50_000


def test_the_names_are_those_that_vllm_uses() -> None:
    schema = files("evenkeel_collector.store") / "schema" / "0031_base"
    sql = (schema / "03_requests_of_others.sql").read_text(encoding="utf-8")
    missing = [name for name in VLLM if f"'{name}'" not in sql and "inference" not in name]
    assert missing == []


def span_service(source: str) -> str:
    return f"service of {source}"


def post(collector: CollectorProcess, body: bytes) -> None:
    answer = httpx.post(
        f"{collector.http_url}/v1/traces",
        content=body,
        headers={"content-type": "application/x-protobuf"},
    )
    assert answer.status_code == 200


def test_a_reused_id_opens_the_request_that_was_clicked(collector: CollectorProcess) -> None:
    now_ns = time.time_ns()
    arrivals_ns = [now_ns - 600 * SECOND, now_ns]
    for number, start_ns in enumerate(arrivals_ns):
        sent = trace_request(
            1, VLLM | {VllmAttributes.GEN_AI_REQUEST_ID: "reused"}, name="llm_request",
            service=f"reused {number}", start_ns=start_ns, end_ns=start_ns + SECOND,
        )  # fmt: skip
        post(collector, sent.SerializeToString())
    count = "SELECT count() FROM requests WHERE request_id = 'reused'"
    wait_for(lambda: collector.rows(count) == [(2,)])
    client = collector.client()
    text = query("request").read_text(encoding="utf-8")
    for near_ms, expected in [*((ns // 10**6, ns) for ns in arrivals_ns), (0, now_ns)]:
        parameters = {"id": "reused", "near_ms": near_ms}
        (row,) = client.query(text, parameters=parameters).named_results()
        assert row["time_ns"] == expected
    client.close()


def test_why_tells_the_attributes_of_the_requests_own_tenant(collector: CollectorProcess) -> None:
    """Another tenant's spans may have the same ids."""
    ids = {"trace_id": uuid.uuid4().bytes, "span_id": uuid.uuid4().bytes[:8]}
    tenants = ("a", "acme", "z")
    for tenant in tenants:
        sent = trace_request(
            1, {"evenkeel.status": "ok", "gen_ai.request.model": "m", "evenkeel.tenant": tenant,
                "evenkeel.request.id": f"why-{tenant}"},
        )  # fmt: skip
        (span,) = sent.resource_spans[0].scope_spans[0].spans
        span.trace_id, span.span_id = ids["trace_id"], ids["span_id"]
        post(collector, sent.SerializeToString())
    count = "SELECT count() FROM requests WHERE startsWith(request_id, 'why-')"
    wait_for(lambda: collector.rows(count) == [(len(tenants),)])
    text = query("request_why").read_text(encoding="utf-8")
    client = collector.client()
    for tenant in tenants:
        (row,) = client.query(text, parameters={"id": f"why-{tenant}"}).named_results()
        assert row["attributes"]["evenkeel.request.id"] == f"why-{tenant}"
    client.close()
