"""The queue towards the exporter: its bound, and what is counted when it is reached."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenkeel.spans import Status
from evenkeel_runtime.request.recorder import QueueBound, Recorder
from evenkeel_runtime.wire.counters import ExporterCounts, SharedCounts
from evenkeel_runtime.wire.observation import CanaryResult, Observation, encode
from tests.fixtures.gate_connection import soon

SEEN = Observation(
    request_id="r",
    model="m",
    operation="chat",
    arrival_unix_ns=0,
    arrival_ns=0,
    end_ns=10,
    status=Status.ERROR,
)
SIZE = len(encode(SEEN))


@dataclass
class Pipe:
    """An exporter's pipe that takes `room` frames, or is broken."""

    room: int = 10**6
    is_broken: bool = False
    frames: list[bytes] = field(default_factory=list)
    num_restarts: int = 0
    num_failures: int = 0
    was_closed: bool = False

    def write(self, frames: list[bytes]) -> int:
        if self.is_broken:
            raise BrokenPipeError
        taken = frames[: self.room]
        self.frames += taken
        self.room -= len(taken)
        return len(taken)

    def restart(self) -> bool:
        if self.num_failures:
            self.num_failures -= 1
            raise OSError("no process can be started")
        self.is_broken = False
        self.num_restarts += 1
        return True

    def close(self, timeout_s: float) -> None:
        self.was_closed = True


@pytest.fixture
def counts(no_internal_error: None) -> Iterator[SharedCounts]:
    counts = SharedCounts.create()
    yield counts
    counts.close()


def recorder(pipe: Pipe, counts: SharedCounts, requests: int = 5, size: int = 10**6) -> Recorder:
    exporter: Any = pipe
    return Recorder(exporter, counts, QueueBound(requests, size))


async def test_the_queue_holds_as_many_requests_as_it_may_and_drops_the_rest(
    counts: SharedCounts,
) -> None:
    queue = recorder(Pipe(), counts, requests=5)
    for _ in range(8):
        queue.record(SEEN)
    now = queue.read_counts()
    assert (now.spans_queued, now.spans_dropped_by_reason) == (5, {"queue_full": 3})
    assert now.requests_by_status == {"error": 8}


async def test_the_bound_in_bytes_counts_too(counts: SharedCounts) -> None:
    queue = recorder(Pipe(), counts, requests=100, size=SIZE * 3)
    for _ in range(5):
        queue.record(SEEN)
    assert queue.read_counts().spans_queued == 3


async def test_what_the_exporter_still_holds_counts_against_the_bound(
    counts: SharedCounts,
) -> None:
    pipe = Pipe()
    queue = recorder(pipe, counts, requests=2)
    queue.record(SEEN)
    queue.record(SEEN)
    queue.close(1)
    assert len(pipe.frames) == 2
    queue.record(SEEN)
    assert queue.read_counts().spans_dropped_by_reason == {"queue_full": 1}
    counts.add(ExporterCounts(requests_done=1, bytes_done=SIZE, spans_exported=1))
    queue.record(SEEN)
    now = queue.read_counts()
    assert (now.spans_queued, now.spans_exported) == (2, 1)


async def test_frames_reach_the_pipe_in_order_and_once(
    counts: SharedCounts,
) -> None:
    pipe = Pipe(room=1)
    queue = recorder(pipe, counts)
    sent = [replace(SEEN, request_id=str(i)) for i in range(3)]
    for seen in sent:
        queue.record(seen)
    queue.pump()
    assert pipe.frames == [encode(sent[0])]
    pipe.room = 10
    queue.pump()
    assert pipe.frames == [encode(seen) for seen in sent]
    queue.close(1)
    assert pipe.was_closed


async def test_what_a_dead_exporter_held_is_lost_and_counted_and_the_rest_goes_on(
    counts: SharedCounts,
) -> None:
    pipe = Pipe()
    queue = recorder(pipe, counts)
    queue.record(SEEN)
    queue.record(SEEN)
    queue.pump()
    counts.add(ExporterCounts(requests_done=1, bytes_done=SIZE, spans_exported=1))
    pipe.is_broken = True
    queue.record(SEEN)
    queue.pump()
    queue.pump()
    now = queue.read_counts()
    assert now.spans_dropped_by_reason == {"exporter_lost": 1}
    assert (now.spans_queued, now.exporter_restarts) == (1, 1)
    assert len(pipe.frames) == 3
    queue.close(1)


@pytest.mark.parametrize("num_queued", [0, 2], ids=["idle", "full, and all handed over"])
async def test_a_death_is_noticed_without_anything_to_send(
    counts: SharedCounts, monkeypatch: pytest.MonkeyPatch, num_queued: int
) -> None:
    for name in ("_PUMP_INTERVAL_S", "_WATCH_INTERVAL_S"):
        monkeypatch.setattr(f"evenkeel_runtime.request.recorder.{name}", 0.001)
    pipe = Pipe()
    queue = recorder(pipe, counts, requests=2)
    queue.start()
    for _ in range(num_queued):
        queue.record(SEEN)
    await soon(lambda: len(pipe.frames) == num_queued)
    pipe.is_broken = True
    if num_queued:
        queue.record(SEEN)
    await soon(lambda: pipe.num_restarts == 1)
    queue.record(SEEN)
    await soon(lambda: encode(SEEN) in pipe.frames[num_queued:])
    queue.close(1)


async def test_an_exporter_that_cannot_be_started_is_tried_again(
    counts: SharedCounts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenkeel_runtime.request.recorder._WATCH_INTERVAL_S", 0.001)
    monkeypatch.setattr("evenkeel_runtime.request.recorder._PUMP_INTERVAL_S", 0.001)
    pipe = Pipe(is_broken=True, num_failures=2)
    queue = recorder(pipe, counts)
    queue.record(SEEN)
    await soon(lambda: pipe.frames == [encode(SEEN)])
    now = queue.read_counts()
    assert (now.exporter_restarts, now.internal_errors) == (1, 2)
    assert len(caplog.records) == 1
    caplog.clear()
    queue.close(1)


async def test_closing_gives_up_on_a_pipe_that_takes_nothing(counts: SharedCounts) -> None:
    pipe = Pipe(room=0)
    queue = recorder(pipe, counts)
    queue.record(SEEN)
    queue.close(0.02)
    assert pipe.was_closed


async def test_an_error_of_ours_is_counted_logged_once_and_swallowed(
    counts: SharedCounts, caplog: pytest.LogCaptureFixture
) -> None:
    queue = recorder(Pipe(), counts)
    queue.record("not an observation")  # type: ignore[arg-type]
    queue.record_internal_error(ValueError("x"))
    assert queue.read_counts().internal_errors == 2
    (logged,) = caplog.records
    assert "telemetry failed, requests are not affected" in logged.getMessage()
    caplog.clear()


@given(st.lists(st.sampled_from(["record", "finish", "die"]), max_size=60))
async def test_no_span_is_ever_unaccounted_for(steps: list[str]) -> None:
    counts = SharedCounts.create()
    pipe = Pipe()
    queue = recorder(pipe, counts, requests=4)
    recorded = finished = 0
    for step in steps:
        if step == "record":
            queue.record(SEEN)
            recorded += 1
            queue.pump()
        elif step == "die":
            pipe.is_broken = True
            finished = len(pipe.frames)
        elif finished < len(pipe.frames):
            finished += 1
            counts.add(ExporterCounts(requests_done=1, bytes_done=SIZE, spans_exported=1))
    now = queue.read_counts()
    dropped = sum(now.spans_dropped_by_reason.values())
    assert now.spans_queued + now.spans_exported + dropped == recorded
    assert now.spans_queued <= 4
    queue.close(0)
    counts.close()


async def test_a_request_the_engine_had_counts_as_its_most_spans_and_a_canary_as_one(
    counts: SharedCounts,
) -> None:
    queue = recorder(Pipe(), counts, requests=2)
    queue.record(replace(SEEN, reached_engine=True))
    canary = CanaryResult(of_request_id="r", unix_ns=1, result="match", num_tokens=3)
    queue.record_canary(canary)
    queue.record_canary(canary)
    now = queue.read_counts()
    assert (now.spans_queued, now.spans_dropped_by_reason) == (5, {"queue_full": 1})
    assert now.requests_by_status == {"error": 1}


async def test_a_replay_is_sent_and_is_no_request(counts: SharedCounts) -> None:
    queue = recorder(Pipe(), counts)
    queue.record(replace(SEEN, response_cache="replay"))
    now = queue.read_counts()
    assert (sum(now.requests_by_status.values()), now.spans_queued) == (0, 1)
    queue.close(1.0)
