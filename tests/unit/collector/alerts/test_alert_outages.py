"""Receivers that come and go while alerts flap: in the end each knows what fires and what ended."""

import random
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from evenkeel.slo.receiver import AlertGrouping, Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.groups import Grouper
from evenkeel_collector.alerts.state import Condition, Delays

S = 10**9
NOW = 1_795_168_800 * S
ALONE = Receiver("a", "http://127.0.0.1:1/")
RECEIVERS = {
    "alone": ALONE,
    "repeated": replace(ALONE, repeat_s=Fraction(60)),
    "grouped": replace(ALONE, group=AlertGrouping(("slo",), Fraction(5), Fraction(20))),
    "grouped and repeated": replace(
        ALONE, group=AlertGrouping(("severity",), Fraction(5), Fraction(20)), repeat_s=Fraction(90)
    ),
}
Key = tuple[str, str]


class Case:
    """One receiver, and what it knows: the state that it was last told of each alert."""

    def __init__(self, book: AlertBook, receiver: Receiver) -> None:
        self.book, self.receiver = book, receiver
        self.engine, self.grouper, self.outbox = AlertEngine(book), Grouper(book), book
        self.known: dict[Key, str] = {}

    def restart(self) -> None:
        self.engine = AlertEngine(self.book)

    def cycle(self, second: int, firing: Mapping[Key, bool], is_down: bool) -> None:
        now_ns = NOW + second * S
        conditions = [
            Condition(slo, severity, holds, Delays(), _labels(slo, severity), {}, dict)
            for (slo, severity), holds in firing.items()
        ]
        self.engine.observe(conditions, [self.receiver], now_ns)
        self.engine.repeat([self.receiver], now_ns)
        self.grouper.flush({"a": self.receiver}, now_ns)
        for notification in self.outbox.overdue("a", now_ns):
            self.outbox.give_up(notification, now_ns)
        for notification in self.outbox.due(now_ns):
            if is_down:
                self.outbox.mark_failed(notification.number, "answered 503", now_ns + S, now_ns)
                continue
            self.outbox.mark_delivered(notification.number, now_ns)
            for alert in notification.alerts:
                self.known[alert.labels["slo"], alert.labels["severity"]] = alert.status


def _labels(slo: str, severity: str) -> dict[str, str]:
    return {"alertname": "A", "slo": slo, "severity": severity}


@pytest.mark.parametrize("receiver", RECEIVERS.values(), ids=RECEIVERS)
@pytest.mark.parametrize("seed", [19, 26, 62])
def test_after_outages_a_receiver_knows_what_fires(
    tmp_path: Path, receiver: Receiver, seed: int
) -> None:
    draw = random.Random(seed)
    book = AlertBook(tmp_path / "alerts.db")
    book.connection.exec_driver_sql("PRAGMA synchronous = OFF")
    case = Case(book, receiver)
    firing = {(slo, severity): False for slo in "xyz" for severity in ("page", "ticket")}
    second, is_down = 0, False
    for _ in range(200):
        second += draw.choice([1, 5, 30, 200])
        firing = {key: holds ^ (draw.random() < 0.08) for key, holds in firing.items()}
        is_down ^= draw.random() < 0.1
        if draw.random() < 0.05:
            case.restart()
        case.cycle(second, firing, is_down)
    for _ in range(40):
        second += 30
        case.cycle(second, firing, False)
    assert {key for key, status in case.known.items() if status == "firing"} == {
        key for key, holds in firing.items() if holds
    }
    assert case.outbox.due(2**62) == []
    book.close()
