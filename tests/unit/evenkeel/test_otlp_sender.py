"""Batches are sent until they are taken or refused, and no longer."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import HTTPServer

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from evenkeel import otlp_sender
from evenkeel.otlp_sender import Delivery, deliver, open_sender
from evenkeel.otlp_target import PROTOCOL_GRPC, OtlpTarget
from tests.fixtures.http_stub import QuietHandler, serving

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
    with grpc_receiver(lambda body, context: b"") as url:
        assert open_sender(OtlpTarget(url, PROTOCOL_GRPC))(b"", 1) == TAKEN


@contextmanager
def grpc_receiver(answer: Callable[[bytes, grpc.ServicerContext], bytes]) -> Iterator[str]:
    """Run a receiver of traces with this answer, and return its address."""
    handler = grpc.unary_unary_rpc_method_handler(answer)
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, {"Export": handler})]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"http://127.0.0.1:{port}"
        server.stop(None).wait()


def retry_info(seconds: float) -> bytes:
    """Return a status with RetryInfo, as a receiver that is full answers."""
    detail = Any()
    detail.Pack(RetryInfo(retry_delay=Duration(nanos=int(seconds * 1e9))))
    return bytes(Status(code=8, details=[detail]).SerializeToString())


@pytest.mark.parametrize(
    ("code", "details", "delivery"),
    [
        pytest.param(
            *(grpc.StatusCode.RESOURCE_EXHAUSTED, None),
            Delivery(True, 3, reason="RESOURCE_EXHAUSTED (no room)"),
            id="too large",
        ),
        pytest.param(
            *(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_info(0.25)),
            Delivery(False, 0, 0.25, "RESOURCE_EXHAUSTED (no room)"),
            id="over its rate",
        ),
        pytest.param(
            *(grpc.StatusCode.RESOURCE_EXHAUSTED, b"\xff"),
            Delivery(True, 3, reason="RESOURCE_EXHAUSTED (no room)"),
            id="details that are none",
        ),
        pytest.param(
            *(grpc.StatusCode.UNAVAILABLE, None),
            Delivery(False, reason="UNAVAILABLE (no room)"),
            id="away",
        ),
        pytest.param(
            *(grpc.StatusCode.UNAVAILABLE, retry_info(0.5)),
            Delivery(False, 0, 0.5, "UNAVAILABLE (no room)"),
            id="full",
        ),
        pytest.param(
            *(grpc.StatusCode.INVALID_ARGUMENT, None),
            Delivery(True, 3, reason="INVALID_ARGUMENT (no room)"),
            id="not OTLP",
        ),
    ],
)
def test_a_batch_over_grpc_is_sent_again_only_if_that_may_help(
    code: grpc.StatusCode, details: bytes | None, delivery: Delivery
) -> None:
    def refuse(body: bytes, context: grpc.ServicerContext) -> bytes:
        if details is not None:
            context.set_trailing_metadata([("grpc-status-details-bin", details)])
        context.abort(code, "no room")
        return b""

    with grpc_receiver(refuse) as url:
        assert open_sender(OtlpTarget(url, PROTOCOL_GRPC))(b"", 3) == delivery


@pytest.mark.parametrize(
    ("media_type", "body", "reason"),
    [
        ("application/x-protobuf", Status(message="a token is required"), "(a token is required)"),
        ("Application/X-Protobuf; charset=x", Status(message="\nno\nmore"), "(no)"),
        ("application/x-protobuf", Status(message="\x1b[31mred\r"), "(�[31mred)"),
        ("application/x-protobuf", Status(), ""),
        ("text/html", Status(message="never"), ""),
    ],
)
def test_a_refusal_over_http_has_the_receivers_reason(
    media_type: str, body: Status, reason: str
) -> None:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.send_header("content-type", media_type)
            self.end_headers()
            self.wfile.write(body.SerializeToString())

    with serving(HTTPServer(("127.0.0.1", 0), Handler)) as url:
        outcome = open_sender(OtlpTarget(url))(b"", 2)
    assert outcome == Delivery(True, 2, reason=f"HTTP 401 {reason}".strip())
