"""Log lines on standard error that may hold text from outside: names, IDs, prompts, errors."""

from __future__ import annotations

import logging
import sys

from evenkeel.outside_text import for_terminal


class LogLines(logging.Formatter):
    """Formats a record so that it can neither control a terminal nor look like another record.

    All lines but its first, those of a traceback or of a message from outside, are indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's lines."""
        return "\n  ".join(for_terminal(line) for line in super().format(record).split("\n"))


def stderr_handler(line: str) -> logging.Handler:
    """Return a handler that writes such lines, given the format of the first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines(line))
    return handler
