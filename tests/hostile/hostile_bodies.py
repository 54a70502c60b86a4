"""Bodies that no exporter sends: mutations of good ones, and what a fair answer to them is."""

import copy
import gzip
import json
import random
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from tests.fixtures.log_payload import agent_event, logs_request
from tests.fixtures.otlp_payload import key_values, mutate, trace_request

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
PROBLEM = "application/problem+json"
TRACES, METRICS, LOGS, FEEDBACK = "/v1/traces", "/v1/metrics", "/v1/logs", "/v1/feedback"
SERVICE = "opentelemetry.proto.collector"
GRPC_METHODS = {
    TRACES: f"/{SERVICE}.trace.v1.TraceService/Export",
    METRICS: f"/{SERVICE}.metrics.v1.MetricsService/Export",
    LOGS: f"/{SERVICE}.logs.v1.LogsService/Export",
}
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
FAIR_CODES = frozenset({"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"})
# What JSON can say in place of anything.
VALUES = (
    '"\\ud800"', '"\\udfff x"', "1e999", "-1e999", "NaN", "Infinity", "9" * 400, "9" * 5000,
    f'"{"9" * 5000}"', "null", "true", "[]", "{}", "[[[[[]]]]]", '"\\u0000"', "-0", "1.5",
    '"1e400"', "9223372036854775808", '"-9223372036854775809"', "18446744073709551616", '""',
    '"NaN"', '"Infinity"', '"a/b\\\\/c"', "-1", "4294967296", '{"a": 1}', "[" * 200 + "]" * 200,
    "nul", '"', "\u00e9", '"\\ud83d\\ude00"', "01", "0x10", "1_000", "'a'",
)  # fmt: skip


@dataclass(frozen=True)
class Body:
    """A request's body, and how it is sent."""

    path: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers as bytes: some are no text."""
        return [(k.encode(), v.encode("latin-1")) for k, v in self.headers.items()]


def traces() -> Any:
    """Return a request with a value of every kind, a request of ours among its spans."""
    request = trace_request(
        2,
        {
            "evenkeel.status": "ok", "gen_ai.request.model": "m", "evenkeel.e2e_s": 0.5,
            "evenkeel.emission_time_s": [0.1, 0.2], "evenkeel.emission_tokens": [1, 1],
            "evenkeel.ledger.queue": 0.1, "evenkeel.sample_weight": 2.0, "n": -5, "b": True,
            "list": [1, "a/b", 0.5, None], "map": {"x": [1, {"y": "z"}]}, "raw": b"\x00\xff",
        },
        service="hostile",
    )  # fmt: skip
    for span in request.resource_spans[0].scope_spans[0].spans:
        event = span.events.add(name="e", time_unix_nano=time.time_ns())
        event.attributes.extend(key_values({"k": [1, [2]]}))
        span.links.add(trace_id=span.trace_id, span_id=span.span_id, trace_state="ot=th:8")
        span.status.code = 1
    return request


def metrics() -> Any:
    """Return a request with a metric of every kind."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend(key_values({"service.name": "hostile"}))
    add = resource.scope_metrics.add().metrics.add
    now_ns = time.time_ns()
    attributes = key_values({"model_name": "m"})
    add(name="g").gauge.data_points.add(time_unix_nano=now_ns, as_double=1.5, attributes=attributes)
    total = add(name="s").sum
    total.aggregation_temporality, total.is_monotonic = 2, True
    total.data_points.add(time_unix_nano=now_ns, start_time_unix_nano=now_ns - 1, as_int=7)
    histogram = add(name="h").histogram
    histogram.aggregation_temporality = 1
    histogram.data_points.add(
        time_unix_nano=now_ns, count=3, sum=1.5, bucket_counts=[1, 2], explicit_bounds=[0.1],
        min=0.1, max=0.9,
    )  # fmt: skip
    exponential = add(name="e").exponential_histogram.data_points.add(
        time_unix_nano=now_ns, count=2, scale=3, zero_count=1
    )
    exponential.positive.bucket_counts.extend([1, 0])
    exponential.negative.bucket_counts.extend([1])
    quantiles = add(name="q").summary.data_points.add(time_unix_nano=now_ns, count=2, sum=3)
    quantiles.quantile_values.add(quantile=0.5, value=1)
    return request


def logs() -> Any:
    """Return a request with a body and a value of every kind, and events that describe calls."""
    attributes = {
        "n": -5, "b": True, "list": [1, "a/b", 0.5, None], "map": {"x": [1, {"y": "z"}]},
        "raw": b"\x00\xff",
    }  # fmt: skip
    request = logs_request(1, attributes, body={"m": ["x", {"y": 1}]}, service="hostile")
    for body in ("text", 1.5, b"\x00\xff", [1, "a"], None):
        request.MergeFrom(
            logs_request(1, attributes, body, "hostile", trace_id=b"\1" * 16, span_id=b"\2" * 8)
        )
    for agent, event in (("claude_code", "api_request"), ("codex", "tool_result")):
        request.MergeFrom(agent_event(agent, event))
    asked = {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 5}
    for name in ("gen_ai.client.inference.operation.details", "gen_ai.evaluation.result"):
        request.MergeFrom(logs_request(1, asked, service="hostile", event_name=name))
    return request


def good_bodies() -> list[Body]:
    """Return a good body of each path and encoding."""
    spans, points, records = traces(), metrics(), logs()
    trace_id = spans.resource_spans[0].scope_spans[0].spans[0].trace_id.hex()
    said = {"trace_id": trace_id, "score": 0.5, "label": "up", "comment": "fine", "id": "1"}
    packed = spans.SerializeToString()
    return [
        Body(TRACES, PROTOBUF, packed),
        Body(METRICS, PROTOBUF, points.SerializeToString()),
        Body(TRACES, JSON, as_json(spans)),
        Body(METRICS, JSON, as_json(points)),
        Body(LOGS, PROTOBUF, records.SerializeToString()),
        Body(LOGS, JSON, as_json(records)),
        Body(FEEDBACK, JSON, json.dumps(said).encode()),
        Body(TRACES, PROTOBUF | {"content-encoding": "gzip"}, gzip.compress(packed)),
        Body(TRACES, PROTOBUF | {"content-encoding": "deflate"}, zlib.compress(packed)),
    ]


def as_json(message: Any) -> bytes:
    """Return OTLP/JSON: as proto3's, but for ids, which are hex."""
    document = json_format.MessageToDict(message, use_integers_for_enums=True)
    for resource in document.get("resourceSpans", ()):
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for holder in (span, *span.get("links", ())):
                    holder["traceId"], holder["spanId"] = TRACE_ID, TRACE_ID[:16]
    for resource in document.get("resourceLogs", ()):
        for scope in resource["scopeLogs"]:
            for record in scope["logRecords"]:
                if "traceId" in record:
                    record["traceId"], record["spanId"] = TRACE_ID, TRACE_ID[:16]
    return json.dumps(document).encode()


def mutations(rng: random.Random) -> Iterator[Body]:
    """Yield bodies without end: bytes changed, or in JSON a value in place of another."""
    good = good_bodies()
    while True:
        body = rng.choice(good)
        if body.headers is JSON and rng.random() < 0.7:
            content = change_value(json.loads(body.content), rng)
        elif rng.random() < 0.05:
            content = body.content[: rng.randrange(len(body.content))]
        else:
            content = mutate(body.content, rng)
        yield Body(body.path, body.headers, content)


def change_value(document: Any, rng: random.Random) -> bytes:
    """Return the document with a value or a name replaced, left out or said twice."""
    document = copy.deepcopy(document)
    mark = "\x01"
    holders = list(_holders(document))
    holder = rng.choice(holders)
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    if not keys:
        return json.dumps(document).encode()
    key = rng.choice(keys)
    choice = rng.random()
    if choice < 0.75:
        holder[key] = mark
    elif choice < 0.85:
        del holder[key]
    elif isinstance(holder, dict):
        holder[mark] = holder[key]
    else:
        holder.append(holder[key])
    value = rng.choice(VALUES)
    if choice >= 0.85 and not value.startswith('"'):
        value = f'"{str(key)[:20]}"'
    return json.dumps(document).replace(json.dumps(mark), value).encode("utf-8", "surrogatepass")


def _holders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _holders(each)


def complaint(body: Body, status: int, headers: Mapping[str, str], content: bytes) -> str | None:
    """Return what is wrong with an answer: a body is taken, or refused with a Status."""
    if 200 <= status < 300:
        return None
    if not 400 <= status < 500:
        return f"status {status}"
    kind = headers.get("content-type", "")
    try:
        if kind == "application/x-protobuf":
            message = Status.FromString(content).message
        elif kind == PROBLEM and body.path == FEEDBACK:
            message = json.loads(content)["detail"]
            return None if message else f"status {status} without a reason"
        elif kind == "application/json":
            message = json.loads(content)["message"]
        else:
            return f"status {status} with {kind!r}"
    except (DecodeError, ValueError, KeyError) as error:
        return f"status {status} without a Status: {error}"
    if body.headers.get("content-type") in ("application/x-protobuf", "application/json") and (
        kind != body.headers["content-type"]
    ):
        return f"status {status} in {kind}"
    return None if message else f"status {status} without a reason"
