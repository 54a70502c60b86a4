"""Sends step records out of the engine's process: batched, never blocking, drops counted."""

from __future__ import annotations

import zmq

from evenkeel.errors import ConfigurationError
from evenkeel_runtime.wire.steps import Note, encode_batch

# A batch is sent once it is this large, however young it is.
_MAX_RECORDS = 2048
# Longest that closing waits for a reader to take the last batches.
_CLOSE_MS = 200


class StepSender:
    """Collects records and sends them as one message a batch; belongs to one thread.

    A batch leaves with the first record that must not wait, after `interval_s`, or when it is
    large. Where the queue to the reader is full, the batch is dropped and its steps are counted;
    the next batch that gets through says how many.

    Args:
        address: ZeroMQ address of the reader, which may come later or come back.
        engine: The engine's number.
        interval_s: Longest that a record waits for others.
        queue_batches: Most batches that wait for the reader.

    Attributes:
        interval_ns: `interval_s`, in nanoseconds.
        oldest_ns: End of the first step that waits here; 0 while none does.
        lost_steps: Steps of batches that were dropped.

    Raises:
        ConfigurationError: If the address is none.
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
        self._notes: list[Note] = []
        self.oldest_ns = 0
        self.lost_steps = 0

    @property
    def has_steps(self) -> bool:
        """Whether a step waits in the batch."""
        return bool(self._steps)

    def add_step(self, step: bytes, entries: list[bytes], end_ns: int) -> None:
        """Add one step; it is sent now if the batch has waited long enough."""
        self._steps.append(step)
        self._entries += entries
        if len(self._steps) == 1:
            self.oldest_ns = end_ns
        is_large = len(self._steps) + len(self._entries) >= _MAX_RECORDS
        if is_large or end_ns - self.oldest_ns >= self.interval_ns:
            self.flush()

    def add_note(self, note: Note) -> None:
        """Add a note; it leaves with the batch."""
        self._notes.append(note)

    def flush(self) -> None:
        """Send what is there, or drop it where the reader is too slow."""
        if not self._steps and not self._notes:
            return
        message = encode_batch(
            self._engine, self._sequence, self.lost_steps, self._steps, self._entries, self._notes
        )
        self._sequence += 1
        try:
            self._socket.send(message, zmq.NOBLOCK)
        except zmq.Again:
            self.lost_steps += len(self._steps)
        self._steps, self._entries, self._notes = [], [], []
        self.oldest_ns = 0

    def close(self) -> None:
        """Send what is left, within a moment, and free the socket."""
        self.flush()
        self._context.destroy(linger=_CLOSE_MS)
