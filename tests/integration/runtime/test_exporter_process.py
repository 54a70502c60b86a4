"""The exporter process on its own, between a real pipe and a real receiver."""

import signal
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import psutil
import pytest
from msgspec.structs import replace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

from evenkeel.otlp_target import PROTOCOL_GRPC, OtlpTarget
from evenkeel_runtime.request.exporter_process import ExporterProcess
from evenkeel_runtime.wire.counters import SharedCounts
from evenkeel_runtime.wire.frames import ExporterConfig
from evenkeel_runtime.wire.observation import Observation, encode
from tests.fixtures.collector_process import wait_for
from tests.fixtures.otlp_receiver import OtlpReceiver

# What is left is sent at once, if the machine lets it.
CLOSE_S = 240.0

SEEN = Observation(
    request_id="r", model="m", operation="chat", arrival_unix_ns=0, arrival_ns=0, end_ns=1
)


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    yield receiver
    receiver.stop()


@pytest.fixture
def counts() -> Iterator[SharedCounts]:
    counts = SharedCounts.create()
    yield counts
    counts.close()


@pytest.fixture
def exporter(receiver: OtlpReceiver, counts: SharedCounts) -> Iterator[ExporterProcess]:
    target = OtlpTarget(
        f"{receiver.url}/v1/traces",
        headers={"authorization": "secret-token"},
        resource={"service.name": "test"},
    )
    with started(target, counts) as exporter:
        yield exporter


@contextmanager
def started(target: OtlpTarget, counts: SharedCounts) -> Iterator[ExporterProcess]:
    exporter = ExporterProcess(ExporterConfig(target, counts.file_descriptor, 100, 0.0, 60.0, 100))
    exporter.start()
    yield exporter
    exporter.close(CLOSE_S)


def child() -> psutil.Process:
    (found,) = [
        p
        for p in psutil.Process().children()
        if "evenkeel_runtime.exporter.process" in " ".join(p.cmdline())
    ]
    return found


def suspend(process: psutil.Process) -> None:
    process.suspend()
    # The signal may reach a thread that runs on another core a moment later.
    wait_for(lambda: process.status() == psutil.STATUS_STOPPED)


def send(exporter: ExporterProcess, *request_ids: str) -> None:
    frames = [encode(replace(SEEN, request_id=i)) for i in request_ids]
    while frames:
        frames = frames[exporter.write(frames) :]


def test_the_exporter_sends_and_counts_and_hides_its_secrets(
    exporter: ExporterProcess, receiver: OtlpReceiver, counts: SharedCounts
) -> None:
    send(exporter, "a", "b")
    spans = receiver.wait_for(lambda s: True, 2)
    assert [s.attributes["evenkeel.request.id"] for s in spans] == ["a", "b"]
    assert spans[0].resource == {"service.name": "test"}
    assert "secret-token" not in " ".join(child().cmdline())
    exporter.close(CLOSE_S)
    assert (counts.read().requests_done, counts.read().spans_exported) == (2, 2)


def test_signals_do_not_end_it_but_the_end_of_its_input_does(
    exporter: ExporterProcess, receiver: OtlpReceiver
) -> None:
    send(exporter, "a")
    receiver.wait_for(lambda s: True)
    process = child()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    send(exporter, "b")
    receiver.wait_for(lambda s: True, 2)
    exporter.close(CLOSE_S)
    assert not process.is_running()


def test_a_killed_exporter_is_replaced(exporter: ExporterProcess, receiver: OtlpReceiver) -> None:
    send(exporter, "a")
    receiver.wait_for(lambda s: True)
    process = child()
    process.kill()
    deadline = time.monotonic() + 120
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # That is noticed without a frame to send.
    with pytest.raises(BrokenPipeError):
        while time.monotonic() < deadline:
            exporter.write([])
            time.sleep(0.01)
    while not exporter.restart():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    send(exporter, "b")
    receiver.wait_for(lambda s: s.attributes["evenkeel.request.id"] == "b")
    assert exporter.num_restarts == 1


def test_what_it_holds_is_sent_before_it_ends(
    exporter: ExporterProcess, receiver: OtlpReceiver, counts: SharedCounts
) -> None:
    send(exporter, *(str(i) for i in range(500)))
    exporter.close(CLOSE_S)
    assert len(receiver.spans()) == counts.read().spans_exported == 500


class GrpcCollector(TraceServiceServicer):
    """Refuses the first batch for a while, then takes everything."""

    def __init__(self) -> None:
        self.spans: list[str] = []
        self.metadata: dict[str, str] = {}
        self.num_calls = 0

    def Export(
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        self.num_calls += 1
        if self.num_calls == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        self.metadata = dict(context.invocation_metadata())
        self.spans += [s.name for s in request.resource_spans[0].scope_spans[0].spans]
        return ExportTraceServiceResponse()


def test_what_a_full_pipe_does_not_take_is_taken_once_later(
    exporter: ExporterProcess, receiver: OtlpReceiver, counts: SharedCounts
) -> None:
    process = child()
    suspend(process)
    # Together more than a pipe holds, in frames that it cannot end at.
    names = [f"{number}-{'x' * (number % 7 * 500)}" for number in range(1000)]
    frames = [encode(replace(SEEN, request_id=name)) for name in names]
    taken = exporter.write(frames)
    assert 0 < taken < len(frames)
    assert exporter.write(frames[taken:]) == 0
    process.resume()
    frames = frames[taken:]
    while frames:
        frames = frames[exporter.write(frames) :]
        time.sleep(0.01)
    spans = receiver.wait_for(lambda s: True, len(names))
    assert [span.attributes["evenkeel.request.id"] for span in spans] == names
    exporter.close(CLOSE_S)
    assert counts.read().requests_done == len(names)


def test_what_is_queued_behind_a_full_pipe_is_sent_when_the_server_stops(
    receiver: OtlpReceiver, counts: SharedCounts
) -> None:
    target = OtlpTarget(f"{receiver.url}/v1/traces")
    config = ExporterConfig(target, counts.file_descriptor, 100, 60.0, 60.0, 100)
    exporter = ExporterProcess(config)
    exporter.start()
    process = child()
    suspend(process)
    # Several times what a pipe holds; the last one, which it has in part, counts as the others do.
    frames = [encode(replace(SEEN, request_id=f"{n}", prompt=b"x" * 10_007)) for n in range(400)]
    queue = deque(frames)
    for _ in range(exporter.write(list(queue))):
        queue.popleft()
    assert queue
    process.resume()
    while queue and process.is_running():
        for _ in range(exporter.write(list(queue))):
            queue.popleft()
        time.sleep(0.01)
    exporter.close(CLOSE_S)
    assert counts.read().requests_done == len(frames)


def test_grpc_is_spoken_too(counts: SharedCounts) -> None:
    collector = GrpcCollector()
    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    target = OtlpTarget(
        f"http://127.0.0.1:{port}", PROTOCOL_GRPC, headers={"x-key": "k"}, is_compressed=True
    )
    with started(target, counts) as exporter:
        send(exporter, "a")
        wait_for(lambda: bool(collector.spans))
    server.stop(0)
    assert collector.spans == ["chat m"]
    assert collector.metadata["x-key"] == "k"
    assert (counts.read().spans_exported, counts.read().export_errors) == (1, 1)
