"""Queues finished requests for the exporter process in a bounded queue."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from evenkeel.error_guard import ErrorGuard
from evenkeel_runtime.request.exporter_process import ExporterProcess
from evenkeel_runtime.wire.counters import SharedCounts
from evenkeel_runtime.wire.observation import CanaryResult, Observation, encode

logger = logging.getLogger(__name__)

# How often queued requests are sent to the exporter: seldom enough to write many at once, because
# each write wakes another process, which is most of its cost.
_PUMP_INTERVAL_S = 0.1
# How often a dead exporter is noticed if there is nothing to send.
_WATCH_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class RecorderCounts:
    """Counts of requests so far; `spans_queued` is a gauge, the others only grow."""

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
    """Limits of the queue to the exporter; whichever is reached first applies."""

    requests: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Size:
    bytes: int
    spans: int


class Recorder:
    """Queues records for the exporter without ever failing or delaying a request.

    Call everything except `close` on the server's event loop.

    Args:
        exporter: The process that sends the spans.
        counts: The counters that the exporter keeps.
        bound: Limits for the queue and the exporter together.
    """

    def __init__(self, exporter: ExporterProcess, counts: SharedCounts, bound: QueueBound) -> None:
        self._exporter = exporter
        self._counts = counts
        self._bound = bound
        # Messages not yet written, and the sizes of these and the exporter's, oldest first.
        self._frames: deque[bytes] = deque()
        self._waiting: deque[_Size] = deque()
        self._waiting_bytes = 0
        self._num_gone = 0
        self._num_lost = 0
        self._by_status: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._malformed: Counter[str] = Counter()
        self._errors = ErrorGuard(
            logger.error,
            "telemetry failed, requests are not affected; further errors are only counted: %r",
        )
        self._pump_handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch the exporter, which is replaced if it dies."""
        self._pump_in(_WATCH_INTERVAL_S)

    def record(self, seen: Observation) -> None:
        """Queue one finished request or replay, or drop and count it if the queue is full."""
        try:
            if not seen.is_replay:
                self._by_status[seen.status.value] += 1
            self._enqueue(encode(seen), seen.max_spans)
        except Exception as error:
            self.record_internal_error(error)

    def record_canary(self, result: CanaryResult) -> None:
        """Queue a canary result; it counts as one message."""
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
        if len(self._frames) == 1:
            self._pump_in(_PUMP_INTERVAL_S)

    def _let_go(self, num_gone: int) -> int:
        """Remove the oldest messages up to this running total; return how many spans they held."""
        spans = 0
        while self._num_gone < num_gone and self._waiting:
            size = self._waiting.popleft()
            self._waiting_bytes -= size.bytes
            self._num_gone += 1
            spans += size.spans
        return spans

    def count_malformed_headers(self, names: Iterable[str]) -> None:
        """Count malformed request headers and log the first of each name."""
        for name in names:
            if not self._malformed[name]:
                logger.warning(
                    "ignoring a malformed request header; further ones of this name are "
                    "only counted: header=%s",
                    name,
                )
            self._malformed[name] += 1

    def record_internal_error(self, error: Exception) -> None:
        """Count an internal error, and log the first."""
        self._errors.record(error)

    def read_counts(self) -> RecorderCounts:
        """Return the counts so far."""
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
        """Send what is queued, let the exporter flush, and stop it within `timeout_s`."""
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
            logger.warning("spans lost: count=%d", sum(size.spans for size in unwritten))
        self._exporter.close(max(0.1, deadline - time.monotonic()))

    def _pump_in(self, seconds: float) -> None:
        if self._pump_handle is not None:
            self._pump_handle.cancel()
        self._pump_handle = asyncio.get_running_loop().call_later(seconds, self.pump)

    def pump(self) -> None:
        """Send what the exporter accepts now, replace it if it has died, and schedule the next."""
        try:
            try:
                self._write()
            except OSError:
                self._replace_exporter()
        except Exception as error:
            self.record_internal_error(error)
        finally:
            self._pump_in(_PUMP_INTERVAL_S if self._frames else _WATCH_INTERVAL_S)

    def _write(self) -> None:
        for _ in range(self._exporter.write(list(self._frames))):
            self._frames.popleft()

    def _replace_exporter(self) -> None:
        if not self._exporter.restart():
            return
        # Messages the dead process had accepted but not finished are lost.
        done = self._counts.read().requests_done
        self._let_go(done + self._num_lost)
        num_lost = len(self._waiting) - len(self._frames)
        if num_lost:
            self._dropped["exporter_lost"] += self._let_go(self._num_gone + num_lost)
            self._num_lost += num_lost
