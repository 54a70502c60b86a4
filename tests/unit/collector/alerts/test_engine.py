"""From conditions to transitions, notifications and silences, in a real SQLite file."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from evenkeel.errors import ConfigurationError
from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.file.routing import by_severity
from evenkeel.slo.matchers import parse_matchers
from evenkeel.slo.receiver import Receiver
from evenkeel_collector.alerts.alert import Update
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.alerts.silence import Silence
from evenkeel_collector.alerts.state import Condition, Delays, State

S = 10**9
NOW = 1_795_168_800 * S
RECEIVERS = (Receiver("on-call", "http://127.0.0.1:1/"), Receiver("log", "http://127.0.0.1:2/"))


def condition(
    holds: bool | None = True, slo: str = "chat", pending_s: int = 0, severity: str = "page"
) -> Condition:
    return Condition(
        slo=slo,
        severity=severity,
        holds=holds,
        delays=Delays(pending_s * S),
        labels={"alertname": "SloBudgetBurn", "slo": slo, "severity": severity},
        figures={"sli": 0.9, "burn_long": None},
        describe=lambda: {"summary": f"{slo} burns"},
    )


def waiting(book: AlertBook, now_ns: int = 2**62) -> list[Notification]:
    """Everything that is still owed, in order, whatever blocks it; delivered at `now_ns`."""
    outbox, notifications = book, []
    while due := outbox.due(2**62):
        for notification in due:
            notifications.append(notification)
            outbox.mark_delivered(notification.number, now_ns)
    return notifications


def test_firing_and_resolved_reach_every_receiver_once(book: AlertBook) -> None:
    engine = AlertEngine(book)
    for second, holds in enumerate([False, True, True, False, False], start=1):
        engine.observe([condition(holds)], RECEIVERS, second * S)
    notifications = waiting(book)
    assert [(x.receiver, x.status) for x in notifications] == [
        ("on-call", "firing"),
        ("log", "firing"),
        ("on-call", "resolved"),
        ("log", "resolved"),
    ]
    assert len({x.notification_id for x in notifications}) == 2
    (alert,) = notifications[2].alerts
    assert (alert.status, alert.starts_at_ns, alert.ends_at_ns) == ("resolved", 2 * S, 4 * S)
    assert alert.annotations["summary"] == "chat burns"


def test_evidence_is_gathered_only_when_an_alert_fires(book: AlertBook) -> None:
    calls = []

    def look(holds: bool) -> Condition:
        return Condition(
            slo="chat",
            severity="page",
            holds=holds,
            delays=Delays(2 * S),
            labels={},
            figures={},
            describe=lambda: calls.append(1) or {},  # type: ignore[func-returns-value]
        )

    engine = AlertEngine(book)
    for second, holds in enumerate([False, True, True, True, True, False], start=1):
        engine.observe([look(holds)], (), second * S)
    assert len(calls) == 1


def test_a_restart_goes_on_where_the_last_one_stopped(book: AlertBook, tmp_path: Path) -> None:
    AlertEngine(book).observe([condition(True)], RECEIVERS[:1], 1 * S)
    again = AlertBook(tmp_path / "alerts.db")
    engine = AlertEngine(again)
    assert engine.observe([condition(True)], RECEIVERS[:1], 2 * S) == []
    (transition,) = engine.observe([condition(False)], RECEIVERS[:1], 3 * S)
    again.close()
    assert (transition.from_state, transition.state) == (State.FIRING, State.RESOLVED)
    assert [x.status for x in waiting(book)] == ["firing", "resolved"]


def test_a_pending_alert_is_history_and_no_notification(book: AlertBook) -> None:
    engine = AlertEngine(book)
    changes = [
        t.state
        for second, holds in enumerate([True, False], start=1)
        for t in engine.observe([condition(holds, pending_s=60)], RECEIVERS, second * S)
    ]
    assert changes == [State.PENDING, State.INACTIVE]
    assert waiting(book) == []


def test_a_silence_withholds_and_its_end_tells(book: AlertBook) -> None:
    book.add_silence(Silence("s1", "chat", 0, 10 * S, "load test"))
    engine = AlertEngine(book)
    (transition,) = engine.observe([condition(True)], RECEIVERS[:1], 5 * S)
    assert transition.is_silenced
    assert waiting(book) == []
    engine.observe([condition(True)], RECEIVERS[:1], 11 * S)
    assert [x.status for x in waiting(book)] == ["firing"]


def test_a_silence_withholds_only_its_own_slo(book: AlertBook) -> None:
    book.add_silence(Silence("s1", "chat", 0, 10 * S, ""))
    AlertEngine(book).observe([condition(True, "other")], RECEIVERS[:1], 5 * S)
    assert len(waiting(book)) == 1


def test_who_heard_the_firing_hears_the_resolve_in_spite_of_a_silence(book: AlertBook) -> None:
    engine = AlertEngine(book)
    engine.observe([condition(True)], RECEIVERS[:1], 1 * S)
    book.add_silence(Silence("s1", "chat", 0, 10 * S, ""))
    engine.observe([condition(False)], RECEIVERS[:1], 2 * S)
    assert [x.status for x in waiting(book)] == ["firing", "resolved"]


def test_who_heard_nothing_hears_no_resolve(book: AlertBook) -> None:
    book.add_silence(Silence("s1", "chat", 0, 10 * S, ""))
    engine = AlertEngine(book)
    engine.observe([condition(True)], RECEIVERS[:1], 1 * S)
    engine.observe([condition(False)], RECEIVERS[:1], 2 * S)
    assert waiting(book) == []


def test_a_silence_can_be_ended(book: AlertBook) -> None:
    book.add_silence(Silence("s1", "chat", 0, 10 * S, ""))
    assert book.end_silence("s1", 5 * S)
    assert not book.end_silence("s1", 6 * S)
    assert book.silences(7 * S) == []


def test_an_slo_that_left_the_file_resolves_its_alert(book: AlertBook) -> None:
    engine = AlertEngine(book)
    engine.observe([condition(True)], RECEIVERS[:1], 1 * S)
    (transition,) = engine.resolve_absent(set(), RECEIVERS[:1], 2 * S)
    assert transition.state is State.RESOLVED
    assert [x.status for x in waiting(book)] == ["firing", "resolved"]
    assert engine.resolve_absent(set(), RECEIVERS[:1], 3 * S) == []


def test_a_state_and_its_notifications_are_written_together_or_not_at_all(book: AlertBook) -> None:
    """The same notification twice breaks a rule of the table, after the alert was written."""
    engine = AlertEngine(book)
    engine.observe([condition(True)], RECEIVERS[:1], 1 * S)
    (alert,) = book.alerts()
    twice = Notification(f"{alert.alert_id}-firing", "on-call", alert.alert_id, "f", ())
    other = AlertEngine(book).alerts[("chat", "page")]
    with pytest.raises(IntegrityError) as caught:
        book.commit([Update(alert), Update(other, None, (twice,))], 2 * S)
    assert str(caught.value) == (
        "(sqlite3.IntegrityError) UNIQUE constraint failed: outbox.notification_id, outbox.receiver"
    )
    assert len(waiting(book)) == 1


def test_resolved_waits_until_firing_is_off_the_table(book: AlertBook) -> None:
    engine, outbox = AlertEngine(book), book
    engine.observe([condition(True)], RECEIVERS[:1], 1 * S)
    engine.observe([condition(False)], RECEIVERS[:1], 2 * S)
    (firing,) = outbox.due(3 * S)
    outbox.mark_failed(firing.number, "answered 503", 60 * S)
    assert outbox.due(3 * S) == []
    (again,) = outbox.due(61 * S)
    assert (again.notification_id, again.num_attempts) == (firing.notification_id, 1)
    outbox.mark_dead(firing.number, "answered 503", 61 * S)
    assert [x.status for x in outbox.due(62 * S)] == ["resolved"]


def test_dead_letters_are_replayed_under_their_id(book: AlertBook) -> None:
    AlertEngine(book).observe([condition(True)], RECEIVERS, 1 * S)
    outbox = book
    first, second = outbox.due(2 * S)
    outbox.mark_dead(first.number, "answered 404", 2 * S)
    outbox.mark_dead(second.number, "answered 404", 2 * S)
    assert [x.last_error for x in outbox.dead()] == ["answered 404", "answered 404"]
    assert outbox.replay(3 * S, first.number) == 1
    (again,) = outbox.due(3 * S)
    assert (again.notification_id, again.num_attempts) == (first.notification_id, 0)
    assert outbox.replay(3 * S) == 1
    assert outbox.count_by_state() == {"waiting": 2, "delivered": 0, "dead": 0}


def test_what_is_long_over_is_forgotten(book: AlertBook) -> None:
    engine = AlertEngine(book)
    engine.observe([condition(True)], RECEIVERS[:1], 1 * S)
    (notification,) = book.due(2 * S)
    book.mark_delivered(notification.number, 2 * S)
    engine.observe([condition(False)], (), 3 * S)
    book.forget_before(100 * S)
    assert book.count_by_state()["delivered"] == 0
    assert len(book.transitions(10)) == 2, "the store does not have them yet"
    for transition in book.transitions(2):
        book.mark_stored(transition.id)
    book.forget_before(100 * S)
    assert book.transitions(10) == []


def test_a_file_that_is_no_alert_book_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "alerts.db"
    path.write_bytes(b"x" * 4096)
    with pytest.raises(ConfigurationError, match="cannot be used for alerts"):
        AlertBook(path)
    with pytest.raises(ConfigurationError, match=r"does not exist; .* --slos"):
        AlertBook(tmp_path / "none.db", create=False)


def test_who_wants_it_is_told_again_until_somebody_takes_it_on(book: AlertBook) -> None:
    again = replace(RECEIVERS[0], repeat_s=Fraction(60))
    receivers = (again, RECEIVERS[1])
    engine = AlertEngine(book)
    engine.observe([condition()], receivers, NOW)
    assert len(waiting(book, NOW)) == 2
    assert engine.repeat(receivers, NOW + 59 * S) == 0
    assert engine.repeat(receivers, NOW + 61 * S) == 1
    # Neither the same program nor the next one sends a repetition twice.
    assert engine.repeat(receivers, NOW + 62 * S) == 0
    assert AlertEngine(book).repeat(receivers, NOW + 63 * S) == 0
    assert len(waiting(book, NOW + 64 * S)) == 1
    (alert,) = book.alerts()
    book.acknowledge(alert.alert_id, "ann", "on it", NOW + 70 * S)
    assert engine.repeat(receivers, NOW + 200 * S) == 0
    assert book.acknowledged() == {alert.alert_id: "ann"}


def test_a_page_withholds_the_ticket_of_the_same_slo(book: AlertBook) -> None:
    engine = AlertEngine(book)
    engine.set_inhibitions([by_severity(Severity.PAGE, Severity.TICKET)])
    both = [condition(severity="page"), condition(severity="ticket")]
    other = condition(slo="other", severity="ticket")
    engine.observe([*both, other], RECEIVERS[:1], NOW)
    told = {(a.slo, a.severity): a.is_notified for a in book.alerts()}
    assert told == {("chat", "page"): True, ("chat", "ticket"): False, ("other", "ticket"): True}
    over = [condition(holds=False, severity="page"), condition(severity="ticket")]
    engine.observe(over, RECEIVERS[:1], NOW + S)
    engine.observe(over, RECEIVERS[:1], NOW + 2 * S)
    assert {a.severity: a.is_notified for a in book.alerts() if a.slo == "chat"}["ticket"]


def test_a_receiver_is_told_of_its_severities_alone(book: AlertBook) -> None:
    pager = replace(RECEIVERS[0], severities=("page",))
    AlertEngine(book).observe([condition(severity="ticket")], [pager, RECEIVERS[1]], NOW)
    assert [notification.receiver for notification in book.due(NOW)] == ["log"]


def test_without_a_file_an_alert_goes_on_whose_end_receivers_of_the_file_await(
    book: AlertBook,
) -> None:
    AlertEngine(book).observe([condition()], RECEIVERS, NOW)
    engine = AlertEngine(book, has_file=False)
    engine.observe([condition(False), condition(slo="own")], (), NOW + S)
    engine.observe([condition(False), condition(False, slo="own")], (), NOW + 2 * S)
    found = {alert.slo: alert.life.state for alert in book.alerts()}
    assert found == {"chat": State.FIRING, "own": State.RESOLVED}


def test_an_alert_that_cannot_be_updated_is_counted_and_stops_no_other(book: AlertBook) -> None:
    failures: list[Exception] = []
    engine = AlertEngine(book, record_failure=failures.append)
    wrong = replace(condition(slo="wrong"), describe=lambda: {"summary": f"{1 // 0}"})
    engine.observe([wrong, condition()], RECEIVERS, NOW)
    assert [type(error) for error in failures] == [ZeroDivisionError]
    assert [alert.slo for alert in book.alerts()] == ["chat"]


def test_what_cannot_be_told_changes_nothing(book: AlertBook) -> None:
    engine = AlertEngine(book)
    engine.observe([condition()], RECEIVERS, NOW)
    assert engine.observe([condition(holds=None)], RECEIVERS, NOW + S) == []
    (alert,) = book.alerts()
    assert alert.life.state is State.FIRING


def test_an_alert_that_is_only_pending_withholds_nothing(book: AlertBook) -> None:
    """Nobody is told of it yet, and maybe never."""
    engine = AlertEngine(book)
    engine.set_inhibitions([by_severity(Severity.PAGE, Severity.TICKET)])
    pending = condition(pending_s=10)
    engine.observe([pending, condition(severity="ticket")], RECEIVERS[:1], NOW)
    assert [n.alerts[0].labels["severity"] for n in waiting(book)] == ["ticket"]
    # With the page come no other tickets, from the moment that it fires.
    rule = condition(slo="chat", severity="ticket", pending_s=10)
    rule = replace(rule, slo="chat/other")
    engine.observe([pending, rule], RECEIVERS[:1], NOW + S)
    engine.observe([pending, rule], RECEIVERS[:1], NOW + 11 * S)
    assert [n.alerts[0].labels["severity"] for n in waiting(book)] == ["page"]


def test_the_end_of_a_silence_tells_of_what_can_no_longer_be_judged(book: AlertBook) -> None:
    """The service broke during maintenance, and its callers have left."""
    engine = AlertEngine(book)
    book.add_silence(Silence("s1", "chat", 0, 10 * S, "maintenance"))
    engine.observe([condition()], RECEIVERS[:1], 5 * S)
    engine.observe([condition(None)], RECEIVERS[:1], 9 * S)
    assert waiting(book) == []
    engine.observe([condition(None), condition(None, slo="quiet")], RECEIVERS[:1], 11 * S)
    assert [(n.status, n.alerts[0].labels["slo"]) for n in waiting(book)] == [("firing", "chat")]
    engine.observe([condition(False)], RECEIVERS[:1], 12 * S)
    assert [n.status for n in waiting(book)] == ["resolved"]


def test_a_name_that_is_unknown_is_answered_briefly(book: AlertBook) -> None:
    """A grouped SLO may have two thousand names; its own is none of them."""
    book.set_subjects([f"chat/t{number:04}" for number in range(2000)] + ["tail"])
    book.check_subject("chat/t0007")
    with pytest.raises(ConfigurationError) as caught:
        book.check_subject("chat")
    assert str(caught.value) == (
        "no SLO or rule is named 'chat': it is grouped, and its 2000 SLOs have names such as "
        "'chat/t0000'; a silence of all of them matches slo_group=chat"
    )
    with pytest.raises(ConfigurationError) as caught:
        book.check_subject("chart")
    assert str(caught.value).startswith("no SLO or rule is named 'chart'; there are chat/t0000, ")
    assert str(caught.value).endswith(", chat/t0009 and 1991 more")


@pytest.mark.parametrize("holds", [True, None])
def test_a_silence_by_a_label_that_the_slo_had_when_it_fired_still_holds(
    book: AlertBook, holds: bool | None
) -> None:
    """A step of the budget policy gave it; its share of the budget is less by now, or unknown."""
    engine = AlertEngine(book)
    book.add_silence(Silence("s1", "", 0, 10 * S, "known", parse_matchers('{team="late"}')))
    late = condition()
    late = replace(late, labels={**late.labels, "team": "late"})
    engine.observe([late], RECEIVERS[:1], 5 * S)
    for second in (6, 9):
        engine.observe([condition(holds)], RECEIVERS[:1], second * S)
        engine.repeat(RECEIVERS[:1], second * S)
    assert waiting(book) == []
    engine.observe([condition(holds)], RECEIVERS[:1], 11 * S)
    assert [n.alerts[0].labels.get("team") for n in waiting(book)] == ["late"]
