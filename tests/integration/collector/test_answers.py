"""What the real `evenkeel collect` answers: to right and wrong bodies, on every path."""

import gzip
import json
import random
from collections import Counter
from typing import Any

import grpc
import httpx
import pytest
from google.rpc.status_pb2 import Status as RpcStatus

from tests.fixtures.collector_process import (
    JSON,
    PROTOBUF,
    CollectorProcess,
    post,
    wait_for,
)
from tests.fixtures.otlp_payload import mutate, trace_request

GRPC_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


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
        ("GET", "/v1/logs", 405),
        ("POST", "/v1development/profiles", 404),
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
        return bytes(channel.unary_unary(method)(body, timeout=120, **options))


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
            "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
            b"", None, "UNIMPLEMENTED", id="profiles",
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
    good = trace_request(3, {"s": "text", "list": [1, "a"], "map": {"x": [1]}}).SerializeToString()
    statuses = Counter[int]()
    with httpx.Client() as client:
        for _ in range(600):
            answer = client.post(
                f"{collector.http_url}/v1/traces", content=mutate(good, rng), headers=PROTOBUF
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
