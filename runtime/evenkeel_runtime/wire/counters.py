"""Counters that the exporter process keeps and the server reads, in memory that both map."""

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
    """What the exporter has done since it first started; each only grows.

    Attributes:
        requests_done: Requests exported or given up.
        bytes_done: Their size in the queue.
        spans_exported: Spans that the collector took.
        spans_dropped: Spans that it refused, or that were given up at the end.
        export_errors: Failed attempts to send a batch.
    """

    requests_done: int = 0
    bytes_done: int = 0
    spans_exported: int = 0
    spans_dropped: int = 0
    export_errors: int = 0


class SharedCounts:
    """The shared memory behind `ExporterCounts`: one process writes, any may read.

    Each field is written whole before the next; a reader may see one batch half counted, and sees
    it fully the next time.
    """

    def __init__(self, file_descriptor: int) -> None:
        self.file_descriptor = file_descriptor
        self._memory = mmap.mmap(file_descriptor, _LAYOUT.size)

    @classmethod
    def create(cls) -> Self:
        """Return new counters at zero, in an unnamed file."""
        with tempfile.TemporaryFile(buffering=0) as file:
            file.truncate(_LAYOUT.size)
            # The file goes when its last descriptor is closed: this one, which a child inherits.
            return cls(os.dup(file.fileno()))

    def read(self) -> ExporterCounts:
        """Return the counts as they are now."""
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
        """Let go of the memory; other processes that map it keep it."""
        self._memory.close()
        os.close(self.file_descriptor)
