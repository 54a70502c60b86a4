"""Send step records from the engine's process in batches, without ever blocking."""

from __future__ import annotations

import zmq

from evenkeel.errors import ConfigurationError
from evenkeel_runtime.wire.steps import RequestEvent, encode_batch

# A batch of this size is sent at once.
_MAX_RECORDS = 2048
# How long closing waits for the reader to receive the last batches.
_CLOSE_MS = 200


class StepSender:
    """Collects records and sends each batch as one message; not thread-safe.

    A batch is sent by `flush`, after `interval_s`, or when it is large. If the queue to the reader
    is full, the batch is dropped and its steps are counted; the next batch that is sent carries the
    count.

    Args:
        address: ZeroMQ address of the reader, which may start later or restart.
        engine: The engine's number.
        interval_s: Maximum time to collect records.
        queue_batches: Maximum number of batches queued for the reader.

    Attributes:
        interval_ns: `interval_s`, in nanoseconds.
        oldest_ns: End of the first step in the batch; 0 if it has none.
        lost_steps: Steps of dropped batches.

    Raises:
        ConfigurationError: If the address is invalid.
    """

    def __init__(self, address: str, engine: int, interval_s: float, queue_batches: int) -> None:
        self._engine = engine
        self.interval_ns = int(interval_s * 1e9)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.set(zmq.SNDHWM, queue_batches)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise ConfigurationError(f"step socket {address}: {error}") from error
        self._sequence = 0
        self._steps: list[bytes] = []
        self._entries: list[bytes] = []
        self._events: list[RequestEvent] = []
        self.oldest_ns = 0
        self.lost_steps = 0

    @property
    def has_steps(self) -> bool:
        """Whether the batch has any steps."""
        return bool(self._steps)

    def add_step(self, step: bytes, entries: list[bytes], end_ns: int) -> None:
        """Add one step; send the batch if it is due or large."""
        self._steps.append(step)
        self._entries += entries
        if len(self._steps) == 1:
            self.oldest_ns = end_ns
        is_large = len(self._steps) + len(self._entries) >= _MAX_RECORDS
        if is_large or end_ns - self.oldest_ns >= self.interval_ns:
            self.flush()

    def add_event(self, event: RequestEvent) -> None:
        """Add an event to the batch."""
        self._events.append(event)

    def flush(self) -> None:
        """Send the batch, or drop it if the reader is too slow."""
        if not self._steps and not self._events:
            return
        message = encode_batch(
            self._engine, self._sequence, self.lost_steps, self._steps, self._entries, self._events
        )
        self._sequence += 1
        try:
            self._socket.send(message, zmq.NOBLOCK)
        except zmq.Again:
            self.lost_steps += len(self._steps)
        self._steps, self._entries, self._events = [], [], []
        self.oldest_ns = 0

    def close(self) -> None:
        """Send the remaining records, waiting briefly, and close the socket."""
        self.flush()
        self._context.destroy(linger=_CLOSE_MS)
