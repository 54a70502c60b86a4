"""Keeps a command running, with the exit code it decides, if nobody can read its messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO, cast


class _LossyStream:
    """A text stream that loses what cannot be written: its reader has exited, its disk is full."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def lossy_stderr() -> Iterator[None]:
    """Within it, writing to standard error never fails; what cannot be written is lost.

    A process started without one (`2>&-`) loses all of it: `print` would choose standard output.
    """
    before = sys.stderr
    stream: IO[str] = before
    if before is None:
        stream = open(os.devnull, "w", encoding="utf-8")
    sys.stderr = cast(TextIO, _LossyStream(stream))
    try:
        yield
    finally:
        sys.stderr = before
        if before is None:
            stream.close()
        else:
            flush_or_drop(before)


def flush_or_drop(stream: TextIO | None) -> None:
    """Write what is left in a stream, or drop it: at exit it would set Python's own exit code."""
    try:
        if stream is not None:
            stream.flush()
    except (OSError, ValueError):
        drop(stream)


def drop(stream: TextIO | None) -> None:
    """Point a stream to nowhere, so that writing what is left in it succeeds."""
    with suppress(OSError, ValueError, AttributeError):
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), cast(TextIO, stream).fileno())
