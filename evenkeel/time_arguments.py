"""Times on the command line: `type=` functions for argparse, which puts the flag in front."""

from __future__ import annotations

import argparse

from evenkeel.errors import ConfigurationError
from evenkeel.times import MINUTE_NS, parse_time_ns, rfc3339


def time_argument(text: str) -> int:
    """Return the Unix nanoseconds of an argument such as 2026-11-20T10:00Z."""
    try:
        return parse_time_ns(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def minute_argument(text: str) -> int:
    """Return the Unix nanoseconds of an argument that must be a whole minute, as costs are kept."""
    time_ns = time_argument(text)
    if time_ns % MINUTE_NS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole minute, which costs need")
    return time_ns


def check_order(from_ns: int, to_ns: int, end_flag: str = "--to") -> None:
    """Check that a range ends after its start.

    Raises:
        ConfigurationError: If it does not.
    """
    if to_ns <= from_ns:
        raise ConfigurationError(
            f"{end_flag} is {rfc3339(to_ns, 'seconds')}, expected a time after --from, which is "
            f"{rfc3339(from_ns, 'seconds')}"
        )
