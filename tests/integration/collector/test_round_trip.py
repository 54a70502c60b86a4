"""The real `evenkeel collect` with the real chDB: what goes in comes out, and nothing else does."""

import time
from functools import partial
from typing import Any

import pytest
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

from evenkeel.request_record import RequestRecord
from evenkeel.spans import Status
from tests.fixtures.collector_process import (
    PROTOBUF,
    CollectorProcess,
    post,
    wait_for,
)
from tests.fixtures.otlp_payload import key_values, trace_request


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


def test_a_span_can_be_queried_though_nothing_follows_it(collector: CollectorProcess) -> None:
    """How soon is a matter of bench/light_traffic.py: here the machine may be busy."""
    sql = "SELECT count() FROM requests WHERE trace_id = {trace_id:String}"
    trace_id = export(exporter_of(collector, "http"), "alone", {"evenkeel.status": "ok"})
    wait_for(lambda: collector.rows(sql, {"trace_id": trace_id}) == [(1,)])


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_span_of_the_sdk_is_in_spans_requests_and_rollups(
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
    sql = "SELECT count() FROM requests WHERE trace_id = {trace_id:String}"
    wait_for(lambda: collector.rows(sql, {"trace_id": trace_id}) == [(1,)])

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
    assert abs(stored["time"].timestamp() - time.time()) < 600

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
