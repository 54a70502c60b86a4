"""How long to wait before trying again."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.retry_delay import LONGEST_ASKED_S, RetryDelay, read_retry_after

NOW = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("", None),
        ("7", 7.0),
        (" 0 ", 0.0),
        ("0.5", 0.5),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("1e9", None),
        ("9" * 400, LONGEST_ASKED_S),
        ("soon", None),
        ("Wed, 21 Oct 99999 07:28:00 GMT", None),
        ("Mon, 01 Jan 0001 00:00:00 +9999", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Fri, 20 Nov 2026 10:00:30 GMT", 30.0),
        ("Fri, 20 Nov 2026 10:00:30", 30.0),
        ("Fri, 20 Nov 2036 10:00:30 GMT", LONGEST_ASKED_S),
    ],
)
def test_a_retry_after_is_a_number_or_a_date(text: str | None, expected: float | None) -> None:
    assert read_retry_after(text, NOW) == expected


DATES = st.from_regex(
    r"[A-Z][a-z]{2},? [0-9]{1,22} (Jan|Nov|Xxx) [0-9]{1,22}( [0-9:.]{1,30})?( [-+]?[0-9A-Z]{1,9})?",
    fullmatch=True,
)


@given(st.one_of(st.text(), DATES))
def test_whatever_retry_after_says_is_a_wait_of_a_day_at_most(text: str) -> None:
    wait_s = read_retry_after(text, NOW)
    assert wait_s is None or 0 <= wait_s <= LONGEST_ASKED_S


def test_a_delay_doubles_with_jitter_up_to_the_longest() -> None:
    delay = RetryDelay(0.25, 5.0)
    for step_s in (0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0):
        assert step_s / 2 <= delay.next_s() <= min(step_s * 1.5, 5.0)


def test_what_the_receiver_asks_for_comes_first_and_is_bounded() -> None:
    delay = RetryDelay(0.25, 5.0)
    assert delay.next_s(asked_s=3.0) == 3.0
    assert delay.next_s(asked_s=1e12) == 5.0
    assert 0.5 <= delay.next_s(asked_s=0.0) <= 1.5


def test_at_the_longest_delay_few_return_together() -> None:
    delay = RetryDelay(5.0, 5.0)

    waits = [delay.next_s() for _ in range(200)]

    assert len(set(waits)) > 190
    assert 2.5 <= min(waits) <= max(waits) <= 5.0
