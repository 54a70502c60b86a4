"""Counters of the exporter process, in shared memory that the server reads."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from dataclasses import dataclass
from typing import Self

_LAYOUT = struct.Struct("=5q")


@dataclass(frozen=True, slots=True)
class ExporterCounts:
    """Counters of the exporter since its first start; each only grows.

    Attributes:
        requests_done: Requests exported or dropped.
        bytes_done: Their size in the queue.
        spans_exported: Spans that the collector accepted.
        spans_dropped: Spans that it rejected, or that were dropped on exit.
        export_errors: Failed attempts to send a batch.
    """

    requests_done: int = 0
    bytes_done: int = 0
    spans_exported: int = 0
    spans_dropped: int = 0
    export_errors: int = 0


class SharedCounts:
    """The shared memory of `ExporterCounts`: one process writes, any may read.

    Fields are written one by one, so a reader may briefly see a batch counted in only some of them.
    """

    def __init__(self, file_descriptor: int) -> None:
        self.file_descriptor = file_descriptor
        self._memory = mmap.mmap(file_descriptor, _LAYOUT.size)

    @classmethod
    def create(cls) -> Self:
        """Return new counters at zero, in an unnamed file."""
        with tempfile.TemporaryFile(buffering=0) as file:
            file.truncate(_LAYOUT.size)
            # The file disappears with its last descriptor: this one, which a child inherits.
            return cls(os.dup(file.fileno()))

    def read(self) -> ExporterCounts:
        """Return the current counts."""
        return ExporterCounts(*_LAYOUT.unpack_from(self._memory))

    def add(self, more: ExporterCounts) -> None:
        """Add `more`; only the exporter process may call this."""
        now = self.read()
        _LAYOUT.pack_into(
            self._memory,
            0,
            now.requests_done + more.requests_done,
            now.bytes_done + more.bytes_done,
            now.spans_exported + more.spans_exported,
            now.spans_dropped + more.spans_dropped,
            now.export_errors + more.export_errors,
        )

    def close(self) -> None:
        """Unmap the memory; other processes keep their mapping."""
        self._memory.close()
        os.close(self.file_descriptor)
