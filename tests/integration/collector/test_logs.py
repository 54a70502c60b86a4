"""OTLP logs over both transports and encodings, into `logs`, and the calls that events describe."""

import asyncio
import json
import logging
import time
import uuid
from typing import Any

import clickhouse_connect
import httpx
import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from evenkeel.store import read_query
from evenkeel_collector.intake.awaited_calls import WAIT_S, AwaitedCalls, CallSettler
from evenkeel_collector.intake.otlp_body import AwaitedCall, CheckedBody
from tests.fixtures.collector_process import JSON, PROTOBUF, CollectorProcess, wait_for
from tests.fixtures.log_payload import agent_event, logs_request
from tests.fixtures.otlp_payload import trace_request
from tests.queries import query

SECOND = 10**9
# The exporter's otel_logs, as of opentelemetry-collector-contrib e3bd2d1d648f,
# exporter/clickhouseexporter/internal/sqltemplates/logs_table.sql.
EXPORTERS_COLUMNS = {
    "Timestamp": "DateTime64(9)",
    "TimestampTime": "DateTime",
    "TraceId": "String",
    "SpanId": "String",
    "TraceFlags": "UInt8",
    "SeverityText": "LowCardinality(String)",
    "SeverityNumber": "UInt8",
    "ServiceName": "LowCardinality(String)",
    "Body": "String",
    "ResourceSchemaUrl": "LowCardinality(String)",
    "ResourceAttributes": "Map(LowCardinality(String), String)",
    "ScopeSchemaUrl": "LowCardinality(String)",
    "ScopeName": "String",
    "ScopeVersion": "LowCardinality(String)",
    "ScopeAttributes": "Map(LowCardinality(String), String)",
    "LogAttributes": "Map(LowCardinality(String), String)",
    "EventName": "String",
}


def send(
    collector: CollectorProcess, body: bytes, headers: dict[str, str] = PROTOBUF
) -> httpx.Response:
    return httpx.post(f"{collector.http_url}/v1/logs", content=body, headers=headers, timeout=120)


def found(collector: CollectorProcess, table: str, service: str, num: int = 1) -> list[Any]:
    """Return the rows of a service as dicts, once there are so many."""
    name = "ServiceName" if table in ("logs", "spans") else "service"
    sql = f"SELECT * FROM {table} WHERE {name} = {{s:String}}"
    client = collector.client()
    try:
        wait_for(lambda: len(client.query(sql, {"s": service}).result_rows) >= num)
        rows = list(client.query(sql, {"s": service}).named_results())
    finally:
        client.close()
    assert len(rows) == num
    return rows


def test_the_table_has_the_exporters_columns(collector: CollectorProcess) -> None:
    columns = collector.rows(
        "SELECT name, type FROM system.columns WHERE database = 'evenkeel' AND table = 'logs'"
    )
    assert dict(columns) == EXPORTERS_COLUMNS


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_line_logged_with_the_sdk_is_a_row_tied_to_its_span(
    collector: CollectorProcess, transport: str
) -> None:
    service = f"sdk over {transport}"
    exporter: Any = (
        HttpExporter(endpoint=f"{collector.http_url}/v1/logs")
        if transport == "http"
        else GrpcExporter(endpoint=collector.grpc_url, insecure=True)
    )
    provider = LoggerProvider(resource=Resource({"service.name": service}))
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    logger = logging.getLogger(service)
    with pytest.warns(DeprecationWarning, match="LoggingHandler"):
        handler = LoggingHandler(logger_provider=provider)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    tracer = TracerProvider().get_tracer("tests")
    before_ns = time.time_ns()
    with tracer.start_as_current_span("work") as span:
        logger.warning("only %d left", 3, extra={"shelf": "a/b"})
    logger.removeHandler(handler)
    provider.shutdown()
    (row,) = found(collector, "logs", service)
    context = span.get_span_context()
    assert row["TraceId"] == trace.format_trace_id(context.trace_id)
    assert row["SpanId"] == trace.format_span_id(context.span_id)
    assert (row["TraceFlags"] & 1, row["SeverityNumber"], row["SeverityText"]) == (1, 13, "WARN")
    assert (row["Body"], row["ScopeName"]) == ("only 3 left", service)
    assert row["LogAttributes"]["shelf"] == "a/b"
    assert row["ResourceAttributes"]["service.name"] == service
    assert row["Timestamp"].timestamp() >= before_ns // SECOND
    assert row["TimestampTime"] == row["Timestamp"].replace(microsecond=0)


HOUR_AGO = time.time_ns() - 3600 * SECOND
ODD = [
    ("no time at all", {"time_unix_nano": 0, "observed_time_unix_nano": 0},
     {"LogAttributes": {"evenkeel.clamped.time_unix_nano": "0"}}, ("Timestamp", "out_of_range")),
    ("an observed time", {"time_unix_nano": 0, "observed_time_unix_nano": HOUR_AGO},
     {"LogAttributes": {}, "ns": HOUR_AGO}, None),
    ("a time without end", {"time_unix_nano": 2**64 - 1},
     {"LogAttributes": {"evenkeel.clamped.time_unix_nano": str(2**64 - 1)}},
     ("Timestamp", "out_of_range")),
    ("a severity above", {"severity_number": 99},
     {"SeverityNumber": 0, "LogAttributes": {"evenkeel.refused.severity_number": "99"}},
     ("SeverityNumber", "out_of_range")),
    ("a severity below", {"severity_number": -1},
     {"SeverityNumber": 0, "LogAttributes": {"evenkeel.refused.severity_number": "-1"}},
     ("SeverityNumber", "out_of_range")),
    ("a short trace id", {"trace_id": b"\1\2", "span_id": b"\1" * 8},
     {"TraceId": "", "SpanId": "01" * 8, "LogAttributes": {"evenkeel.refused.trace_id": "0102"}},
     ("TraceId", "wrong_length")),
    ("a long span id", {"trace_id": b"\1" * 16, "span_id": b"\1" * 9},
     {"TraceId": "01" * 16, "SpanId": "",
      "LogAttributes": {"evenkeel.refused.span_id": "01" * 9}}, ("SpanId", "wrong_length")),
    ("flags of 32 bits", {"flags": 0xFFFFFF01}, {"TraceFlags": 1, "LogAttributes": {}}, None),
    ("an event", {"event_name": "x.y"}, {"EventName": "x.y", "LogAttributes": {}}, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "expected", "refused"), [pytest.param(*each[1:], id=each[0]) for each in ODD]
)
def test_an_odd_record_is_a_row_that_says_what_was_sent(
    collector: CollectorProcess,
    fields: dict[str, Any],
    expected: dict[str, Any],
    refused: tuple[str, str] | None,
) -> None:
    service = uuid.uuid4().hex
    count = (
        "SELECT sum(num) FROM refused_numbers WHERE source = 'logs'"
        " AND (field, reason) = {r:Tuple(String, String)}"
    )
    before = collector.rows(count, {"r": refused}) if refused else []
    now_ns = time.time_ns()
    body = logs_request(1, service=service, **fields).SerializeToString()
    assert send(collector, body).status_code == 200
    (row,) = found(collector, "logs", service)
    expected = dict(expected)
    wanted_ns = expected.pop("ns", None)
    if wanted_ns is not None:
        assert abs(row["Timestamp"].timestamp() - wanted_ns / SECOND) < 0.001
    else:
        assert abs(row["Timestamp"].timestamp() - now_ns / SECOND) < 600
    assert {name: row[name] for name in expected} == expected
    if refused:
        # Views commit one after the other.
        wait_for(lambda: collector.rows(count, {"r": refused}) == [(before[0][0] + 1,)])


BODIES = [
    ("nothing", None, ""),
    ("a number", 1.5, "1.5"),
    ("a bool", False, "false"),
    ("bytes", b"\x00\xff", "AP8="),
    ("a list", ["a", 1, None], '["a",1,null]'),
    ("an empty list", [], "[]"),
    ("maps in maps", {"a": {"b": [{"c": 1}]}}, '{"a":{"b":[{"c":1}]}}'),
    ("a megabyte", "x" * (1 << 20), "x" * (1 << 20)),
]


@pytest.mark.parametrize(("body", "text"), [pytest.param(*each[1:], id=each[0]) for each in BODIES])
def test_a_body_or_an_attribute_of_any_kind_is_text(
    collector: CollectorProcess, body: Any, text: str
) -> None:
    service = uuid.uuid4().hex
    request = logs_request(1, {"v": body}, body=body, service=service)
    assert send(collector, request.SerializeToString()).status_code == 200
    (row,) = found(collector, "logs", service)
    assert row["Body"] == row["LogAttributes"]["v"] == text


def test_a_body_that_comes_again_is_stored_once_and_json_in_gzip_is_taken(
    collector: CollectorProcess,
) -> None:
    service = uuid.uuid4().hex
    body = logs_request(3, service=service).SerializeToString()
    assert [send(collector, body).status_code for _ in range(3)] == [200, 200, 200]
    found(collector, "logs", service, 3)
    document = {"resourceLogs": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "in JSON"}}]},
        "scopeLogs": [{"logRecords": [{
            "timeUnixNano": str(time.time_ns()), "severityNumber": 17, "body": {"intValue": "7"},
            "traceId": "5B8EFFF798038103D269B633813FC60C", "spanId": "eee19b7ec3c1b174",
            "attributes": [{"key": "n", "value": {"doubleValue": 0.5}}]}]}]}]}  # fmt: skip
    assert send(collector, json.dumps(document).encode(), JSON).status_code == 200
    (row,) = found(collector, "logs", "in JSON")
    assert (row["Body"], row["SeverityNumber"]) == ("7", 17)
    assert row["TraceId"] == "5b8efff798038103d269b633813fc60c"
    assert row["LogAttributes"] == {"n": "0.5"}


def test_a_session_of_claude_code_is_requests_and_tool_calls(collector: CollectorProcess) -> None:
    for event in ("user_prompt", "api_request", "api_error", "tool_result", "tool_decision"):
        body = agent_event("claude_code", event).SerializeToString()
        assert send(collector, body).status_code == 200
    assert len(found(collector, "logs", "claude-code", 5)) == 5
    failed, done = sorted(
        found(collector, "requests", "claude-code", 2), key=lambda r: r["status"] == "ok"
    )
    assert done["session_id"] == failed["session_id"] == "11111111-2222-4333-8444-555555555555"
    assert (done["model"], done["source"]) == ("claude-sonnet-5", "gen_ai")
    assert (done["input_tokens"], done["cached_tokens"], done["output_tokens"]) == (
        30512,
        30000,
        150,
    )
    assert (done["e2e_s"], done["given_cost"], done["cache_write_tokens"]) == (4.0, 0.0125, 500)
    assert (failed["status"], failed["error_type"], failed["e2e_s"]) == ("error", "529", 1.5)
    spans = found(collector, "spans", "claude-code", 3)
    (tool,) = (span for span in spans if span["SpanName"] == "execute_tool Bash")
    assert tool["Duration"] == 250_000_000
    assert {span["TraceId"] for span in spans} == {"aaaaaaaabbbb4ccc8dddeeeeeeeeeeee"}
    session = (
        "SELECT num_requests, num_tools, num_tool_errors FROM sessions"
        " WHERE session_id = {s:String}"
    )
    wait_for(lambda: collector.rows(session, {"s": done["session_id"]}) == [(2, 1, 1)])


def test_a_session_of_codex_is_requests_and_tool_calls(collector: CollectorProcess) -> None:
    events = ("user_prompt", "api_request", "sse_event", "sse_event completed", "tool_result")
    for event in events:
        body = agent_event("codex", event).SerializeToString()
        assert send(collector, body).status_code == 200
    found(collector, "logs", "codex_cli_rs", len(events))
    (row,) = found(collector, "requests", "codex_cli_rs")
    assert row["session_id"] == "99999999-8888-4777-8666-555555555555"
    assert (row["model"], row["input_tokens"], row["cached_tokens"]) == (
        "gpt-5.1-codex",
        12000,
        11000,
    )
    # From its beginning, 0.82 s before the second event, to the event of its end.
    assert 0.82 <= row["e2e_s"] < 60
    assert len(found(collector, "spans", "codex_cli_rs", 2)) == 2


def test_an_evaluations_event_is_a_result(collector: CollectorProcess) -> None:
    service, trace_id, span_id = uuid.uuid4().hex, uuid.uuid4().bytes, uuid.uuid4().bytes[:8]
    attributes = {
        "gen_ai.evaluation.name": "Relevance", "gen_ai.evaluation.score.value": 0.75,
        "gen_ai.evaluation.score.label": "relevant", "gen_ai.response.id": "r-1",
    }  # fmt: skip
    request = logs_request(
        1, attributes, service=service, event_name="gen_ai.evaluation.result",
        trace_id=trace_id, span_id=span_id,
    )  # fmt: skip
    assert send(collector, request.SerializeToString()).status_code == 200
    (row,) = found(collector, "eval_results", service)
    assert (row["name"], row["score"], row["label"]) == ("Relevance", 0.75, "relevant")
    assert (row["trace_id"], row["parent_span_id"]) == (trace_id.hex(), span_id.hex())


def test_a_request_that_a_span_and_an_event_describe_counts_once(
    collector: CollectorProcess,
) -> None:
    """The event is awaited: only if no span of its ids comes, it counts on its own."""
    service = uuid.uuid4().hex
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-z"}
    spans = trace_request(1, attributes, name="chat gpt-z", service=service)
    (span,) = spans.resource_spans[0].scope_spans[0].spans
    span.kind = 3
    ids = [(span.trace_id, span.span_id), (uuid.uuid4().bytes, uuid.uuid4().bytes[:8])]
    # One is named by its field, one by its body; zeros are no ids, and count elsewhere.
    name = "gen_ai.client.inference.operation.details"
    more: list[tuple[str, bytes, bytes, dict[str, Any]]] = [
        (service, *ids[0], {"event_name": name}), (service, *ids[1], {"body": name}),
        (uuid.uuid4().hex, bytes(16), bytes(8), {"event_name": name}),
    ]  # fmt: skip
    for sender, trace_id, span_id, named in more:
        event = logs_request(
            1, attributes, service=sender, trace_id=trace_id, span_id=span_id, **named
        )
        assert send(collector, event.SerializeToString()).status_code == 200
    url = f"{collector.http_url}/v1/traces"
    assert httpx.post(url, content=spans.SerializeToString(), headers=PROTOBUF).status_code == 200
    found(collector, "logs", service, 2)
    found(collector, "requests", service, 1)

    (settled,) = asyncio.run(settle(collector))
    assert settled.num_spans == 1
    assert httpx.post(url, content=settled.payload, headers=PROTOBUF).status_code == 200
    first, second = found(collector, "requests", service, 2)
    assert {first["model"], second["model"]} == {"gpt-z"}
    assert {first["e2e_s"], second["e2e_s"]} == {0.001, None}
    assert asyncio.run(settle(collector)) == []
    # A span that comes after all: the call was counted.
    late = trace_request(1, attributes, name="chat gpt-z", service=service)
    (span,) = late.resource_spans[0].scope_spans[0].spans
    span.kind, span.trace_id, span.span_id = 3, ids[1][0], ids[1][1]
    assert httpx.post(url, content=late.SerializeToString(), headers=PROTOBUF).status_code == 200
    found(collector, "spans", service, 3)
    assert asyncio.run(settle(collector)) == []
    found(collector, "requests", service, 2)


def test_another_tenants_span_with_an_events_ids_is_not_its_span(
    collector: CollectorProcess,
) -> None:
    service = uuid.uuid4().hex
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-z"}
    spans = trace_request(1, attributes | {"evenkeel.tenant": "other"}, service=service)
    (span,) = spans.resource_spans[0].scope_spans[0].spans
    span.kind = 3
    event = logs_request(
        1, attributes, service=service, resource={"evenkeel.tenant": "acme"},
        trace_id=span.trace_id, span_id=span.span_id,
        event_name="gen_ai.client.inference.operation.details",
    )  # fmt: skip
    url = f"{collector.http_url}/v1/traces"
    assert httpx.post(url, content=spans.SerializeToString(), headers=PROTOBUF).status_code == 200
    assert send(collector, event.SerializeToString()).status_code == 200
    found(collector, "logs", service)
    found(collector, "requests", service)
    (settled,) = asyncio.run(settle(collector))
    assert httpx.post(url, content=settled.payload, headers=PROTOBUF).status_code == 200
    rows = found(collector, "requests", service, 2)
    assert {row["tenant"] for row in rows} == {"acme", "other"}
    assert asyncio.run(settle(collector)) == []


@pytest.mark.parametrize(
    ("of_event", "of_span", "is_awaited"),
    [("acme", "other", True), ("acme", "acme", False), ("", "acme", False), ("acme", "", False)],
)
def test_an_event_is_awaited_again_unless_a_span_may_be_its_own(
    of_event: str, of_span: str, is_awaited: bool, collector: CollectorProcess
) -> None:
    service = uuid.uuid4().hex
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-z"}
    spans = trace_request(1, attributes | {"evenkeel.tenant": of_span}, service=service)
    (span,) = spans.resource_spans[0].scope_spans[0].spans
    event = logs_request(
        1, attributes | {"evenkeel.tenant": of_event}, service=service, trace_id=span.trace_id,
        span_id=span.span_id, event_name="gen_ai.client.inference.operation.details",
    )  # fmt: skip
    url = f"{collector.http_url}/v1/traces"
    assert httpx.post(url, content=spans.SerializeToString(), headers=PROTOBUF).status_code == 200
    assert send(collector, event.SerializeToString()).status_code == 200
    found(collector, "logs", service)
    found(collector, "spans", service)
    client = collector.client()
    try:
        sql = read_query(query("recent_calls"))
        sent = {"event": "gen_ai.client.inference.operation.details", "limit": 50_000}
        traces = {row[1] for row in client.query(sql, sent).result_rows}
    finally:
        client.close()
    assert (span.trace_id.hex() in traces) is is_awaited


class _Looks(AwaitedCalls):
    """Counts the settler's looks."""

    def __init__(self) -> None:
        super().__init__()
        self.num_begun = 0

    def take_ripe(self, wait_s: float = WAIT_S) -> list[AwaitedCall]:
        self.num_begun += 1
        return super().take_ripe(wait_s)


async def settle(collector: CollectorProcess) -> list[CheckedBody]:
    """Return what the settler of a new process writes to the log for the events in the store."""
    accepted = []
    looks = _Looks()

    async def accept(body: CheckedBody, transport: str) -> None:
        accepted.append(body)

    settler = CallSettler(
        looks,
        accept,
        lambda: clickhouse_connect.get_client(dsn=collector.query_url, database="evenkeel"),
        wait_s=0.0,
        look_every_s=0.01,
    )
    async with asyncio.timeout(240):
        # The second one begins once the first is done.
        while looks.num_begun < 2:
            await asyncio.sleep(0.02)
    await settler.close()
    return accepted
