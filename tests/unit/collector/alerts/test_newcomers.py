"""A receiver that comes into the file, or comes back, is told of what fires already."""

from dataclasses import replace
from fractions import Fraction

import pytest

from evenkeel.slo.receiver import AlertGrouping, Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.groups import Grouper
from evenkeel_collector.alerts.silence import Silence
from evenkeel_collector.alerts.state import Condition, Delays

S = 10**9
NOW = 1_795_168_800 * S
OPS = Receiver("ops", "http://127.0.0.1:1/")
CREW = Receiver("crew", "http://127.0.0.1:2/")
CHAT = Condition("chat", "page", True, Delays(), {"slo": "chat", "severity": "page"}, {}, dict)


def cycle(book: AlertBook, engine: AlertEngine, second: int, *receivers: Receiver) -> list[str]:
    """Evaluate and deliver; return who was told, each by its status."""
    now_ns = NOW + second * S
    engine.observe([CHAT], receivers, now_ns)
    engine.repeat(receivers, now_ns)
    Grouper(book).flush({receiver.name: receiver for receiver in receivers}, now_ns)
    notifications = book.due(now_ns)
    for notification in notifications:
        book.mark_delivered(notification.number, now_ns)
    return [f"{notification.receiver} {notification.status}" for notification in notifications]


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    "before", [(), (OPS,), (OPS, replace(CREW, severities=("ticket",)))], ids=["none", "one", "two"]
)
def test_a_newcomer_is_told_once_of_what_fires(
    book: AlertBook, before: tuple[Receiver, ...], is_restarted: bool
) -> None:
    engine = AlertEngine(book)
    assert cycle(book, engine, 0, *before) == ["ops firing"] * bool(before)
    if is_restarted:
        engine = AlertEngine(book)
    assert cycle(book, engine, 60, *before[:1], CREW) == ["crew firing"]
    assert cycle(book, engine, 120, *before[:1], CREW) == []
    assert cycle(book, AlertEngine(book), 180, *before[:1], CREW) == []


def test_who_left_the_file_and_comes_back_is_told_what_it_was_owed(book: AlertBook) -> None:
    engine = AlertEngine(book)
    engine.observe([CHAT], [OPS], NOW)
    (notification,) = book.due(NOW)
    book.mark_dead(notification.number, "the SLO file no longer has this receiver", NOW + S)
    assert cycle(book, engine, 60) == []
    assert cycle(book, engine, 120, OPS) == ["ops firing"]
    assert cycle(book, engine, 180, OPS) == []


def test_other_options_of_the_same_place_are_no_newcomer(book: AlertBook) -> None:
    engine = AlertEngine(book)
    four, six = (
        replace(OPS, name=f"ops [alone, repeat {hours}h]", base="ops", repeat_s=Fraction(3600))
        for hours in (4, 6)
    )
    assert cycle(book, engine, 0, four) == ["ops [alone, repeat 4h] firing"]
    assert cycle(book, engine, 60, six) == []
    assert cycle(book, engine, 120, OPS) == []


def test_a_group_that_was_told_is_no_newcomer(book: AlertBook) -> None:
    engine = AlertEngine(book)
    grouped = replace(OPS, group=AlertGrouping(("slo",)))
    assert cycle(book, engine, 0, grouped) == ["ops firing"]
    assert cycle(book, AlertEngine(book), 60, grouped) == []
    assert cycle(book, engine, 120, grouped, CREW) == ["crew firing"]


def test_nobody_is_told_of_what_is_silenced_or_taken_on(book: AlertBook) -> None:
    engine = AlertEngine(book)
    assert cycle(book, engine, 0, OPS) == ["ops firing"]
    book.add_silence(Silence("s", "chat", NOW, NOW + 90 * S, "x"))
    assert cycle(book, engine, 60, OPS, CREW) == []
    assert cycle(book, engine, 120, OPS, CREW) == ["crew firing"]
    book.acknowledge(engine.alerts["chat", "page"].alert_id, "me", "", NOW)
    assert cycle(book, engine, 180, OPS, CREW, replace(CREW, name="third")) == []
