"""A clock that is set back delays no notification."""

from dataclasses import replace
from fractions import Fraction

import pytest

from evenkeel.slo.receiver import AlertGrouping, Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.groups import Grouper
from evenkeel_collector.alerts.outbox import HOLD_NS
from evenkeel_collector.alerts.state import Condition, Delays
from evenkeel_collector.delivery.receiver_queue import Clock

S = 10**9
NOW = 1_795_168_800 * S
PAGER = Receiver("on-call", "http://127.0.0.1:1/")
GROUPED = replace(PAGER, group=AlertGrouping(("slo",), Fraction(30), Fraction(300)))
CHAT = Condition("chat", "page", True, Delays(), {"slo": "chat"}, {}, dict)
BACK = [10 * S, 600 * S, 7200 * S, 40 * 86400 * S]


@pytest.mark.parametrize("back_ns", BACK)
def test_what_was_never_tried_is_due_whatever_the_clock_said(book: AlertBook, back_ns: int) -> None:
    """The evaluation counts a clock that is set back as standing still."""
    AlertEngine(book).observe([CHAT], [PAGER], NOW)
    assert len(book.due(NOW - back_ns)) == 1


def test_what_is_held_back_for_its_evidence_is_held_back_no_longer_than_that(
    book: AlertBook,
) -> None:
    AlertEngine(book).observe([CHAT], [PAGER], NOW)
    book.connection.exec_driver_sql("UPDATE outbox SET next_attempt_ns = ?", (NOW + HOLD_NS,))
    assert book.due(NOW) == []
    assert len(book.due(NOW + HOLD_NS)) == 1
    assert len(book.due(NOW - 3600 * S)) == 1


@pytest.mark.parametrize("back_ns", BACK[2:])
def test_a_retry_waits_no_longer_than_any_receiver_may_ask(book: AlertBook, back_ns: int) -> None:
    AlertEngine(book).observe([CHAT], [PAGER], NOW)
    (notification,) = book.due(NOW)
    book.mark_failed(notification.number, "answered 503", NOW + 3600 * S, NOW)
    assert book.due(NOW) == []
    assert len(book.due(NOW - back_ns)) == 1


@pytest.mark.parametrize("back_ns", BACK[1:])
def test_a_group_is_told_though_the_clock_was_set_back(book: AlertBook, back_ns: int) -> None:
    AlertEngine(book).observe([CHAT], [GROUPED], NOW)
    grouper = Grouper(book)
    assert grouper.flush({"on-call": GROUPED}, NOW) == 0
    assert grouper.flush({"on-call": GROUPED}, NOW - back_ns) == 1


@pytest.mark.parametrize("receiver", [PAGER, GROUPED], ids=["alone", "in a group"])
@pytest.mark.parametrize("back_ns", [0, *BACK[2:]])
def test_what_fires_is_repeated_though_the_clock_was_set_back(
    book: AlertBook, receiver: Receiver, back_ns: int
) -> None:
    """Until the clock is where it was, which may take days, nobody would be reminded."""
    receiver = replace(receiver, repeat_s=Fraction(3600))
    engine, grouper, sent = AlertEngine(book), Grouper(book), 0
    for minute in range(-10, 600):
        now_ns = NOW + minute * 60 * S - (back_ns if minute > 0 else 0)
        engine.observe([CHAT], [receiver], now_ns)
        engine.repeat([receiver], now_ns)
        grouper.flush({"on-call": receiver}, now_ns)
        for notification in book.due(now_ns):
            book.mark_delivered(notification.number, now_ns)
            sent += 1
    # The first, and one an hour; in a group, one more, since none is known to have been sent.
    assert sent in (10, 11, 12)


def test_a_clock_says_once_that_it_was_set_back() -> None:
    moments = iter([100 * S, 101 * S, 40 * S, 41 * S, 41 * S - 1])
    clock = Clock(lambda: next(moments))
    assert [clock.was_set_back() for _ in range(5)] == [False, False, True, False, False]
