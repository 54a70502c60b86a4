"""Alerts are committed at once; their evidence completes them, and pages nobody twice."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from evenkeel.slo.receiver import AlertGrouping, Receiver, ReceiverType
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.evidence_requests import EvidenceBook, EvidenceQueue
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.alerts.outbox import HOLD_NS
from evenkeel_collector.alerts.state import Condition, Delays
from evenkeel_collector.alerts.tables import group_members

S = 10**9
HOOK = Receiver("hook", "http://127.0.0.1:1/")
CHAT = Receiver("chat", "http://127.0.0.1:2/", ReceiverType.SLACK)
FACTS = {"bad_requests": "3 of 4", "top_cause": "queue"}


def condition(holds: bool = True, slo: str = "chat", severity: str = "page") -> Condition:
    return Condition(
        slo,
        severity,
        holds,
        Delays(),
        {"alertname": "SloBudgetBurn", "slo": slo, "severity": severity},
        {},
        lambda: {"summary": "burns"},
        lambda store: FACTS,
    )


class Case:
    """An engine with its evidence_queue, and what receivers are sent."""

    def __init__(self, book: AlertBook) -> None:
        self.book = book
        self.evidence_queue = EvidenceQueue(time.monotonic)
        self.engine = AlertEngine(book, None, self.evidence_queue)
        self.evidence = EvidenceBook(book)
        self.outbox = book

    def observe(self, now_s: int, *conditions: Condition) -> None:
        self.engine.observe(conditions, [HOOK, CHAT], now_s * S)

    def gather(self, now_s: int, facts: Mapping[str, str] = FACTS) -> int:
        """Answer all requests; return how many there were."""
        num = 0
        while (request := self.evidence_queue.next(0)) is not None:
            self.evidence.add(request.alert_id, facts, now_s * S)
            self.evidence_queue.submit(request.alert_id, facts)
            num += 1
        return num

    def update(self, now_s: int) -> int:
        receivers = {"hook": HOOK, "chat": CHAT}
        return self.evidence.update_receivers(receivers, now_s * S)

    def send(self, now_s: float) -> list[tuple[str, str, bool]]:
        """Deliver what is due; return receiver, status and whether evidence was there."""
        notifications = self.outbox.due(int(now_s * S))
        for notification in notifications:
            self.outbox.mark_delivered(notification.number, int(now_s * S), notification.alerts)
        return [(x.receiver, x.status, "top_cause" in notes(x)) for x in notifications]


def notes(notification: Notification) -> dict[str, Any]:
    annotations: dict[str, Any] = dict(notification.alerts[0].annotations)
    return annotations


def test_who_can_be_updated_is_told_at_once_and_again_under_the_same_id(book: AlertBook) -> None:
    case = Case(book)
    case.observe(1, condition())
    (first,) = case.outbox.due(1 * S)
    assert notes(first) == {"summary": "burns", "evidence": "is being gathered"}
    assert case.send(1) == [("hook", "firing", False)]
    assert case.gather(2) == 1
    assert case.update(2) == 1
    due = case.outbox.due(2 * S)
    (again,) = [notification for notification in due if notification.receiver == "hook"]
    assert again.notification_id == first.notification_id
    assert notes(again) == {"summary": "burns", **FACTS}
    # The message to people had waited for its evidence, and is one.
    assert case.send(2) == [("hook", "firing", True), ("chat", "firing", True)]
    assert case.update(3) == 0
    assert case.send(100) == []


def test_who_cannot_be_updated_waits_a_moment_and_gets_one_message(book: AlertBook) -> None:
    case = Case(book)
    case.observe(1, condition())
    case.send(1)
    just_before = 1 + HOLD_NS / S - 0.1
    assert case.send(just_before) == []
    assert case.send(1 + HOLD_NS / S) == [("chat", "firing", False)]
    case.gather(9)
    case.update(9)
    assert case.send(9) == [("hook", "firing", True)]


def test_an_attempt_under_way_is_followed_by_the_update(book: AlertBook) -> None:
    case = Case(book)
    case.observe(1, condition())
    (notification,) = case.outbox.due(1 * S)
    case.gather(2)
    assert case.update(2) == 0, "what waits is completed, not sent again"
    case.outbox.mark_delivered(notification.number, 3 * S, notification.alerts)
    assert case.update(3) == 1
    assert ("hook", "firing", True) in case.send(3)


def test_nobody_hears_of_a_firing_after_its_end(book: AlertBook) -> None:
    case = Case(book)
    case.observe(1, condition())
    case.send(10)
    case.observe(11, condition(holds=False))
    case.gather(12)
    assert case.update(12) == 0
    assert [status for _, status, _ in case.send(12)] == ["resolved", "resolved"]


def test_an_end_does_not_say_that_evidence_is_to_come(book: AlertBook) -> None:
    case = Case(book)
    case.observe(1, condition())
    case.send(10)
    case.observe(11, condition(holds=False))
    assert [notes(x) for x in case.outbox.due(11 * S)] == [{"summary": "burns"}] * 2


def test_that_there_is_no_evidence_is_worth_no_second_notification(book: AlertBook) -> None:
    case = Case(book)
    case.observe(1, condition())
    case.send(10)
    case.gather(11, {"evidence": "not available: the store is gone"})
    assert case.update(11) == 0
    (alert,) = book.alerts()
    assert alert.details.annotations["evidence"].startswith("not available")


def test_history_has_a_transition_once_and_with_its_evidence(book: AlertBook) -> None:
    case = Case(book)
    case.observe(1, condition())
    assert book.transitions_to_store() == []
    case.gather(2)
    (transition,) = book.transitions_to_store()
    assert transition.details.annotations == {"summary": "burns", **FACTS}


def test_state_keeps_the_evidence_whatever_the_engine_writes_meanwhile(book: AlertBook) -> None:
    case = Case(book)
    case.observe(1, condition())
    case.gather(2)
    for second in (3, 4):
        case.observe(second, condition())
    (alert,) = book.alerts()
    assert alert.details.annotations == {"summary": "burns", **FACTS}
    assert case.gather(5) == 0, "asked for once"


def test_what_a_kill_left_is_gathered_after_the_restart(book: AlertBook) -> None:
    Case(book).observe(1, condition())
    after = Case(book)
    assert list(after.evidence.awaited().values()) == [1 * S]
    after.observe(2, condition())
    assert after.gather(3) == 1
    assert after.evidence.awaited() == {}


def test_pages_are_gathered_first(book: AlertBook) -> None:
    case = Case(book)
    case.observe(1, condition(severity="ticket"), condition(slo="b"), condition(slo="a"))
    order = []
    while (request := case.evidence_queue.next(0)) is not None:
        order.append(request.urgency)
    assert order == [0, 0, 1]


def test_members_of_a_group_are_completed(book: AlertBook) -> None:
    case = Case(book)
    team = Receiver(
        "team", "http://127.0.0.1:3/", ReceiverType.SLACK, group=AlertGrouping(("slo",))
    )
    case.engine.observe([condition()], [team], 1 * S)
    case.gather(2)
    (told,) = book.connection.scalars(select(group_members.c.alerts))
    assert told[0].annotations["top_cause"] == "queue"


def test_an_alert_that_cannot_be_made_leaves_the_others_alone(
    book: AlertBook, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> dict[str, str]:
        raise ValueError("odd data")

    case = Case(book)
    odd = Condition("odd", "page", True, Delays(), {"slo": "odd"}, {}, broken)
    case.observe(1, odd, condition())
    assert [alert.slo for alert in book.alerts()] == ["chat"]
    assert "odd" in caplog.text


def test_who_is_told_of_no_ends_gets_no_late_firing_of_what_has_ended(book: AlertBook) -> None:
    case = Case(book)
    hook = replace(HOOK, sends_resolved=False)
    case.engine.observe([condition()], [hook], 1 * S)
    assert case.send(1) == [("hook", "firing", False)]
    case.engine.observe([condition(holds=False)], [hook], 2 * S)
    assert case.gather(3) == 1
    assert case.evidence.update_receivers({"hook": hook}, 3 * S) == 0
    assert case.send(100) == []
