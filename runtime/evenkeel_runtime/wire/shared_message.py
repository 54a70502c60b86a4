"""One message in shared memory: one process replaces it, any may read it, without locks."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from typing import ClassVar, Generic, Self, TypeVar

import msgspec

# Write count, whose parity selects the half with the newest message, and its length.
_HEAD = struct.Struct("=QI")
_ATTEMPTS = 8
_M = TypeVar("_M")
_ENCODER = msgspec.msgpack.Encoder()


class SharedMessage(Generic[_M]):
    """The memory of one kind of message.

    The writer fills the older half and then marks it as the newest; a reader that was overtaken
    reads again.
    """

    message_type: ClassVar[type]
    size: ClassVar[int] = 1 << 16

    def __init__(self, file_descriptor: int) -> None:
        self.file_descriptor = file_descriptor
        self._memory = mmap.mmap(file_descriptor, self.size)
        self._half = (self.size - 64) // 2
        self._decoder: msgspec.msgpack.Decoder[_M] = msgspec.msgpack.Decoder(self.message_type)

    @classmethod
    def create(cls) -> Self:
        """Return memory without a message, in an unnamed file."""
        with tempfile.TemporaryFile(buffering=0) as file:
            file.truncate(cls.size)
            return cls(os.dup(file.fileno()))

    def write(self, message: _M) -> None:
        """Replace the message; only one process may call this.

        Raises:
            ValueError: If it is too large; the previous one stays.
        """
        data = _ENCODER.encode(message)
        if len(data) > self._half:
            raise ValueError(f"snapshot too large: {len(data)} bytes, the limit is {self._half}")
        number = _HEAD.unpack_from(self._memory)[0] + 1
        start = 64 + number % 2 * self._half
        self._memory[start : start + len(data)] = data
        _HEAD.pack_into(self._memory, 0, number, len(data))

    def read(self) -> _M | None:
        """Return the newest message; None before the first."""
        for _ in range(_ATTEMPTS):
            number, size = _HEAD.unpack_from(self._memory)
            if not number:
                return None
            start = 64 + number % 2 * self._half
            data = bytes(self._memory[start : start + size])
            if _HEAD.unpack_from(self._memory) == (number, size):
                try:
                    return self._decoder.decode(data)
                except msgspec.DecodeError:
                    continue
        return None

    def close(self) -> None:
        """Unmap the memory; other processes keep their mapping."""
        self._memory.close()
        os.close(self.file_descriptor)
