"""Takes finished requests off the event loop's hands: a bounded queue towards the exporter."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from evenkeel.guard import ErrorGuard
from evenkeel_runtime.wire.counters import SharedCounts
from evenkeel_runtime.wire.observation import CanaryResult, Observation, encode

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


@dataclass(frozen=True, slots=True)
class _Size:
    bytes: int
    spans: int


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
        # Not yet handed over, and what those and the exporter's weigh, oldest first.
        self._frames: deque[bytes] = deque()
        self._waiting: deque[_Size] = deque()
        self._waiting_bytes = 0
        self._num_gone = 0
        self._num_lost = 0
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
            self._by_status[seen.status.value] += 1
            self._enqueue(encode(seen), seen.max_spans)
        except Exception as error:
            self.record_internal_error(error)

    def record_canary(self, result: CanaryResult) -> None:
        """Queue a canary's result, which counts as one more message in the queue."""
        try:
            self._enqueue(encode(result), 1)
        except Exception as error:
            self.record_internal_error(error)

    def _enqueue(self, frame: bytes, spans: int) -> None:
        self._let_go(self._counts.read().requests_done + self._num_lost)
        is_full = len(self._waiting) >= self._bound.requests
        if is_full or self._waiting_bytes + len(frame) > self._bound.bytes:
            self._dropped["queue_full"] += spans
            return
        self._frames.append(frame)
        self._waiting.append(_Size(len(frame), spans))
        self._waiting_bytes += len(frame)
        if self._pump_handle is None:
            self._pump_later()

    def _let_go(self, num_gone: int) -> int:
        """Forget the oldest messages until so many are gone in all; return the spans in them."""
        spans = 0
        while self._num_gone < num_gone and self._waiting:
            size = self._waiting.popleft()
            self._waiting_bytes -= size.bytes
            self._num_gone += 1
            spans += size.spans
        return spans

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
        num_gone = done.requests_done + self._num_lost - self._num_gone
        waiting = list(self._waiting)[max(0, num_gone) :]
        dropped = dict(self._dropped)
        if done.spans_dropped:
            dropped["refused"] = done.spans_dropped
        return RecorderCounts(
            requests_by_status=dict(self._by_status),
            spans_queued=sum(size.spans for size in waiting),
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
            while self._frames and time.monotonic() < deadline:
                self._write()
                if self._frames:
                    time.sleep(0.01)
        except OSError:
            unwritten = list(self._waiting)[-len(self._frames) :]
            logger.warning("spans are lost: count=%d", sum(size.spans for size in unwritten))
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
            if self._frames:
                self._pump_later()
        except Exception as error:
            self.record_internal_error(error)

    def _write(self) -> None:
        for _ in range(self._exporter.write(list(self._frames))):
            self._frames.popleft()

    def _replace_exporter(self) -> None:
        if not self._exporter.restart():
            return
        # What the dead process had taken and not finished is gone with it.
        done = self._counts.read().requests_done
        self._let_go(done + self._num_lost)
        num_lost = len(self._waiting) - len(self._frames)
        if num_lost:
            self._dropped["exporter_lost"] += self._let_go(self._num_gone + num_lost)
            self._num_lost += num_lost
