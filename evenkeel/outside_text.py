"""Text from outside (names, IDs, answers), made harmless for a terminal or a spreadsheet."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, TextIO, cast

REPLACEMENT = "\ufffd"
# Control characters but tab and newline, and those that change the direction of text.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
_IN_A_LINE = re.compile(f"[\t\n{_CONTROLS}]")
# Colours of our own tables (SGR) are kept: they change no text and move nothing.
_IN_OUTPUT = re.compile(rf"(\x1b\[[0-9;]*m)|[{_CONTROLS}]")
# A spreadsheet reads a cell that starts with one of these as a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def for_terminal(text: str) -> str:
    """Return the text as one line, with each character that would control a terminal replaced."""
    return _IN_A_LINE.sub(REPLACEMENT, text)


def for_spreadsheet(value: Any) -> Any:
    """Return the value; text that would be a formula is quoted with an apostrophe."""
    is_formula = isinstance(value, str) and value.startswith(_FORMULA_STARTS)
    return f"'{value}" if is_formula else value


class _SafeStream:
    """A text stream that cannot control the terminal, apart from colours."""

    def __init__(self, stream: IO[str]) -> None:
        self.unsafe = stream

    def write(self, text: str) -> int:
        self.unsafe.write(_IN_OUTPUT.sub(lambda found: found[1] or REPLACEMENT, text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unsafe, name)


def write_any_character(chosen: str) -> None:
    """Make standard output take every character, whatever the locale.

    A file or pipe gets UTF-8; a terminal gets a question mark for what it cannot show, as does
    everything if the user has chosen the encoding.

    Args:
        chosen: The value of PYTHONIOENCODING.
    """
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper) or stream.encoding.lower() in ("utf-8", "utf8"):
        return
    if not stream.isatty() and not chosen.partition(":")[0]:
        stream.reconfigure(encoding="utf-8", errors=stream.errors)
    elif stream.errors in ("strict", "surrogateescape"):
        stream.reconfigure(errors="replace")


@contextmanager
def safe_output() -> Iterator[None]:
    """Within it, what is printed to a terminal cannot control it; files get it unchanged."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_safe, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _safe(stream: TextIO) -> TextIO:
    # A process without a terminal may have no stream at all.
    if stream is None or not stream.isatty():
        return stream
    return cast(TextIO, _SafeStream(stream))


def drawn_on(stream: IO[str]) -> IO[str]:
    """Return the stream for something that moves the cursor, such as a progress bar."""
    return stream.unsafe if isinstance(stream, _SafeStream) else stream
