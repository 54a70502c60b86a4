"""Times on the command line: an error names the flag and the value."""

import argparse

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.time_arguments import check_order, minute_argument, time_argument

AT_NS = 1_795_168_800 * 10**9


def test_a_time_is_read() -> None:
    assert time_argument("2026-11-20T10:00:00.5Z") == AT_NS + 500_000_000
    assert minute_argument("2026-11-20T10:00") == AT_NS


@pytest.mark.parametrize(
    ("text", "words"),
    [("noon", "'noon' is not a time"), ("2026-11-20T10:00:30Z", "is not a whole minute")],
)
def test_what_is_no_minute_is_refused(text: str, words: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=words):
        minute_argument(text)


def test_a_range_ends_after_its_start() -> None:
    check_order(AT_NS, AT_NS + 1)
    with pytest.raises(ConfigurationError, match=r"--until is 2026-11-20T10:00:00Z, expected"):
        check_order(AT_NS, AT_NS, "--until")
