"""When an alert is told again, and what becomes of notifications whose alert has ended."""

from dataclasses import replace
from fractions import Fraction

import pytest

from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.file.routing import by_severity
from evenkeel.slo.receiver import AlertGrouping, Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.groups import Grouper
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.alerts.outbox import GRACE_NS, LONGEST_NS
from evenkeel_collector.alerts.silence import Silence
from evenkeel_collector.alerts.state import Condition, Delays

S = 10**9
GONE = "answered 410"
NOW = 1_795_168_800 * S
PAGER = Receiver("on-call", "http://127.0.0.1:1/", repeat_s=Fraction(60))
GROUPED = replace(PAGER, group=AlertGrouping(("slo",), Fraction(0), Fraction(0)))


def condition(holds: bool = True, severity: str = "page") -> Condition:
    labels = {"alertname": "SloBudgetBurn", "slo": "chat", "severity": severity}
    return Condition("chat", severity, holds, Delays(), labels, {}, dict)


def due(book: AlertBook, second: int) -> list[Notification]:
    return book.due(NOW + second * S)


def deliver(book: AlertBook, second: int) -> list[str]:
    """Deliver all that is owed; return the ids."""
    ids = []
    while notifications := due(book, second):
        for notification in notifications:
            book.mark_delivered(notification.number, NOW + second * S)
            ids.append(notification.notification_id)
    return ids


def fire_and_repeat(book: AlertBook) -> AlertEngine:
    """Leave a repetition that waits, 70 s after the firing was delivered."""
    engine = AlertEngine(book)
    engine.observe([condition()], [PAGER], NOW)
    assert len(deliver(book, 0)) == 1
    assert engine.repeat([PAGER], NOW + 70 * S) == 1
    return engine


def test_at_most_one_repetition_waits(book: AlertBook) -> None:
    engine = fire_and_repeat(book)
    for second in range(80, 2000, 30):
        assert engine.repeat([PAGER], NOW + second * S) == 0
    assert len(deliver(book, 2000)) == 1
    assert engine.repeat([PAGER], NOW + 2059 * S) == 0
    assert engine.repeat([PAGER], NOW + 2060 * S) == 1


def test_a_page_that_was_never_delivered_is_not_repeated(book: AlertBook) -> None:
    engine = AlertEngine(book)
    engine.observe([condition()], [PAGER], NOW)
    assert engine.repeat([PAGER], NOW + 500 * S) == 0
    assert [notification.status for notification in due(book, 500)] == ["firing"]


def test_a_repetition_that_waits_is_withdrawn_when_the_alert_ends(book: AlertBook) -> None:
    engine = fire_and_repeat(book)
    engine.observe([condition(holds=False)], [PAGER], NOW + 75 * S)
    assert [notification.status for notification in due(book, 75)] == ["resolved"]
    assert engine.repeat([PAGER], NOW + 500 * S) == 0
    assert book.count_by_state() == {
        "waiting": 1, "delivered": 1, "dead": 0, "withdrawn": 1,
    }  # fmt: skip


def test_a_failed_attempt_does_not_bring_a_withdrawn_repetition_back(book: AlertBook) -> None:
    engine = fire_and_repeat(book)
    (under_way,) = due(book, 71)
    engine.observe([condition(holds=False)], [PAGER], NOW + 75 * S)
    book.mark_failed(under_way.number, "answered 500", NOW, NOW)
    assert [notification.status for notification in due(book, 76)] == ["resolved"]


@pytest.mark.parametrize("how", ["taken on", "silenced", "inhibited", "removed"])
def test_a_repetition_that_nobody_wants_any_more_is_withdrawn(book: AlertBook, how: str) -> None:
    engine = fire_and_repeat(book)
    (alert,) = book.alerts()
    if how == "taken on":
        book.acknowledge(alert.alert_id, "ann", "", NOW + 71 * S)
    elif how == "silenced":
        book.add_silence(Silence("s", "chat", NOW, NOW + 10**6 * S, ""))
    elif how == "inhibited":
        engine.set_inhibitions([by_severity(Severity.TICKET, Severity.PAGE)])
        engine.observe([condition(), condition(severity="ticket")], (), NOW + 72 * S)
    else:
        engine.resolve_absent(set(), (), NOW + 72 * S)
    pages = replace(PAGER, severities=("page",))
    assert engine.repeat([pages], NOW + 73 * S) == 0
    assert due(book, 74) == []
    assert engine.repeat([pages], NOW + 900 * S) == 0


def test_repeat_respects_inhibit_and_goes_on_when_it_ends(book: AlertBook) -> None:
    """The ticket was told before the page fired."""
    engine = AlertEngine(book)
    engine.set_inhibitions([by_severity(Severity.PAGE, Severity.TICKET)])
    ticket = condition(severity="ticket")
    engine.observe([ticket], [PAGER], NOW)
    engine.observe([ticket, condition()], (), NOW + S)
    deliver(book, 1)
    assert engine.repeat([replace(PAGER, severities=("ticket",))], NOW + 100 * S) == 0
    engine.observe([ticket, condition(holds=False)], (), NOW + 101 * S)
    engine.observe([ticket, condition(holds=False)], (), NOW + 102 * S)
    assert engine.repeat([replace(PAGER, severities=("ticket",))], NOW + 103 * S) == 1


def test_a_group_is_not_repeated_for_what_is_inhibited(book: AlertBook) -> None:
    engine, grouper = AlertEngine(book), Grouper(book)
    engine.set_inhibitions([by_severity(Severity.PAGE, Severity.TICKET)])
    ticket = condition(severity="ticket")
    grouped = replace(GROUPED, severities=("ticket",))
    engine.observe([ticket], [grouped], NOW)
    grouper.flush({"on-call": grouped}, NOW)
    deliver(book, 0)
    engine.observe([ticket, condition()], [grouped], NOW + S)
    engine.repeat([grouped], NOW + S)
    assert grouper.flush({"on-call": grouped}, NOW + 100 * S) == 0


def test_a_groups_repetition_is_withdrawn_when_everything_in_it_has_ended(book: AlertBook) -> None:
    engine, grouper, outbox = AlertEngine(book), Grouper(book), book
    engine.observe([condition()], [GROUPED], NOW)
    grouper.flush({"on-call": GROUPED}, NOW)
    deliver(book, 0)
    assert grouper.flush({"on-call": GROUPED}, NOW + 61 * S) == 1
    engine.observe([condition(holds=False)], [GROUPED], NOW + 62 * S)
    grouper.flush({"on-call": GROUPED}, NOW + 63 * S)
    (repetition,) = outbox.overdue("on-call", NOW + 64 * S)
    assert outbox.give_up(repetition, NOW + 64 * S) == "withdrawn"
    assert grouper.flush({"on-call": GROUPED}, NOW + 65 * S) == 1
    assert [notification.status for notification in due(book, 65)] == ["resolved"]


def test_a_group_is_never_given_up_while_anything_in_it_fires(book: AlertBook) -> None:
    engine, grouper, outbox = AlertEngine(book), Grouper(book), book
    engine.observe([condition()], [GROUPED], NOW)
    grouper.flush({"on-call": GROUPED}, NOW)
    (notification,) = due(book, 0)
    outbox.mark_failed(notification.number, "answered 404", NOW, NOW, is_refused=True)
    grouper.flush({"on-call": GROUPED}, NOW + S)
    assert outbox.overdue("on-call", 2**62) == []
    engine.observe([condition(holds=False)], [GROUPED], NOW + 10 * S)
    grouper.flush({"on-call": GROUPED}, NOW + 10 * S)
    assert outbox.overdue("on-call", NOW + 9 * S + GRACE_NS) == []
    assert len(outbox.overdue("on-call", NOW + 10 * S + GRACE_NS)) == 1
    # It burns again before that: the time does not run.
    engine.observe([condition()], [GROUPED], NOW + 20 * S)
    grouper.flush({"on-call": GROUPED}, NOW + 20 * S)
    assert outbox.overdue("on-call", 2**62) == []


def test_a_page_has_no_end_before_its_alert_has(book: AlertBook) -> None:
    engine, outbox = AlertEngine(book), book
    engine.observe([condition()], [PAGER], NOW)
    (notification,) = due(book, 0)
    for second in range(0, 7 * 86400, 3600):
        now_ns = NOW + second * S
        outbox.mark_failed(notification.number, "answered 410", now_ns, now_ns, is_refused=True)
        assert outbox.overdue("on-call", 2**62) == []
    engine.observe([condition(holds=False)], [PAGER], NOW + 7 * 86400 * S)
    end_ns = NOW + 7 * 86400 * S
    assert outbox.overdue("on-call", end_ns + GRACE_NS - 1) == []
    (overdue,) = outbox.overdue("on-call", end_ns + GRACE_NS)
    assert outbox.give_up(overdue, end_ns + GRACE_NS) == "withdrawn"
    (resolved,) = outbox.due(2**62)
    assert resolved.status == "resolved"
    outbox.mark_failed(resolved.number, GONE, end_ns, end_ns, is_refused=True)
    # Not tried since, for example because its receiver was muted: it is, once more.
    assert outbox.overdue("on-call", end_ns + LONGEST_NS) == []
    assert outbox.due(end_ns + LONGEST_NS) == [replace(resolved, num_attempts=1, last_error=GONE)]
    late_ns = end_ns + LONGEST_NS + S
    outbox.mark_failed(resolved.number, GONE, late_ns, late_ns, is_refused=True)
    assert outbox.overdue("on-call", end_ns + LONGEST_NS - 1) == []
    (overdue,) = outbox.overdue("on-call", end_ns + LONGEST_NS)
    assert outbox.give_up(overdue, end_ns + LONGEST_NS) == "dead"


def test_a_replayed_page_whose_alert_is_long_over_is_not_tried_for_ever(book: AlertBook) -> None:
    engine, outbox = AlertEngine(book), book
    engine.observe([condition()], [PAGER], NOW)
    (notification,) = due(book, 0)
    outbox.mark_dead(notification.number, "gone", NOW)
    engine.observe([condition(holds=False)], (), NOW + S)
    assert outbox.replay(NOW + 2 * S) == 1
    outbox.mark_failed(notification.number, "answered 500", NOW + 3 * S, NOW + 3 * S)
    assert len(outbox.overdue("on-call", NOW + 3 * S + LONGEST_NS)) == 1


def test_what_has_fired_for_months_is_not_told_again_after_a_restart(book: AlertBook) -> None:
    once = replace(PAGER, repeat_s=Fraction(0))
    AlertEngine(book).observe([condition()], [once], NOW)
    assert len(deliver(book, 0)) == 1
    later = NOW + 100 * 86400 * S
    book.forget_before(later - 90 * 86400 * S)
    engine = AlertEngine(book)
    engine.observe([condition()], [once], later)
    assert engine.repeat([once], later) == 0
    # Its end is, and after that it is forgotten.
    engine.observe([condition(holds=False)], [once], later)
    assert len(deliver(book, 100 * 86400)) == 1
    book.forget_before(later + S)
    assert dict(book.count_by_state()) == {"waiting": 0, "delivered": 0, "dead": 0}


def test_the_repetitions_of_what_has_fired_for_months_are_forgotten(book: AlertBook) -> None:
    engine = fire_and_repeat(book)
    deliver(book, 70)
    book.forget_before(NOW + 86400 * S)
    assert book.count_by_state()["delivered"] == 1
    assert engine.repeat([PAGER], NOW + 2 * 86400 * S) == 1


def test_alerts_that_ended_months_ago_are_forgotten(book: AlertBook) -> None:
    """Groups come and go: each that ever alerted would stay in every list."""
    pending = replace(condition(severity="ticket"), delays=Delays(pending_ns=S))
    engine = AlertEngine(book)
    engine.observe([condition(), pending], [PAGER], NOW)
    book.acknowledge(engine.alerts["chat", "page"].alert_id, "ann", "", NOW)
    gone = replace(pending, holds=False)
    engine.observe([condition(), gone], [PAGER], NOW + S)
    book.forget_before(NOW + 3 * S)
    assert [alert.severity for alert in book.alerts()] == ["page"]
    assert list(book.acknowledged().values()) == ["ann"]
    engine.observe([condition(holds=False)], [PAGER], NOW + 2 * S)
    book.forget_before(NOW + S)
    assert len(book.alerts()) == 1
    book.forget_before(NOW + 3 * S)
    assert book.alerts() == []
    assert book.acknowledged() == {}
    # The engine goes on with what it knows.
    engine.observe([condition()], [PAGER], NOW + 4 * S)
    assert [alert.life.state.value for alert in book.alerts()] == ["firing"]
