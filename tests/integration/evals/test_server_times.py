"""The server's own times of a run, read from a real store."""

import time

import httpx
import pytest

from evenkeel.errors import StoreError
from evenkeel.request_record import RequestRecord
from evenkeel_evals.ask.answers import ServerTimes
from evenkeel_evals.report.server_times import read_server_times
from tests.fixtures.collector_process import CollectorProcess
from tests.fixtures.otlp_payload import trace_request


def send(collector: CollectorProcess, session: str, decode_s: float | None) -> str:
    record = RequestRecord(
        request_id=f"q-{session}-{decode_s}",
        model="m",
        session_id=session,
        queue_s=0.01,
        prefill_s=0.02,
        decode_s=decode_s,
        output_tokens=7,
        engine_s=decode_s,
        tensor_parallel=2,
    )
    request = trace_request(1, record.to_attributes(), name="chat m")
    response = httpx.post(
        f"{collector.http_url}/v1/traces",
        content=request.SerializeToString(),
        headers={"Content-Type": "application/x-protobuf"},
    )
    assert response.status_code == 200
    return request.resource_spans[0].scope_spans[0].spans[0].trace_id.hex()


def test_times_come_by_trace_and_only_of_the_run(collector: CollectorProcess) -> None:
    start_ns = time.time_ns()
    a, b = send(collector, "r1-A", 0.3), send(collector, "r1-B", 0.5)
    send(collector, "r1-warm-up", 0.9)
    broken = send(collector, "r1-B", None)
    found = read_server_times(collector.query_url, "r1", start_ns, {a, b}, 120.0)
    assert found == {
        a: ServerTimes(0.01, 0.02, 0.3, 7, engine_s=0.3, num_devices=2),
        b: ServerTimes(0.01, 0.02, 0.5, 7, engine_s=0.5, num_devices=2),
    }
    some = read_server_times(collector.query_url, "r1", start_ns, {a, broken, "f" * 32}, 0.2)
    assert set(some) == {a}


def test_no_store_is_an_error_of_ours() -> None:
    with pytest.raises(StoreError, match="no store answers"):
        read_server_times("http://127.0.0.1:9", "r1", 0, {"a"}, 0.1)
