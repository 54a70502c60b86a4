"""A body that was accepted is answered again, and stored once."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import time_ns
from urllib.parse import urlsplit

import grpc
import httpx
import pytest

from tests.fixtures.collector_process import (
    JSON,
    PROTOBUF,
    CollectorProcess,
    post,
    running_collector,
    start_collector,
    wait_for,
)
from tests.fixtures.otlp_payload import trace_request

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def num_stored(collector: CollectorProcess, service: str) -> int:
    rows = collector.rows(
        "SELECT count() FROM spans WHERE ServiceName = {s:String}", {"s": service}
    )
    return int(rows[0][0])


def json_request(service: str) -> bytes:
    """Return a trace request of three spans in OTLP's JSON."""
    name = {"key": "service.name", "value": {"stringValue": service}}
    spans = [
        {"traceId": "0a" * 16, "spanId": f"{number:016x}", "startTimeUnixNano": str(time_ns())}
        for number in range(1, 4)
    ]
    resource = {"resource": {"attributes": [name]}, "scopeSpans": [{"spans": spans}]}
    return json.dumps({"resourceSpans": [resource]}).encode()


def settle(collector: CollectorProcess, marker: str) -> None:
    """Return once everything that was sent before is stored."""
    assert post(collector, trace_request(service=marker).SerializeToString(), PROTOBUF).is_success
    wait_for(lambda: num_stored(collector, marker) == 1)


@pytest.mark.parametrize("is_json", [False, True], ids=["protobuf", "json"])
def test_a_body_sent_again_is_acknowledged_and_stored_once(
    collector: CollectorProcess, is_json: bool
) -> None:
    service = f"again {is_json}"
    body = (
        json_request(service) if is_json else trace_request(3, service=service).SerializeToString()
    )
    answers = [post(collector, body, JSON if is_json else PROTOBUF) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert len({answer.content for answer in answers}) == 1
    settle(collector, f"after {service}")
    assert num_stored(collector, service) == 3


def test_a_body_sent_over_another_transport_is_the_same(collector: CollectorProcess) -> None:
    body = trace_request(service="transports").SerializeToString()
    assert post(collector, body, PROTOBUF).status_code == 200
    with grpc.insecure_channel(urlsplit(collector.grpc_url).netloc) as channel:
        assert channel.unary_unary(EXPORT)(body, timeout=120) == b""
    settle(collector, "after transports")
    assert num_stored(collector, "transports") == 1


def test_twins_at_the_same_time_are_stored_once(collector: CollectorProcess) -> None:
    body = trace_request(num_spans=2_000, service="twins").SerializeToString()
    barrier = threading.Barrier(8)

    def send() -> int:
        barrier.wait(120)
        return post(collector, body, PROTOBUF).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(send) for _ in range(8)]
        assert {answer.result() for answer in answers} == {200}
    settle(collector, "after twins")
    assert num_stored(collector, "twins") == 2_000


def test_a_refused_body_is_refused_again(collector: CollectorProcess) -> None:
    statuses = [post(collector, b"\x0a\xff", PROTOBUF).status_code for _ in range(3)]
    assert statuses == [400] * 3


def test_bodies_that_differ_in_a_byte_are_both_stored(collector: CollectorProcess) -> None:
    request = trace_request(service="differ")
    for name in ("one", "two"):
        request.resource_spans[0].scope_spans[0].spans[0].name = name
        assert post(collector, request.SerializeToString(), PROTOBUF).status_code == 200
    settle(collector, "after differ")
    assert num_stored(collector, "differ") == 2


@pytest.mark.parametrize("crash", [False, True], ids=["stop", "kill"])
def test_a_body_is_known_after_a_restart(tmp_path: Path, crash: bool) -> None:
    bodies = {
        name: trace_request(service=name).SerializeToString() for name in ("stored", "in the log")
    }
    collector = start_collector(tmp_path)
    try:
        assert post(collector, bodies["stored"], PROTOBUF).status_code == 200
        wait_for(lambda: num_stored(collector, "stored") == 1)
        assert post(collector, bodies["in the log"], PROTOBUF).status_code == 200
    finally:
        if crash:
            collector.kill()
        else:
            collector.stop()
    with running_collector(tmp_path) as collector:
        for body in bodies.values():
            assert post(collector, body, PROTOBUF).status_code == 200
        settle(collector, "after the restart")
        assert {name: num_stored(collector, name) for name in bodies} == dict.fromkeys(bodies, 1)


def test_the_counter_says_how_many_came_again(collector: CollectorProcess) -> None:
    def count() -> float:
        text = httpx.get(f"{collector.http_url}/metrics", timeout=120).text
        name = 'evenkeel_collector_repeated_bodies_total{transport="http"}'
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    body = trace_request(service="counted").SerializeToString()
    before = count()
    for _ in range(3):
        assert post(collector, body, PROTOBUF).status_code == 200
    assert count() - before == 2
