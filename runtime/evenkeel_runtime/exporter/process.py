"""The exporter process: reads requests from standard input and sends them as OTLP.

It is a separate process so that building spans never holds the server's interpreter lock. It exits
when its input ends, that is when the server stops or dies.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import select
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass

import msgspec

from evenkeel.log_lines import stderr_handler
from evenkeel.otlp_sender import Send, open_sender
from evenkeel.retry_delay import RetryDelay
from evenkeel_runtime.exporter.engines import EngineTelemetry
from evenkeel_runtime.exporter.explainer import Explainer
from evenkeel_runtime.exporter.otlp import build_request, count_spans
from evenkeel_runtime.exporter.record import FinishedRequest
from evenkeel_runtime.exporter.session_finder import SessionFinder
from evenkeel_runtime.wire.counters import ExporterCounts, SharedCounts
from evenkeel_runtime.wire.frames import FRAME_HEAD, ExporterConfig
from evenkeel_runtime.wire.observation import CanaryResult, Observation, decode

logger = logging.getLogger(__name__)

_READ_BYTES = 1 << 18
# Longest sleep before the pipe is read, and the batch size in bytes that marks it as busy: half the
# capacity of the smallest pipe.
_NAP_S = 0.25
_BUSY_BYTES = 1 << 15
_LONGEST_WAIT_S = 5.0
# Well under the 20 MiB of OTLP/HTTP and the 4 MiB of gRPC, even with span overhead.
_MAX_BATCH_BYTES = 1 << 20
# Batches kept while the collector is down: minutes of them, within the server's own limit.
_MAX_READY = 1024
# Lower priority than the server: on a busy machine, spans wait and requests do not.
_NICENESS = 10


class FrameReader:
    """Reads length-prefixed frames from a pipe."""

    def __init__(self, file_descriptor: int) -> None:
        self._fd = file_descriptor
        self._buffer = bytearray()
        self._frames: deque[bytes] = deque()
        self._num_bytes = 0
        self._is_busy = False
        self.has_ended = False

    def read_batch(self, max_frames: int, max_bytes: int, linger_s: float) -> list[bytes]:
        """Wait for a frame, then up to `linger_s` for more; return [] only at the end of input."""
        num_read = 0
        while not self._frames and not self.has_ended:
            num_read += self.fill_once()
        deadline = time.monotonic() + linger_s
        while not self.has_ended and not self._is_full(max_frames, max_bytes):
            left_s = max(0.0, deadline - time.monotonic())
            if self._is_busy or num_read >= _BUSY_BYTES:
                self._has_data(left_s)
            else:
                # Sleep without waking for each frame: they are read together afterwards.
                self.wait_for_end(min(left_s, _NAP_S))
            while not self._is_full(max_frames, max_bytes) and self._has_data(0.0):
                num_read += self.fill_once()
                if self.has_ended:
                    break
            if time.monotonic() >= deadline:
                break
        # The pipe is small: fast input must not accumulate in it, or the
        # server could not hand over the rest, and not in time once it stops.
        self._is_busy = num_read >= _BUSY_BYTES
        return self.take(max_frames, max_bytes)

    def take(self, max_frames: int, max_bytes: int) -> list[bytes]:
        """Return the frames received so far, at least one if there is any."""
        batch: list[bytes] = []
        size = 0
        while self._frames and len(batch) < max_frames and (not batch or size < max_bytes):
            batch.append(self._frames.popleft())
            size += len(batch[-1])
        self._num_bytes -= size
        return batch

    def fill_once(self) -> int:
        """Read from the pipe, waiting until it has data or ends; return the number of bytes."""
        data = os.read(self._fd, _READ_BYTES)
        if not data:
            self.has_ended = True
            return 0
        self._buffer += data
        self._cut()
        return len(data)

    def _is_full(self, max_frames: int, max_bytes: int) -> bool:
        return len(self._frames) >= max_frames or self._num_bytes >= max_bytes

    def _has_data(self, timeout_s: float) -> bool:
        """Wait for data or the end of input; return whether there is something to read."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))

    def wait_for_end(self, timeout_s: float) -> None:
        """Sleep, but wake as soon as the writer closes the pipe, even with frames left to read."""
        poller = select.poll()
        poller.register(self._fd, 0)
        poller.poll(timeout_s * 1000)

    def has_writer_left(self) -> bool:
        """Return whether the other end of the pipe is closed."""
        poller = select.poll()
        poller.register(self._fd, 0)
        return any(event & select.POLLHUP for _, event in poller.poll(0))

    def _cut(self) -> None:
        start = 0
        while len(self._buffer) - start >= FRAME_HEAD.size:
            (length,) = FRAME_HEAD.unpack_from(self._buffer, start)
            end = start + FRAME_HEAD.size + length
            if len(self._buffer) < end:
                break
            self._frames.append(bytes(self._buffer[start + FRAME_HEAD.size : end]))
            self._num_bytes += length
            start = end
        del self._buffer[:start]


@dataclass(frozen=True, slots=True)
class _Batch:
    """An OTLP body ready to send, and the size of the frames it was built from."""

    body: bytes
    num_spans: int
    num_frames: int
    num_bytes: int


class Exporter:
    """Sends batches until the input ends, retrying each until it is accepted or rejected."""

    def __init__(
        self,
        config: ExporterConfig,
        frames: FrameReader,
        counts: SharedCounts,
        send: Send,
        explainer: Explainer | None = None,
    ) -> None:
        self._config = config
        self._frames = frames
        self._counts = counts
        self._send = send
        self._explainer = explainer
        self._sessions = SessionFinder()
        self._deadline: float | None = None
        self._is_failing = False
        self._ready: queue.Queue[_Batch | None] = queue.Queue(_MAX_READY)
        self._error: Exception | None = None

    def run(self) -> None:
        """Export until the input has ended and every batch is sent or dropped."""
        maker = threading.Thread(target=self._make_batches, name="evenkeel-batches", daemon=True)
        maker.start()
        while (batch := self._ready.get()) is not None:
            num_dropped = self._deliver(batch.body, batch.num_spans)
            self._counts.add(
                ExporterCounts(
                    requests_done=batch.num_frames,
                    bytes_done=batch.num_bytes,
                    spans_exported=batch.num_spans - num_dropped,
                    spans_dropped=num_dropped,
                )
            )
        if self._error is not None:
            raise self._error

    def _make_batches(self) -> None:
        """Read and explain finished requests, even while the collector is unavailable."""
        config = self._config
        try:
            while frames := self._frames.read_batch(
                config.batch_requests, _MAX_BATCH_BYTES, config.interval_s
            ):
                self._ready.put(self._make_batch(frames))
        except Exception as error:
            self._error = error
        finally:
            self._ready.put(None)

    def _make_batch(self, frames: list[bytes]) -> _Batch:
        batch: list[FinishedRequest | CanaryResult] = []
        for frame in frames:
            message = self._decode(frame)
            if isinstance(message, Observation):
                batch.append(FinishedRequest.begin(message))
            elif message is not None:
                batch.append(message)
        runs = [message for message in batch if isinstance(message, FinishedRequest)]
        requests = [run for run in runs if not run.seen.is_replay]
        if self._explainer is not None:
            self._explainer.explain(requests)
        for run in runs:
            if not run.seen.is_replay:
                self._sessions.find(run.seen)
            run.complete(self._config.max_emissions, self._config.setup, self._config.marks)
        if self._explainer is not None:
            for request in requests:
                self._explainer.keep(request)
        body = build_request(batch, self._config.target.resource)
        return _Batch(
            body.SerializeToString(), count_spans(body), len(frames), sum(map(len, frames))
        )

    def _decode(self, frame: bytes) -> Observation | CanaryResult | None:
        try:
            return decode(frame)
        except msgspec.DecodeError:
            logger.exception("cannot decode a message from the server")
            return None

    def _deliver(self, body: bytes, spans: int) -> int:
        """Send one batch, with retries; return the number of spans lost."""
        delay = RetryDelay(0.25, _LONGEST_WAIT_S)
        while True:
            outcome = self._send(body, spans)
            if outcome.is_done and not outcome.num_rejected:
                self._say_recovered()
                return 0
            self._counts.add(ExporterCounts(export_errors=1))
            if outcome.is_done:
                logger.warning(
                    "the collector rejected spans: url=%s spans=%d reason=%s",
                    self._config.target.shown_url,
                    outcome.num_rejected,
                    outcome.reason or "partial success",
                )
                return min(spans, outcome.num_rejected)
            if not self._may_try_again():
                return spans
            self._say_failing(outcome.reason)
            self._frames.wait_for_end(delay.next_s(outcome.retry_after_s))

    def _may_try_again(self) -> bool:
        """Return whether to retry: always while the server runs, then until the flush deadline."""
        if not self._frames.has_writer_left():
            return True
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._config.flush_timeout_s
        # After the input ends, a failing collector is not tried again for the rest of the queue,
        # unless it was working until then.
        return not self._is_failing and now < self._deadline

    def _say_failing(self, reason: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            logger.warning(
                "the collector is unavailable; keeping spans up to the queue limit: "
                "url=%s reason=%s",
                self._config.target.shown_url,
                reason,
            )

    def _say_recovered(self) -> None:
        if self._is_failing:
            self._is_failing = False
            logger.warning(
                "the collector accepts spans again: url=%s", self._config.target.shown_url
            )


def main() -> int:
    """Run the exporter; the first frame of its input is its configuration."""
    # Ctrl-C reaches the whole process group, but the last spans arrive after it, so only the end
    # of the input stops this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(
        level=logging.WARNING, handlers=[stderr_handler("evenkeel exporter: %(message)s")]
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    os.nice(_NICENESS)
    frames = FrameReader(sys.stdin.fileno())
    first = frames.read_batch(max_frames=1, max_bytes=1, linger_s=0)
    if not first:
        return 0
    config = msgspec.json.decode(first[0], type=ExporterConfig)
    counts = SharedCounts(config.counters_fd)
    # Everything loaded so far is permanent: exclude it from garbage collection.
    gc.freeze()
    with EngineTelemetry(config) as engine:
        Exporter(config, frames, counts, open_sender(config.target), engine.explainer).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
