"""Log records on their way into the log: shape, content, calls that events describe."""

import json
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs

from evenkeel.privacy.cpu_budget import MAX_HASTY_VALUES, OverBudgetError
from evenkeel_collector.intake.begun_requests import BegunRequests
from evenkeel_collector.intake.event_calls import READERS
from evenkeel_collector.intake.event_spans import (
    MAX_HASTY_EVENTS,
    spans_of_calls,
)
from evenkeel_collector.intake.otlp_body import CheckedBody, MalformedError
from evenkeel_collector.intake.otlp_logs import (
    SEGMENT_TAG,
    check_logs_json,
    check_logs_protobuf,
)
from tests.fixtures.log_payload import AGENT_EVENTS, agent_event, logs_request
from tests.fixtures.otlp_payload import key_values
from tests.unit.collector.intake.test_pipeline import pipeline

RESOURCE_LOGS = 1006
TRACE_ID, SPAN_ID = bytes(range(1, 17)), bytes(range(1, 9))


def records_of(checked: CheckedBody) -> list[Any]:
    """Return the log records of what the log keeps."""
    unknown = UnknownFieldSet(ExportTraceServiceRequest.FromString(checked.payload))
    return [
        record
        for field in unknown
        if field.field_number == RESOURCE_LOGS
        for scope in ResourceLogs.FromString(field.data).scope_logs
        for record in scope.log_records
    ]


def spans_of(payload: bytes) -> list[tuple[Any, dict[str, str]]]:
    """Return the spans of what the log keeps, each with its attributes."""
    message = ExportTraceServiceRequest.FromString(payload)
    return [
        (span, {pair.key: pair.value.string_value for pair in span.attributes})
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def attributes_of(record: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in record.attributes}


def checked(request: Any, tenant: str | None = None, **arguments: Any) -> CheckedBody:
    finish = pipeline(**arguments)[0].finish_logs_for(tenant)
    return check_logs_protobuf(request.SerializeToString(), finish)


def test_a_request_moves_to_the_segments_field_with_every_record() -> None:
    request = logs_request(300, {"k": "x" * 100})
    request.resource_logs.add().schema_url = "s"
    found = check_logs_protobuf(request.SerializeToString())
    assert found.num_records == 300
    assert found.num_spans == 0
    assert found.payload.count(SEGMENT_TAG) == 2
    assert len(records_of(found)) == 300


def test_an_empty_body_has_no_records() -> None:
    assert check_logs_protobuf(b"") == CheckedBody(b"")
    assert check_logs_json(b"{}") == CheckedBody(b"")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param("plain", "plain", id="text"),
        pytest.param({"a": {"b": [1, "x"]}}, '{"a":{"b":[1,"x"]}}', id="nested maps"),
        pytest.param([], "[]", id="an empty array"),
        pytest.param([[1], {"a": None}], '[[1],{"a":null}]', id="arrays of arrays"),
    ],
)
def test_a_nested_body_becomes_json_text(body: Any, text: str) -> None:
    (record,) = records_of(check_logs_protobuf(logs_request(1, body=body).SerializeToString()))
    assert record.body.string_value == text


def test_json_and_protobuf_give_the_same_bytes() -> None:
    request = logs_request(
        2, {"n": 5, "raw": b"\x00\xff", "deep": {"a": [1]}}, trace_id=TRACE_ID, span_id=SPAN_ID
    )
    document = json_format.MessageToDict(request)
    for record in document["resourceLogs"][0]["scopeLogs"][0]["logRecords"]:
        record["traceId"], record["spanId"] = TRACE_ID.hex().upper(), SPAN_ID.hex()
        record["severityNumber"] = 9
    assert check_logs_json(json.dumps(document).encode()) == check_logs_protobuf(
        request.SerializeToString()
    )


@pytest.mark.parametrize(
    ("check", "body"),
    [
        pytest.param(check_logs_protobuf, b"\x0a\xff", id="no protobuf"),
        pytest.param(check_logs_json, b"[]", id="a list"),
        pytest.param(check_logs_json, b'{"resourceLogs": [{"scopeLogs": 1}]}', id="a number"),
        pytest.param(
            check_logs_json,
            b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": "zz"}]}]}]}',
            id="an id that is not hex",
        ),
    ],
)
def test_a_body_that_is_none_is_malformed(check: Any, body: bytes) -> None:
    with pytest.raises(MalformedError, match=r"ExportLogsServiceRequest|JSON|hex"):
        check(body)


def test_secrets_and_personal_data_are_replaced_everywhere_in_a_record() -> None:
    request = logs_request(
        1,
        {"note": "ana@example.org", "password": "hunter22"},
        body={"mail": "ana@example.org"},
        severity_text="ana@example.org",
        event_name="ana@example.org",
    )
    (record,) = records_of(checked(request))
    assert attributes_of(record) == {"note": "[email]", "password": "[password]"}
    assert record.body.string_value == '{"mail":"[email]"}'
    assert (record.severity_text, record.event_name) == ("[email]", "[email]")


def test_a_plain_record_stays_as_it_is() -> None:
    request = logs_request(3, {"prompt": "not an agent's", "output": "kept", "n": 5})
    found = records_of(checked(request))
    assert found == list(request.resource_logs[0].scope_logs[0].log_records)


@pytest.mark.parametrize(
    ("agent", "event", "names"),
    [
        pytest.param("claude_code", "user_prompt", {"prompt"}, id="Claude Code's prompt"),
        pytest.param("claude_code", "assistant_response", {"response"}, id="its answer"),
        pytest.param("claude_code", "api_request_body", {"body"}, id="its request"),
        pytest.param("claude_code", "tool_result", {"tool_parameters", "tool_input"}, id="a tool"),
        pytest.param("codex", "user_prompt", {"prompt"}, id="Codex CLI's prompt"),
        pytest.param("codex", "tool_result", {"arguments", "output"}, id="its tool"),
    ],
)
def test_content_of_agents_is_removed_unless_it_is_switched_on(
    agent: str, event: str, names: set[str]
) -> None:
    request = agent_event(agent, event, **{"evenkeel.tenant": "acme"})
    sent = attributes_of(request.resource_logs[0].scope_logs[0].log_records[0])
    (record,) = records_of(checked(request))
    assert set(sent) - set(attributes_of(record)) == names
    (kept,) = records_of(checked(request, content_tenants=("acme",)))
    assert set(attributes_of(kept)) == set(sent)


def test_content_of_gen_ai_events_is_removed_unless_it_is_switched_on() -> None:
    messages = [{"role": "user", "parts": [{"type": "text", "content": "Weather?"}]}]
    attributes = {"gen_ai.input.messages": messages, "gen_ai.operation.name": "chat"}
    request = logs_request(
        1, attributes, event_name="gen_ai.client.inference.operation.details", body=None
    )
    assert b"Weather" not in checked(request).payload
    (kept,) = records_of(checked(request, content_tenants=("*",)))
    assert "Weather?" in attributes_of(kept)["gen_ai.input.messages"]
    for event, name in (
        ("gemini_cli.user_prompt", "prompt"),
        ("gemini_cli.api_response", "response_text"),
        *(("gemini_cli.hook_call", n) for n in ("hook_input", "hook_output", "stdout", "stderr")),
        ("gemini_cli.model_routing", "reasoning"),
        ("qwen-code.tool_call", "function_args"),
    ):
        gemini = logs_request(1, {"event.name": event, name: "Weather?", "kept": "yes"})
        (record,) = records_of(checked(gemini))
        assert attributes_of(record) == {"event.name": event, "kept": "yes"}
    # LiteLLM's attribute has an underscore.
    named = {"event_name": "gen_ai.content.prompt", "gen_ai.prompt": "Weather?"}
    litellm = logs_request(1, named, body={"role": "user", "content": "Weather?"})
    (record,) = records_of(checked(litellm))
    assert b"Weather" not in record.SerializeToString()
    # Conventions before 1.37: the body is the message.
    old = logs_request(1, {"event.name": "gen_ai.user.message"}, body={"content": "Weather?"})
    assert b"Weather" not in checked(old).payload
    assert b"Weather" in checked(old, content_tenants=("*",)).payload


def test_a_proved_tenant_stands_over_what_records_say() -> None:
    request = logs_request(1, {"evenkeel.tenant": "other"}, resource={"evenkeel.tenant": "other"})
    found = checked(request, tenant="acme")
    (record,) = records_of(found)
    assert attributes_of(record)["evenkeel.tenant"] == "acme"
    assert b"other" not in found.payload


def test_a_request_of_claude_code_is_a_request_with_its_tokens_and_cost() -> None:
    found = checked(agent_event("claude_code", "api_request", **{"evenkeel.tenant": "acme"}))
    assert (found.num_records, found.num_spans, found.awaited) == (1, 1, ())
    ((span, attributes),) = spans_of(found.payload)
    assert span.name == "chat claude-sonnet-5"
    assert span.kind == 3
    assert span.trace_id.hex() == "aaaaaaaabbbb4ccc8dddeeeeeeeeeeee"
    assert span.end_time_unix_nano - span.start_time_unix_nano == 4_000_000_000
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-5",
        "gen_ai.response.id": "req_011CX",
        "gen_ai.conversation.id": "11111111-2222-4333-8444-555555555555",
        "gen_ai.usage.input_tokens": "30512",
        "gen_ai.usage.cache_read.input_tokens": "30000",
        "gen_ai.usage.cache_creation.input_tokens": "500",
        "gen_ai.usage.output_tokens": "150",
        "gen_ai.usage.cost": "0.0125",
        "evenkeel.from_event": "claude_code.api_request",
        "evenkeel.tenant": "acme",
    }


def test_a_failed_request_says_why() -> None:
    ((span, attributes),) = spans_of(checked(agent_event("claude_code", "api_error")).payload)
    assert (span.status.code, span.status.message) == (2, "529 overloaded")
    assert attributes["error.type"] == attributes["http.response.status_code"] == "529"


@pytest.mark.parametrize(
    ("agent", "name", "call", "duration_ms", "error"),
    [
        pytest.param("claude_code", "Bash", "toolu_01", 250, "ShellError", id="Claude Code"),
        pytest.param("codex", "shell", "call_1", 75, "", id="Codex CLI"),
    ],
)
def test_a_tools_result_is_a_call_of_it(
    agent: str, name: str, call: str, duration_ms: int, error: str
) -> None:
    ((span, attributes),) = spans_of(checked(agent_event(agent, "tool_result")).payload)
    assert span.name == f"execute_tool {name}"
    assert (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6 == duration_ms
    assert span.status.code == (2 if error else 0)
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert (attributes["gen_ai.tool.name"], attributes["gen_ai.tool.call.id"]) == (name, call)
    assert attributes.get("error.type", "") == error


@pytest.mark.parametrize(
    ("event", "is_counted", "is_error"),
    [
        ("api_request", False, False),
        ("api_request failed", True, True),
        ("api_request compact", False, False),
        ("websocket_request", False, False),
        ("sse_event", False, False),
        ("sse_event completed", True, False),
        ("sse_event failed", True, True),
        ("user_prompt", False, False),
        ("tool_decision", False, False),
        ("conversation_starts", False, False),
    ],
)
def test_codex_counts_a_request_once(event: str, is_counted: bool, is_error: bool) -> None:
    found = spans_of(checked(agent_event("codex", event)).payload)
    assert len(found) == is_counted
    for span, attributes in found:
        assert span.trace_id.hex() == "99999999888847778666555555555555"
        assert attributes["gen_ai.conversation.id"] == "99999999-8888-4777-8666-555555555555"
        assert (span.status.code == 2) == is_error


@pytest.mark.parametrize(
    ("events", "duration_s"),
    [
        pytest.param({"api_request": 10}, 3.82, id="over HTTP"),
        pytest.param({"websocket_request": 10}, 3.004, id="over a WebSocket"),
        pytest.param(
            {"api_request compact": 9, "websocket_request": 10}, 3.004, id="after a summary"
        ),
        pytest.param({"api_request compact": 9}, None, id="a summary begins no request"),
    ],
)
def test_codex_requests_take_from_the_event_that_sent_them(
    events: dict[str, int], duration_s: float | None
) -> None:
    begun = BegunRequests()
    for event, at_s in {**events, "sse_event completed": 13}.items():
        request = agent_event("codex", event)
        (record,) = request.resource_logs[0].scope_logs[0].log_records
        record.time_unix_nano = (1_795_582_500 + at_s) * 10**9
        found = check_logs_protobuf(request.SerializeToString(), begun=begun)
    ((span, attributes),) = spans_of(found.payload)
    is_known = "evenkeel.clamped.start_unix_nano" not in attributes
    assert is_known == (duration_s is not None)
    taken_s = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    assert taken_s == (duration_s or 0)


def test_a_duration_that_nobody_gives_is_not_zero() -> None:
    ((span, attributes),) = spans_of(checked(agent_event("codex", "sse_event completed")).payload)
    assert attributes["evenkeel.clamped.start_unix_nano"] == "0"
    assert attributes["gen_ai.usage.input_tokens"] == "12000"
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == "11000"
    assert span.start_time_unix_nano == span.end_time_unix_nano > 0


@pytest.mark.parametrize(
    "value", ["abc", "NaN", "-1", "1e308", "1e400", "", None, [1], {"a": 1}, True]
)
def test_numbers_that_are_none_cost_nothing_but_themselves(value: Any) -> None:
    names = ("duration_ms", "input_tokens", "cache_read_tokens", "cost_usd", "output_tokens")
    request = agent_event("claude_code", "api_request", **dict.fromkeys(names, value))
    ((span, attributes),) = spans_of(checked(request).payload)
    assert "evenkeel.clamped.start_unix_nano" in attributes
    assert attributes["gen_ai.request.model"] == "claude-sonnet-5"
    assert span.end_time_unix_nano > 0


@pytest.mark.parametrize("value", ["-1", "1.5", "1e308", "abc"])
@pytest.mark.parametrize("name", ["input_tokens", "cache_read_tokens", "cache_creation_tokens"])
def test_input_tokens_are_unknown_if_a_part_of_them_is_no_count(name: str, value: str) -> None:
    request = agent_event("claude_code", "api_request", **{name: value})
    ((_, attributes),) = spans_of(checked(request).payload)
    assert attributes["gen_ai.usage.input_tokens"] == value, "what the store refuses"


def test_an_event_sent_again_gives_the_same_span_and_two_events_give_two() -> None:
    request = agent_event("claude_code", "api_request")
    first, again = (spans_of(checked(request).payload)[0][0].span_id for _ in range(2))
    assert first == again
    request.MergeFrom(request)
    assert len({span.span_id for span, _ in spans_of(checked(request).payload)}) == 2


def test_an_event_gives_the_same_span_behind_others() -> None:
    (alone,) = spans_of(checked(event := agent_event("claude_code", "tool_result")).payload)
    batch = agent_event("claude_code", "api_request")
    batch.MergeFrom(event)
    assert alone[0] in [span for span, _ in spans_of(checked(batch).payload)]


def inference(**fields: Any) -> Any:
    return logs_request(
        1,
        {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-z", "session.id": "s-1",
            "gen_ai.usage.input_tokens": 40, "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.response.time_to_first_chunk": 0.25,
        },
        time_unix_nano=1_795_582_531_000_000_000,
        event_name="gen_ai.client.inference.operation.details",
        **fields,
    )  # fmt: skip


def test_an_event_with_a_spans_ids_is_awaited_and_without_counted() -> None:
    found = checked(inference(trace_id=TRACE_ID, span_id=SPAN_ID))
    assert (found.num_records, found.num_spans) == (1, 0)
    (call,) = found.awaited
    assert (call.trace_id, call.span_id) == (TRACE_ID.hex(), SPAN_ID.hex())
    ((span, attributes),) = spans_of(spans_of_calls([call]))
    assert (span.trace_id, span.span_id) == (TRACE_ID, SPAN_ID)
    alone = checked(inference())
    assert (alone.num_spans, alone.awaited) == (1, ())
    assert spans_of(alone.payload)[0][1] == attributes
    assert attributes["gen_ai.response.finish_reasons"] == '["stop"]'
    assert attributes["gen_ai.conversation.id"] == "s-1"


@pytest.mark.parametrize(
    "ids", [{}, {"trace_id": TRACE_ID, "span_id": SPAN_ID}], ids=["alone", "span"]
)
def test_a_call_of_gemini_cli_counts_at_its_end_only(ids: dict[str, Any]) -> None:
    # packages/core/src/telemetry/types.ts of google-gemini/gemini-cli at 001a804cf6d1.
    asked = {
        "event.name": "gen_ai.client.inference.operation.details",
        "event.timestamp": "2026-11-27T05:00:00.000Z", "session.id": "s-1",
        "gen_ai.operation.name": "generate_content", "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini-2.5-pro",
    }  # fmt: skip
    answered = {"gen_ai.response.model": "gemini-2.5-pro", "gen_ai.usage.output_tokens": 7}
    begun = checked(logs_request(1, asked, **ids))
    assert (begun.num_records, begun.num_spans, begun.awaited) == (1, 0, ())
    ended = checked(logs_request(1, asked | answered, **ids))
    assert ended.num_spans + len(ended.awaited) == 1


def test_awaited_calls_of_one_resource_keep_it_once() -> None:
    request = inference(trace_id=TRACE_ID, span_id=SPAN_ID)
    (resource_logs,) = request.resource_logs
    resource_logs.resource.attributes.extend(key_values({"large": "x" * 100_000}))
    (event,) = resource_logs.scope_logs[0].log_records
    for number in range(200):
        event.span_id = number.to_bytes(8, "big", signed=False) or SPAN_ID
        resource_logs.scope_logs[0].log_records.append(event)
    awaited = checked(request).awaited
    assert len({id(call.resource) for call in awaited}) == 1
    assert sum(len(call.span) for call in awaited) < 200_000
    assert len(spans_of_calls(awaited)) < 400_000


def test_an_evaluation_is_one_of_ours_below_the_span_it_is_about() -> None:
    request = logs_request(
        1,
        {"gen_ai.evaluation.name": "Relevance", "gen_ai.evaluation.score.value": 0.75},
        event_name="gen_ai.evaluation.result",
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
    )
    ((span, attributes),) = spans_of(checked(request).payload)
    assert span.name == "evenkeel.evaluation"
    assert (span.trace_id, span.parent_span_id) == (TRACE_ID, SPAN_ID)
    assert span.span_id != SPAN_ID
    assert attributes["gen_ai.evaluation.score.value"] == "0.75"


@pytest.mark.parametrize(
    "operation", ["evenkeel.feedback", "evenkeel.evaluation.live", "evenkeel.evaluation run"]
)
def test_an_event_is_never_a_judgement_nor_a_request_of_our_runtime(operation: str) -> None:
    said = {
        "gen_ai.operation.name": operation,
        "gen_ai.evaluation.score.label": "golden",
        "evenkeel.feedback.corrected": "mine",
        "evenkeel.status": "ok",
    }
    name = "gen_ai.client.inference.operation.details"
    ((span, attributes),) = spans_of(checked(logs_request(1, said, event_name=name)).payload)
    assert span.name == "chat"
    assert attributes["gen_ai.operation.name"] == "chat"
    assert "evenkeel.status" not in attributes


def test_many_events_are_not_converted_while_others_wait() -> None:
    request = agent_event("claude_code", "api_request")
    records = request.resource_logs[0].scope_logs[0].log_records
    records.extend([records[0]] * MAX_HASTY_EVENTS)
    with pytest.raises(OverBudgetError):
        check_logs_protobuf(request.SerializeToString(), is_hasty=True)
    found = check_logs_protobuf(request.SerializeToString())
    assert found.num_spans == MAX_HASTY_EVENTS + 1


@pytest.mark.parametrize("is_list", [False, True], ids=["attributes", "a list"])
def test_an_event_with_many_values_is_not_read_while_others_wait(is_list: bool) -> None:
    request = agent_event("claude_code", "api_request")
    record = request.resource_logs[0].scope_logs[0].log_records[0]
    if is_list:
        record.attributes.add(key="x").value.array_value.values.extend(
            [AnyValue()] * MAX_HASTY_VALUES
        )
    else:
        record.attributes.extend([KeyValue()] * MAX_HASTY_VALUES)
    with pytest.raises(OverBudgetError):
        check_logs_protobuf(request.SerializeToString(), is_hasty=True)
    assert check_logs_protobuf(request.SerializeToString()).num_spans == 1


def test_every_event_that_is_read_has_a_fixture() -> None:
    sent = {
        (sender["body_prefix"] + event if sender["body_prefix"] else attributes["event.name"])
        for sender in AGENT_EVENTS.values()
        for event, attributes in sender["events"].items()
    }
    assert {name for name in READERS if not name.startswith("gen_ai.")} <= sent
