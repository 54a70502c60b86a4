"""The real `evenkeel collect` with the real chDB: what goes in comes out, and nothing else does."""

import gzip
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc
import httpx
import pytest
from google.rpc.status_pb2 import Status as RpcStatus
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcExporter,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpExporter,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind

from evenkeel.spans import RequestRecord, Status
from tests.integration.collector_process import CollectorProcess, running_collector, wait_for
from tests.integration.otlp_payload import key_values, trace_request

pytestmark = pytest.mark.integration

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
GRPC_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    with running_collector(tmp_path_factory.mktemp("collector")) as running:
        yield running


def post(collector: CollectorProcess, body: bytes, headers: dict[str, str]) -> httpx.Response:
    return httpx.post(f"{collector.http_url}/v1/traces", content=body, headers=headers, timeout=30)


def export(exporter: SpanExporter, service: str, attributes: dict[str, Any]) -> str:
    """Send one request span with the OpenTelemetry SDK, and return its trace id."""
    provider = TracerProvider(resource=Resource({"service.name": service}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    span = provider.get_tracer("tests").start_span(
        "chat demo", kind=SpanKind.SERVER, attributes=attributes
    )
    span.add_event("first", {"n": 1})
    span.end()
    provider.shutdown()
    return trace.format_trace_id(span.get_span_context().trace_id)


def is_one(collector: CollectorProcess, sql: str, service: str) -> bool:
    return collector.rows(sql, {"s": service}) == [(1,)]


def exporter_of(collector: CollectorProcess, transport: str) -> SpanExporter:
    if transport == "http":
        return HttpExporter(endpoint=f"{collector.http_url}/v1/traces")
    return GrpcExporter(endpoint=collector.grpc_url, insecure=True)


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_span_of_the_sdk_is_in_spans_requests_and_rollups_within_a_second(
    collector: CollectorProcess, transport: str
) -> None:
    record = RequestRecord(
        request_id="r-1",
        model="demo",
        status=Status.ABORTED,
        finish_reason="abort",
        tenant="acme",
        session_id="s-1",
        slo_class="chat",
        route="/v1/chat/completions",
        prompt_name="support",
        prompt_version="2",
        input_tokens=120,
        output_tokens=3,
        cached_tokens=0,
        wasted_tokens=2,
        ttft_s=0.125,
        tpot_s=0.01,
        drafted_tokens=6,
        accepted_tokens=2,
        drafted_by_position=[3, 3],
        accepted_by_position=[2, 0],
        emission_time_s=[0.125, 0.1375],
        emission_tokens=[1, 2],
        ledger={"queue": 0.0625, "prefill": 0.0625},
    )
    trace_id = export(exporter_of(collector, transport), transport, record.to_attributes())
    sent_s = time.monotonic()
    sql = "SELECT count() FROM requests WHERE trace_id = {trace_id:String}"
    wait_for(lambda: collector.rows(sql, {"trace_id": trace_id}) == [(1,)])
    assert time.monotonic() - sent_s < 2.0

    client = collector.client()
    row = client.query(
        "SELECT * FROM requests WHERE trace_id = {trace_id:String}",
        parameters={"trace_id": trace_id},
    )
    (stored,) = row.named_results()
    expected = {
        "service": transport,
        "request_id": "r-1",
        "tenant": "acme",
        "session_id": "s-1",
        "model": "demo",
        "slo_class": "chat",
        "route": "/v1/chat/completions",
        "prompt_name": "support",
        "prompt_version": "2",
        "operation": "chat",
        "status": "aborted",
        "finish_reason": "abort",
        "error_type": None,
        "max_tokens": None,
        "temperature": None,
        "input_tokens": 120,
        "output_tokens": 3,
        "cached_tokens": 0,
        "wasted_tokens": 2,
        "queue_s": None,
        "prefill_s": None,
        "decode_s": None,
        "ttft_s": 0.125,
        "tpot_s": 0.01,
        "itl_p50_s": None,
        "itl_p99_s": None,
        "stall_s": None,
        "e2e_s": None,
        "drafted_tokens": 6,
        "accepted_tokens": 2,
        "drafted_by_position": [3, 3],
        "accepted_by_position": [2, 0],
        "response_cache": None,
        "emission_time_s": [0.125, 0.1375],
        "emission_tokens": [1, 2],
        "ledger": {"queue": 0.0625, "prefill": 0.0625},
        "sample_weight": 1.0,
        "is_time_clamped": False,
    }
    assert {name: stored[name] for name in expected} == expected
    assert abs(stored["time"].timestamp() - time.time()) < 60

    (span,) = client.query(
        "SELECT * FROM spans WHERE TraceId = {trace_id:String}", parameters={"trace_id": trace_id}
    ).named_results()
    assert span["SpanName"] == "chat demo"
    assert (span["SpanKind"], span["StatusCode"]) == ("Server", "Unset")
    assert span["ResourceAttributes"]["service.name"] == transport
    assert span["SpanAttributes"]["gen_ai.usage.input_tokens"] == "120"
    assert span["SpanAttributes"]["gen_ai.response.finish_reasons"] == '["abort"]'
    assert span["Events.Name"] == ["first"]
    assert span["Events.Attributes"] == [{"n": "1"}]
    assert span["Duration"] > 0

    for table in ("requests_1m", "requests_1h"):
        # Views commit one after the other: the rollups are there a moment after the requests.
        num_rolled_up = f"SELECT sum(num_requests) FROM {table} WHERE service = {{s:String}}"
        wait_for(partial(is_one, collector, num_rolled_up, transport))
        rollup = client.query(
            f"SELECT sum(num_requests), sum(num_aborted), sum(num_ok), sum(input_tokens),"
            f" sum(cacheable_tokens), quantilesTDigestMerge(0.5, 0.95, 0.99)(ttft_s),"
            f" sum(drafted_tokens) FROM {table} WHERE service = {{service:String}}",
            parameters={"service": transport},
        ).first_row
        assert rollup[:5] == (1, 1, 0, 120, 120)
        assert rollup[5] == pytest.approx([0.125] * 3)
        assert rollup[6] == 6
    client.close()


def test_what_a_request_does_not_say_is_null_and_never_zero(collector: CollectorProcess) -> None:
    body = trace_request(
        1, {"evenkeel.status": "ok", "gen_ai.request.model": "bare"}, service="bare"
    )
    assert post(collector, body.SerializeToString(), PROTOBUF).status_code == 200
    sql = "SELECT sum(num_requests) FROM requests_1h WHERE service = 'bare'"
    wait_for(lambda: collector.rows(sql) == [(1,)])
    client = collector.client()
    (stored,) = client.query("SELECT * FROM requests WHERE service = 'bare'").named_results()
    present = {name for name, value in stored.items() if value not in (None, [], {}, "")}
    assert present == {
        "time", "trace_id", "span_id", "service", "model", "status", "sample_weight",
        "is_time_clamped", "source", "detail_probability",
    }  # fmt: skip
    rollup = client.query(
        "SELECT sum(input_tokens), quantilesTDigestMerge(0.5, 0.95, 0.99)(ttft_s)"
        " FROM requests_1m WHERE service = 'bare'"
    ).first_row
    assert rollup[0] is None
    assert all(value is None or value != value for value in rollup[1])  # NaN: no data
    client.close()


def test_an_evaluation_is_a_row_of_eval_results(collector: CollectorProcess) -> None:
    answer = {
        "evenkeel.eval.run_id": "run-1",
        "evenkeel.eval.dataset": "support",
        "evenkeel.eval.side": "A",
        "evenkeel.eval.item_id": "i-1",
        "evenkeel.eval.tags": ["exact", "long"],
        "gen_ai.evaluation.name": "exact_match",
        "gen_ai.evaluation.score.value": 1.0,
    }
    gate = {
        "evenkeel.eval.run_id": "run-1",
        "evenkeel.eval.gate": "accuracy",
        "evenkeel.eval.verdict": "pass",
        "evenkeel.eval.lower": -0.5,
        "evenkeel.eval.num_pairs": 200,
    }
    body = trace_request(1, answer, name="evenkeel.evaluation").SerializeToString()
    body += trace_request(1, gate, name="evenkeel.evaluation.run").SerializeToString()
    assert post(collector, body, PROTOBUF).status_code == 200
    wait_for(lambda: collector.rows("SELECT count() FROM eval_results") == [(2,)])
    assert collector.rows(
        "SELECT kind, run_id, dataset, side, item_id, tags, name, score, gate, verdict, lower,"
        " num_pairs, upper FROM eval_results ORDER BY kind"
    ) == [
        ("answer", "run-1", "support", "A", "i-1", ["exact", "long"], "exact_match", 1.0,
         None, None, None, None, None),
        ("gate", "run-1", None, None, None, [], None, None, "accuracy", "pass", -0.5, 200, None),
    ]  # fmt: skip


def test_values_of_every_kind_are_kept(collector: CollectorProcess) -> None:
    attributes = {
        "s": "text",
        "empty": "",
        "b": False,
        "i": -(2**63),
        "d": 0.1,
        "raw": b"\x00\xff",
        "list": ["q\"'\\", 1, 0.5, True, None, b"\x00"],
        "empty list": [],
        "map": {"x": [1, {"y": "z"}]},
        "none": None,
    }
    request = trace_request(1, attributes, name="values")
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.extend(key_values({"twice": 1}))
    span.attributes.extend(key_values({"twice": 2}))
    span.links.add(trace_id=b"\xab" * 16, span_id=b"\xcd" * 8, attributes=key_values({"l": 1}))
    assert post(collector, request.SerializeToString(), PROTOBUF).status_code == 200
    sql = "SELECT mapKeys(SpanAttributes), mapValues(SpanAttributes), Links.TraceId, Links.SpanId, "
    sql += "Links.Attributes FROM spans WHERE SpanName = 'values'"
    wait_for(lambda: len(collector.rows(sql)) == 1)
    ((keys, values, trace_ids, span_ids, link_attributes),) = collector.rows(sql)
    assert list(zip(keys, values, strict=True)) == [
        ("s", "text"),
        ("empty", ""),
        ("b", "false"),
        ("i", "-9223372036854775808"),
        ("d", "0.1"),
        ("raw", "AP8="),
        ("list", '["q\\"\'\\\\",1,0.5,true,null,"AA=="]'),
        ("empty list", "[]"),
        ("map", '{"x":[1,{"y":"z"}]}'),
        ("none", ""),
        ("twice", "1"),
        ("twice", "2"),
    ]
    assert (trace_ids, span_ids, link_attributes) == (["ab" * 16], ["cd" * 8], [{"l": "1"}])


@pytest.mark.parametrize(
    ("name", "start_ns", "end_ns", "duration_ns", "is_flagged"),
    [
        ("good", None, None, 1_000_000, False),
        ("zero", 0, 0, 0, True),
        ("largest", 2**64 - 1, 2**64 - 1, 0, True),
        ("end missing", None, 0, 0, True),
        ("end before start", None, -5, 0, True),
        ("a year ago", -365 * 86400 * 10**9, None, 0, True),
    ],
)
def test_bad_times_are_clamped_and_flagged(
    collector: CollectorProcess,
    name: str,
    start_ns: int | None,
    end_ns: int | None,
    duration_ns: int,
    is_flagged: bool,
) -> None:
    now_ns = time.time_ns()
    if start_ns is not None and start_ns < 0:
        start_ns += now_ns
        end_ns = start_ns + 1
    if end_ns is not None and end_ns < 0:
        start_ns, end_ns = now_ns, now_ns + end_ns
    request = trace_request(
        1,
        {"evenkeel.status": "ok", "gen_ai.request.model": "m"},
        name=name,
        service="times",
        start_ns=start_ns,
        end_ns=end_ns,
    )
    sent_start_ns = request.resource_spans[0].scope_spans[0].spans[0].start_time_unix_nano
    assert post(collector, request.SerializeToString(), PROTOBUF).status_code == 200
    sql = (
        "SELECT toUnixTimestamp64Nano(Timestamp), Duration,"
        " SpanAttributes['evenkeel.clamped.start_unix_nano'], is_time_clamped"
        " FROM spans JOIN requests ON span_id = SpanId WHERE SpanName = {name:String}"
    )
    wait_for(lambda: len(collector.rows(sql, {"name": name})) == 1)
    ((stored_ns, stored_duration, original, flag),) = collector.rows(sql, {"name": name})
    assert abs(stored_ns - now_ns) < 60 * 10**9
    assert stored_duration == duration_ns
    assert flag is is_flagged
    assert original == (str(sent_start_ns) if is_flagged else "")


def test_many_days_in_one_request_do_not_reject_it(collector: CollectorProcess) -> None:
    now_ns = time.time_ns()
    body = b"".join(
        trace_request(1, service="days", start_ns=now_ns - day * 86400 * 10**9).SerializeToString()
        for day in range(200)
    )
    assert post(collector, body, PROTOBUF).status_code == 200
    sql = "SELECT count() FROM spans WHERE ServiceName = 'days'"
    wait_for(lambda: collector.rows(sql) == [(200,)])


# Wrong input

OK_BODY = trace_request(1, name="fine", service="wrong").SerializeToString()


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        pytest.param(PROTOBUF, b"", 200, id="empty"),
        pytest.param(JSON, b"{}", 200, id="empty JSON"),
        pytest.param(PROTOBUF, OK_BODY, 200, id="good"),
        pytest.param({"content-type": "application/json; charset=utf-8"}, b"{}", 200, id="charset"),
        pytest.param(
            {**PROTOBUF, "content-encoding": "gzip"}, gzip.compress(OK_BODY), 200, id="gzip"
        ),
        pytest.param(PROTOBUF, b"\x0a\xff", 400, id="malformed protobuf"),
        pytest.param(JSON, b"{", 400, id="malformed JSON"),
        pytest.param(JSON, b'{"resourceSpans": 3}', 400, id="JSON of another shape"),
        pytest.param({**PROTOBUF, "content-encoding": "gzip"}, b"x", 400, id="not gzip"),
        pytest.param({**PROTOBUF, "content-encoding": "br"}, b"x", 400, id="unknown encoding"),
        pytest.param({"content-type": "text/plain"}, b"x", 415, id="wrong content type"),
        pytest.param({}, b"x", 415, id="no content type"),
        pytest.param(PROTOBUF, b"\0" * (21 << 20), 413, id="oversized"),
        pytest.param(
            {**PROTOBUF, "content-encoding": "gzip"},
            gzip.compress(b"\0" * (200 << 20), 1),
            413,
            id="gzip bomb",
        ),
    ],
)
def test_a_body_gets_the_status_of_the_specification_in_its_own_encoding(
    collector: CollectorProcess, headers: dict[str, str], body: bytes, status: int
) -> None:
    answer = post(collector, body, headers)
    assert answer.status_code == status
    content_type = headers.get("content-type", "").split(";")[0]
    if status == 200:
        assert answer.headers["content-type"] == content_type
        assert answer.content == (b"{}" if content_type == "application/json" else b"")
    elif content_type == "application/x-protobuf":
        assert RpcStatus.FromString(answer.content).message
        assert answer.headers["content-type"] == content_type
    else:
        assert json.loads(answer.content)["message"]
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/metrics", 405),
        ("POST", "/v1/logs", 404),
        ("GET", "/v1/traces", 405),
        ("GET", "/nothing", 404),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
    ],
)
def test_other_paths_and_methods(
    collector: CollectorProcess, method: str, path: str, status: int
) -> None:
    assert httpx.request(method, collector.http_url + path).status_code == status


def call_grpc(collector: CollectorProcess, method: str, body: bytes, **options: Any) -> bytes:
    with grpc.insecure_channel(collector.grpc_url.removeprefix("http://")) as channel:
        return bytes(channel.unary_unary(method)(body, timeout=10, **options))


def test_grpc_answers_an_empty_message_also_to_gzip(collector: CollectorProcess) -> None:
    assert call_grpc(collector, GRPC_METHOD, OK_BODY) == b""
    assert call_grpc(collector, GRPC_METHOD, OK_BODY, compression=grpc.Compression.Gzip) == b""


@pytest.mark.parametrize(
    ("method", "body", "compression", "code"),
    [
        pytest.param(GRPC_METHOD, b"\x0a\xff", None, "INVALID_ARGUMENT", id="malformed"),
        pytest.param(GRPC_METHOD, b"\0" * (5 << 20), None, "RESOURCE_EXHAUSTED", id="oversized"),
        pytest.param(
            GRPC_METHOD, b"\0" * (50 << 20), grpc.Compression.Gzip, "RESOURCE_EXHAUSTED", id="bomb"
        ),
        pytest.param(
            "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            b"", None, "UNIMPLEMENTED", id="logs",
        ),
    ],
)  # fmt: skip
def test_grpc_refuses_with_the_code_of_the_specification(
    collector: CollectorProcess, method: str, body: bytes, compression: Any, code: str
) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        call_grpc(collector, method, body, compression=compression)
    assert raised.value.code().name == code


def test_mutated_bodies_are_stored_or_refused_and_never_an_error_of_ours(
    collector: CollectorProcess,
) -> None:
    rng = random.Random(11)
    good = bytearray(
        trace_request(3, {"s": "text", "list": [1, "a"], "map": {"x": [1]}}).SerializeToString()
    )
    statuses = Counter[int]()
    with httpx.Client() as client:
        for _ in range(600):
            body = bytearray(good)
            for _ in range(rng.randint(1, 6)):
                position = rng.randrange(len(body))
                choice = rng.random()
                if choice < 0.6:
                    body[position] = rng.randrange(256)
                elif choice < 0.8:
                    del body[position : position + rng.randint(1, 8)]
                else:
                    body[position:position] = rng.randbytes(rng.randint(1, 8))
            answer = client.post(
                f"{collector.http_url}/v1/traces", content=bytes(body), headers=PROTOBUF
            )
            statuses[answer.status_code] += 1
    assert set(statuses) == {200, 400}


def test_what_was_refused_is_counted_by_reason_and_nothing_else_was_lost(
    collector: CollectorProcess,
) -> None:
    post(collector, b"\x0a\xff", PROTOBUF)
    text = httpx.get(f"{collector.http_url}/metrics").text
    metrics = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    name = "evenkeel_collector_requests_rejected_total"
    assert float(metrics[f'{name}{{reason="malformed",transport="http"}}']) >= 1
    assert float(metrics["evenkeel_collector_insert_failures_total"]) == 0
    assert float(metrics["evenkeel_collector_segments_quarantined_total"]) == 0
    accepted = sum(
        float(value)
        for key, value in metrics.items()
        if key.startswith("evenkeel_collector_spans_accepted_total")
    )
    wait_for(lambda: collector.rows("SELECT count() FROM spans") == [(int(accepted),)])
