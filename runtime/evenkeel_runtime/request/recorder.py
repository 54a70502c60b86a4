"""Takes finished requests off the event loop's hands: a bounded queue towards the exporter."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from evenkeel.guard import ErrorGuard
from evenkeel_runtime.ledger.phases import num_spans
from evenkeel_runtime.wire.counters import SharedCounts
from evenkeel_runtime.wire.observation import Observation, encode

logger = logging.getLogger(__name__)

# How often queued requests are handed to the exporter: late enough to write many at once, for each
# hand-over wakes another process, and that is most of what it costs.
_PUMP_INTERVAL_S = 0.1


class ExporterPipe(Protocol):
    """The way to the exporter; serve/exporter_process.py has the real one."""

    num_restarts: int

    def write(self, frames: list[bytes]) -> int:
        """Take as many frames as fit now and say how many; OSError if the exporter is gone."""
        ...

    def restart(self) -> bool:
        """Replace a dead exporter, if it is time to; whether one was started."""
        ...

    def close(self, timeout_s: float) -> None:
        """Let the exporter send what it has, and end it within the time."""
        ...


@dataclass(slots=True)
class Tally:
    """How much of something: requests, their bytes in the queue, and the spans they become."""

    requests: int = 0
    bytes: int = 0
    spans: int = 0

    def add(self, requests: int, bytes_: int, spans: int) -> None:
        """Add to all three."""
        self.requests += requests
        self.bytes += bytes_
        self.spans += spans


@dataclass(frozen=True, slots=True)
class RecorderCounts:
    """What became of the requests so far; `spans_queued` is a level, the others only grow."""

    requests_by_status: dict[str, int]
    spans_queued: int
    spans_exported: int
    spans_dropped_by_reason: dict[str, int]
    export_errors: int
    malformed_headers: dict[str, int]
    internal_errors: int
    exporter_restarts: int


@dataclass(frozen=True, slots=True)
class QueueBound:
    """The most that may wait for the exporter; whichever is reached first counts."""

    requests: int
    bytes: int


@dataclass(slots=True)
class _Queued:
    frames: deque[bytes] = field(default_factory=deque)
    spans: deque[int] = field(default_factory=deque)


class Recorder:
    """Queues what the hooks saw; nothing it does can fail or delay a request.

    Everything but `close` belongs to the server's event loop.

    Args:
        exporter: The process that sends the spans.
        counts: The counters that it keeps.
        bound: The most that may wait, in the queue and in the exporter together.
    """

    def __init__(self, exporter: ExporterPipe, counts: SharedCounts, bound: QueueBound) -> None:
        self._exporter = exporter
        self._counts = counts
        self._bound = bound
        self._queue = _Queued()
        self._accepted = Tally()
        self._written = Tally()
        self._lost = Tally()
        self._by_status: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._malformed: Counter[str] = Counter()
        self._errors = ErrorGuard(
            logger.error, "telemetry failed, requests go on; later errors are only counted: %r"
        )
        self._pump_handle: asyncio.TimerHandle | None = None

    def record(self, seen: Observation) -> None:
        """Queue one finished request, or drop and count it where the queue is full."""
        try:
            if seen.canary is None:
                self._by_status[seen.status.value] += 1
            frame = encode(seen)
            spans = num_spans(seen)
            done = self._counts.read()
            waiting = self._accepted.requests - self._lost.requests - done.requests_done
            waiting_bytes = self._accepted.bytes - self._lost.bytes - done.bytes_done
            if waiting >= self._bound.requests or waiting_bytes + len(frame) > self._bound.bytes:
                self._dropped["queue_full"] += spans
                return
            self._accepted.add(1, len(frame), spans)
            self._queue.frames.append(frame)
            self._queue.spans.append(spans)
            if self._pump_handle is None:
                self._pump_later()
        except Exception as error:
            self.record_internal_error(error)

    def count_malformed_headers(self, names: Iterable[str]) -> None:
        """Count headers of callers that could not be read; the first of each name is logged."""
        for name in names:
            if not self._malformed[name]:
                logger.warning(
                    "a header cannot be read, its request is served without it; later ones are "
                    "only counted: header=%s",
                    name,
                )
            self._malformed[name] += 1

    def record_internal_error(self, error: Exception) -> None:
        """Count an error of ours, and log the first."""
        self._errors.record(error)

    def read_counts(self) -> RecorderCounts:
        """Return what became of the requests so far."""
        done = self._counts.read()
        dropped = dict(self._dropped)
        if done.spans_dropped:
            dropped["refused"] = done.spans_dropped
        if self._lost.spans:
            dropped["exporter_lost"] = self._lost.spans
        gone = done.spans_exported + done.spans_dropped + self._lost.spans
        return RecorderCounts(
            requests_by_status=dict(self._by_status),
            spans_queued=max(0, self._accepted.spans - gone),
            spans_exported=done.spans_exported,
            spans_dropped_by_reason=dropped,
            export_errors=done.export_errors,
            malformed_headers=dict(self._malformed),
            internal_errors=self._errors.num_errors,
            exporter_restarts=self._exporter.num_restarts,
        )

    def close(self, timeout_s: float) -> None:
        """Hand over what is queued, let the exporter flush, and end it within `timeout_s`."""
        if self._pump_handle is not None:
            self._pump_handle.cancel()
            self._pump_handle = None
        deadline = time.monotonic() + timeout_s
        try:
            while self._queue.frames and time.monotonic() < deadline:
                self._write()
                if self._queue.frames:
                    time.sleep(0.01)
        except OSError:
            logger.warning("spans are lost: count=%d", sum(self._queue.spans))
        self._exporter.close(max(0.1, deadline - time.monotonic()))

    def _pump_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._pump_handle = loop.call_later(_PUMP_INTERVAL_S, self.pump)

    def pump(self) -> None:
        """Hand over what the exporter takes now, and come back for the rest."""
        self._pump_handle = None
        try:
            try:
                self._write()
            except OSError:
                self._replace_exporter()
            if self._queue.frames:
                self._pump_later()
        except Exception as error:
            self.record_internal_error(error)

    def _write(self) -> None:
        queue = self._queue
        num_taken = self._exporter.write(list(queue.frames))
        for _ in range(num_taken):
            self._written.add(1, len(queue.frames.popleft()), queue.spans.popleft())

    def _replace_exporter(self) -> None:
        if not self._exporter.restart():
            return
        # What the dead process had taken and not finished is gone with it.
        done = self._counts.read()
        self._lost = Tally(
            self._written.requests - done.requests_done,
            self._written.bytes - done.bytes_done,
            self._written.spans - done.spans_exported - done.spans_dropped,
        )
