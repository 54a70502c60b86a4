"""Batches are sent until they are taken or refused, and no longer."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from evenkeel import otlp_sender
from evenkeel.otlp_sender import Delivery, deliver, open_sender
from evenkeel.otlp_target import PROTOCOL_GRPC, OtlpTarget

TAKEN = Delivery(is_done=True)
FULL = Delivery(is_done=False, retry_after_s=0.001, reason="HTTP 503")
REFUSED = Delivery(is_done=True, num_rejected=3, reason="HTTP 400")
AWAY = Delivery(is_done=False, reason="ConnectError", is_unreachable=True)


@pytest.mark.parametrize(
    ("answers", "last", "attempts"),
    [
        ([TAKEN], TAKEN, 1),
        ([FULL, FULL, TAKEN], TAKEN, 3),
        ([REFUSED, TAKEN], REFUSED, 1),
        ([AWAY, TAKEN], AWAY, 1),
        ([FULL] * 20, FULL, otlp_sender.MAX_ATTEMPTS),
    ],
)
def test_a_batch_is_sent_until_it_is_over(
    answers: list[Delivery], last: Delivery, attempts: int
) -> None:
    asked: list[tuple[bytes, int]] = []

    def send(body: bytes, num_spans: int) -> Delivery:
        asked.append((body, num_spans))
        return answers[len(asked) - 1]

    assert deliver(send, b"batch", 3) == last
    assert asked == [(b"batch", 3)] * attempts


def test_a_receiver_that_is_not_there_is_not_waited_for() -> None:
    send = open_sender(OtlpTarget("http://127.0.0.1:9/v1/traces"))
    assert deliver(send, b"", 1) == Delivery(False, reason="ConnectError", is_unreachable=True)


def test_a_proxy_is_not_asked_for_a_receiver_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor under `vllm serve`, where our command has not exempted this machine."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    answer = grpc.unary_unary_rpc_method_handler(
        lambda body, context: ExportTraceServiceResponse().SerializeToString()
    )
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, {"Export": answer})]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        send = open_sender(OtlpTarget(f"http://127.0.0.1:{port}", PROTOCOL_GRPC))
        assert send(b"", 1) == TAKEN
        server.stop(None).wait()
