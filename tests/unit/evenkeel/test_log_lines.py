"""A log line holds names from outside, and neither controls a terminal nor looks like another."""

import io
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from evenkeel.log_lines import stderr_handler

# Clears the screen, sets the window's title, and begins what looks like another line.
HOSTILE = "acme\x1b[2J\x1b]0;title\x07\r\n2026-11-20 INFO evenkeel all is well\x9b1A"


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Return what the logger `test` writes to standard error."""
    stderr, logger = io.StringIO(), logging.getLogger("test")
    monkeypatch.setattr(sys, "stderr", stderr)
    handler = stderr_handler("%(levelname)s %(message)s")
    logger.addHandler(handler)
    monkeypatch.setattr(logger, "propagate", False)
    yield stderr
    logger.removeHandler(handler)


def test_a_name_in_a_message_is_harmless(lines: io.StringIO) -> None:
    logging.getLogger("test").warning("no budget: tenant=%s", HOSTILE)
    first, second, end = lines.getvalue().split("\n")
    assert first == "WARNING no budget: tenant=acme\ufffd[2J\ufffd]0;title\ufffd\ufffd"
    assert second == "  2026-11-20 INFO evenkeel all is well\ufffd1A"
    assert end == ""


def test_a_traceback_stays_readable_and_is_harmless(lines: io.StringIO) -> None:
    try:
        raise ValueError(f"no such tenant: {HOSTILE}")
    except ValueError:
        logging.getLogger("test").exception("failed")
    first, *trace, end = lines.getvalue().split("\n")
    assert first == "ERROR failed"
    assert trace[0] == "  Traceback (most recent call last):"
    assert trace[1].startswith('    File "')
    assert "  ValueError: no such tenant: acme\ufffd[2J\ufffd]0;title\ufffd\ufffd" in trace
    assert all(line.startswith("  ") for line in trace)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", lines.getvalue())
    assert end == ""
