"""The exporter's loop: frames in, batches out, nothing lost while the server runs."""

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel.otlp_sender import Delivery
from evenkeel.otlp_target import OtlpTarget
from evenkeel_runtime.exporter.process import Exporter, FrameReader
from evenkeel_runtime.wire.counters import ExporterCounts, SharedCounts
from evenkeel_runtime.wire.frames import FRAME_HEAD, ExporterConfig
from evenkeel_runtime.wire.observation import Observation, encode

TAKEN = Delivery(is_done=True)
DOWN = Delivery(is_done=False, retry_after_s=0.001, reason="ConnectError")
REFUSED = Delivery(is_done=True, num_rejected=1, reason="HTTP 400")
FRAME = encode(
    Observation(
        request_id="r", model="m", operation="chat", arrival_unix_ns=0, arrival_ns=0, end_ns=1
    )
)


@dataclass
class Collector:
    """Answers with `outcomes` in turn, then takes everything."""

    outcomes: list[Delivery] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)

    def send(self, body: bytes, num_spans: int) -> Delivery:
        request = ExportTraceServiceRequest.FromString(body)
        self.batches.append(len(request.resource_spans[0].scope_spans[0].spans))
        assert self.batches[-1] == num_spans
        return self.outcomes.pop(0) if self.outcomes else TAKEN


@dataclass
class Pipe:
    read_end: int
    write_end: int

    def write(self, *frames: bytes) -> None:
        for frame in frames:
            os.write(self.write_end, FRAME_HEAD.pack(len(frame)) + frame)

    def hang_up(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe(*os.pipe())
    yield pipe
    pipe.hang_up()
    os.close(pipe.read_end)


def run(pipe: Pipe, collector: Collector, batch_requests: int = 10) -> ExporterCounts:
    counts = SharedCounts.create()
    config = ExporterConfig(
        target=OtlpTarget("http://u:s3cret@127.0.0.1:1"),
        counters_fd=counts.file_descriptor,
        batch_requests=batch_requests,
        interval_s=0.0,
        flush_timeout_s=120.0,
        max_emissions=10,
    )
    Exporter(config, FrameReader(pipe.read_end), counts, collector.send).run()
    result = counts.read()
    counts.close()
    return result


def test_everything_is_exported_in_batches_and_the_end_of_the_input_is_the_end(pipe: Pipe) -> None:
    pipe.write(*[FRAME] * 25)
    pipe.hang_up()
    collector = Collector()
    assert run(pipe, collector) == ExporterCounts(25, 25 * len(FRAME), 25, 0, 0)
    assert collector.batches == [10, 10, 5]


def test_a_batch_is_sent_again_while_the_server_runs(pipe: Pipe) -> None:
    pipe.write(FRAME)
    outcomes = [DOWN] * 3

    class HangsUpInTheEnd(Collector):
        def send(self, body: bytes, num_spans: int) -> Delivery:
            outcome = super().send(body, num_spans)
            if outcome is TAKEN:
                pipe.hang_up()
            return outcome

    counts = run(pipe, HangsUpInTheEnd(outcomes))
    assert (counts.spans_exported, counts.spans_dropped, counts.export_errors) == (1, 0, 3)


def test_the_log_has_the_address_without_its_password(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    pipe.write(FRAME)
    pipe.hang_up()
    run(pipe, Collector([DOWN, REFUSED]))
    assert caplog.text.count("url=http://127.0.0.1:1") == 2
    assert "s3cret" not in caplog.text


def test_what_is_left_when_the_server_stops_is_given_up_if_the_collector_is_down(
    pipe: Pipe,
) -> None:
    pipe.write(*[FRAME] * 2)

    class IsDown(Collector):
        def send(self, body: bytes, num_spans: int) -> Delivery:
            super().send(body, num_spans)
            if len(self.batches) == 2:
                pipe.hang_up()
            return DOWN

    counts = run(pipe, IsDown(), batch_requests=1)
    assert (counts.requests_done, counts.spans_dropped, counts.export_errors) == (2, 2, 3)


def test_a_collector_that_was_well_gets_the_last_spans_even_after_one_failure(pipe: Pipe) -> None:
    pipe.write(FRAME)
    pipe.hang_up()
    assert run(pipe, Collector([DOWN])).spans_exported == 1


@pytest.mark.parametrize(
    ("outcome", "exported", "dropped"),
    [
        pytest.param(REFUSED, 0, 1, id="refused"),
        pytest.param(Delivery(is_done=True, num_rejected=9), 0, 1, id="it claims more than it got"),
    ],
)
def test_refused_spans_are_dropped_and_counted(
    pipe: Pipe, outcome: Delivery, exported: int, dropped: int
) -> None:
    pipe.write(FRAME)
    pipe.hang_up()
    counts = run(pipe, Collector([outcome]))
    assert (counts.spans_exported, counts.spans_dropped) == (exported, dropped)
    assert (counts.requests_done, counts.export_errors) == (1, 1)


def test_a_frame_that_is_no_observation_is_skipped(pipe: Pipe) -> None:
    pipe.write(b"\xc1", FRAME)
    pipe.hang_up()
    counts = run(pipe, Collector())
    assert (counts.requests_done, counts.spans_exported) == (2, 1)


def test_a_pipe_with_a_descriptor_beyond_1023_is_read(pipe: Pipe) -> None:
    read_end = fcntl.fcntl(pipe.read_end, fcntl.F_DUPFD_CLOEXEC, 1024)
    try:
        reader = FrameReader(read_end)
        pipe.write(b"first", b"second")
        assert reader.read_batch(max_frames=3, max_bytes=100, linger_s=0) == [b"first", b"second"]
        pipe.hang_up()
        assert reader.read_batch(max_frames=3, max_bytes=100, linger_s=0) == []
    finally:
        os.close(read_end)


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 40))
def test_frames_are_cut_wherever_the_pipe_cuts_them(frames: list[bytes], size: int) -> None:
    stream = b"".join(FRAME_HEAD.pack(len(f)) + f for f in frames)
    read_end, write_end = os.pipe()
    reader = FrameReader(read_end)
    read: list[bytes] = []
    for start in range(0, len(stream), size):
        os.write(write_end, stream[start : start + size])
        reader.fill_once()
        read += reader.take(max_frames=100, max_bytes=10**6)
    os.close(write_end)
    os.close(read_end)
    assert read == frames
