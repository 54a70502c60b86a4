"""When a group is told, of what, and that a crash in between changes nothing."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import time
from fractions import Fraction
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from evenkeel.slo.matchers import parse_matchers
from evenkeel.slo.mute_time import MuteTime
from evenkeel.slo.receiver import AlertGrouping, Receiver, ReceiverType
from evenkeel.slo.routing import Route
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.groups import Grouper
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.alerts.silence import Silence
from evenkeel_collector.alerts.state import Condition, Delays
from evenkeel_collector.delivery.alertmanager import alertmanager_message

S = 10**9
NOW = 1_795_168_800 * S
BY_TEAM = Receiver(
    "on-call",
    "http://127.0.0.1:1/",
    repeat_s=Fraction(3600),
    group=AlertGrouping(("team",), wait_s=Fraction(30), interval_s=Fraction(300)),
)


class Office:
    """An engine and a grouper over one book; `tell` marks as delivered what is owed."""

    def __init__(self, book: AlertBook, *receivers: Receiver) -> None:
        self.book, self.receivers = book, receivers or (BY_TEAM,)
        self.engine, self.grouper = AlertEngine(book), Grouper(book)

    def see(self, second: float, **firing: bool) -> None:
        """Observe SLOs, each of team chat unless its name begins with another's."""
        conditions = [
            Condition(slo, "page", holds, Delays(), _labels(slo), {}, lambda: {"summary": "x"})
            for slo, holds in firing.items()
        ]
        self.engine.observe(conditions, self.receivers, NOW + int(second * S))

    def told(self, second: float) -> list[dict[str, Any]]:
        """Flush, and return the bodies of what is then due."""
        now_ns = NOW + int(second * S)
        self.grouper.flush({receiver.name: receiver for receiver in self.receivers}, now_ns)
        places = {receiver.name: receiver for receiver in self.receivers}
        return [
            alertmanager_message(places.get(n.receiver, BY_TEAM), n) for n in self.deliver(now_ns)
        ]

    def deliver(self, now_ns: int) -> list[Notification]:
        outbox = self.book
        notifications = outbox.due(now_ns)
        for notification in notifications:
            outbox.mark_delivered(notification.number, now_ns)
        return notifications


def _labels(slo: str) -> Mapping[str, str]:
    team = "search" if slo.startswith("search") else "chat"
    return {"alertname": "SloBudgetBurn", "slo": slo, "severity": "page", "team": team}


def statuses(body: Mapping[str, Any]) -> dict[str, str]:
    return {alert["labels"]["slo"]: alert["status"] for alert in body["alerts"]}


def test_alerts_of_a_group_arrive_together_after_the_wait(book: AlertBook) -> None:
    office = Office(book)
    office.see(0, ttft=True, search=True)
    office.see(20, tpot=True)
    assert office.told(29.9) == []
    chat, search = office.told(30)
    assert statuses(chat) == {"ttft": "firing", "tpot": "firing"}
    assert statuses(search) == {"search": "firing"}
    assert chat["groupLabels"] == {"team": "chat"}
    assert chat["groupKey"] == '{}:{team="chat"}'
    assert chat["commonLabels"] == {
        "alertname": "SloBudgetBurn",
        "severity": "page",
        "team": "chat",
    }
    assert chat["status"] == "firing"
    assert office.told(3000) == []


def test_changes_of_a_group_that_fires_wait_for_the_interval(book: AlertBook) -> None:
    office = Office(book)
    office.see(0, ttft=True)
    office.told(30)
    office.see(60, ttft=False, tpot=True)
    assert office.told(329) == []
    (body,) = office.told(330)
    assert statuses(body) == {"tpot": "firing", "ttft": "resolved"}
    assert [alert["status"] for alert in body["alerts"]] == ["firing", "resolved"]
    office.see(400, tpot=False)
    (body,) = office.told(630)
    assert (body["status"], statuses(body)) == ("resolved", {"tpot": "resolved"})
    # The group has ended: what is new waits for `wait` alone.
    office.see(640, ttft=True)
    assert office.told(669) == []
    assert len(office.told(670)) == 1


def test_what_fired_and_ended_while_it_waited_is_told_once(book: AlertBook) -> None:
    office = Office(book)
    office.see(0, ttft=True)
    office.see(10, ttft=False)
    (body,) = office.told(30)
    assert (body["status"], statuses(body)) == ("resolved", {"ttft": "resolved"})
    assert office.told(10_000) == []


def test_a_group_that_fires_is_repeated_until_somebody_takes_it_on(book: AlertBook) -> None:
    office = Office(book)
    office.see(0, ttft=True)
    office.told(30)
    assert office.told(3629) == []
    (again,) = office.told(3630)
    assert statuses(again) == {"ttft": "firing"}
    assert office.told(3700) == []
    (alert,) = book.alerts()
    book.add_silence(Silence("s", "ttft", NOW, NOW + 7300 * S, ""))
    assert office.told(7240) == []
    assert len(office.told(7300)) == 1
    book.acknowledge(alert.alert_id, "ann", "", NOW)
    assert office.told(20_000) == []


def test_a_group_collects_while_its_last_notification_is_being_tried(book: AlertBook) -> None:
    office = Office(book)
    office.see(0, ttft=True)
    Grouper(book).flush({BY_TEAM.name: BY_TEAM}, NOW + 30 * S)
    office.see(40, ttft=False)
    assert Grouper(book).flush({BY_TEAM.name: BY_TEAM}, NOW + 9000 * S) == 0
    (notification,) = office.deliver(NOW + 9000 * S)
    assert notification.notification_id.startswith("group")
    (body,) = office.told(9001)
    assert statuses(body) == {"ttft": "resolved"}


def test_a_flush_that_is_cut_off_is_made_again(book: AlertBook) -> None:
    office = Office(book)
    office.see(0, ttft=True)
    book.connection.exec_driver_sql(
        "CREATE TRIGGER crash BEFORE UPDATE ON group_members BEGIN SELECT RAISE(ABORT, 'kill'); END"
    )
    with pytest.raises(Exception, match="kill"):
        office.told(30)
    assert book.count_by_state()["waiting"] == 0
    book.connection.exec_driver_sql("DROP TRIGGER crash")
    assert len(office.told(31)) == 1
    assert office.told(32) == []


def test_a_muted_receivers_groups_wait(book: AlertBook) -> None:
    always = MuteTime(tuple(range(7)), time(0), time(0), ZoneInfo("UTC"))
    office = Office(book, replace(BY_TEAM, mute_times=(always,)))
    office.see(0, ttft=True)
    office.see(3600, ttft=False, tpot=True)
    assert office.told(7200) == []
    office.receivers = (BY_TEAM,)
    (body,) = office.told(7201)
    assert statuses(body) == {"tpot": "firing", "ttft": "resolved"}


def test_a_receiver_that_left_the_file_keeps_nothing_back(book: AlertBook) -> None:
    office = Office(book)
    office.see(0, ttft=True)
    office.receivers = (Receiver("other", "http://127.0.0.1:1/"),)
    assert len(office.told(0)) == 1


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(replace(BY_TEAM, group=None), id="no groups any more"),
        pytest.param(replace(BY_TEAM, group=AlertGrouping(("slo",))), id="other groups"),
    ],
)
def test_a_group_that_left_the_file_is_not_repeated_for_ever(
    book: AlertBook, changed: Receiver
) -> None:
    office = Office(book)
    office.see(0, ttft=True)
    office.told(30)
    office.receivers = (changed,)
    assert office.told(50_000) == []
    office.see(50_001, ttft=False)
    (body,) = office.told(50_002)
    assert statuses(body) == {"ttft": "resolved"}
    assert office.told(90_000) == []


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(replace(BY_TEAM, group=None), id="no groups any more"),
        pytest.param(replace(BY_TEAM, group=AlertGrouping(("slo",))), id="other groups"),
        pytest.param(replace(BY_TEAM, name="other"), id="another name"),
    ],
)
def test_a_group_that_left_the_file_is_tried_until_its_alerts_have_ended(
    book: AlertBook, changed: Receiver
) -> None:
    office = Office(book)
    outbox = book
    office.see(0, ttft=True)
    office.grouper.flush({"on-call": BY_TEAM}, NOW + 30 * S)
    (waiting,) = outbox.due(NOW + 30 * S)
    office.receivers = (changed,)
    for second in (40, 4000, 90_000):
        office.grouper.flush({changed.name: changed}, NOW + second * S)
        outbox.mark_failed(waiting.number, "answered 503", NOW, NOW + second * S)
        assert outbox.overdue("on-call", NOW + second * S) == []
    office.see(90_001, ttft=False)
    office.grouper.flush({changed.name: changed}, NOW + 90_002 * S)
    # At once: the end has its own notification, which may be delivered first.
    assert len(outbox.overdue("on-call", NOW + 90_002 * S)) == 1
    outbox.give_up(waiting, NOW + 90_002 * S)
    office.grouper.flush({changed.name: changed}, NOW + 91_001 * S)
    assert office.grouper.flush({"on-call": BY_TEAM}, NOW + 180_000 * S) == 0


PAGER = replace(BY_TEAM, type=ReceiverType.PAGERDUTY)


def incidents(told: list[Notification]) -> list[tuple[str, str]]:
    return [(notification.alert_id, notification.status) for notification in told]


def flushed(office: Office, second: int) -> list[tuple[str, str]]:
    """Flush, and return which incidents are then opened and closed."""
    now_ns = NOW + second * S
    office.grouper.flush({receiver.name: receiver for receiver in office.receivers}, now_ns)
    return incidents(office.deliver(now_ns))


def test_an_incident_of_a_group_that_left_the_file_is_closed_and_another_opened(
    book: AlertBook,
) -> None:
    office = Office(book, PAGER)
    told = partial(flushed, office)
    office.see(0, ttft=True)
    ((before, _),) = told(30)
    office.receivers = (replace(PAGER, group=AlertGrouping(("slo",))),)
    assert told(60) == [(before, "resolved")]
    ((after, status),) = told(61)
    assert (after != before, status) == (True, "firing")
    office.see(70, ttft=False)
    assert told(400) == [(after, "resolved")]
    assert told(90_000) == []


def test_an_incident_of_a_receiver_without_groups_by_now_is_closed_with_its_last_alert(
    book: AlertBook,
) -> None:
    office = Office(book, PAGER)
    told = partial(flushed, office)
    office.see(0, ttft=True, tpot=True)
    ((before, _),) = told(30)
    office.receivers = (replace(PAGER, group=None),)
    office.see(60, ttft=False, tpot=True)
    assert before not in dict(told(61))
    office.see(70, ttft=False, tpot=False)
    assert (before, "resolved") in told(71)
    assert told(90_000) == []


def test_an_incident_of_an_alert_alone_is_closed_when_its_receiver_gets_groups(
    book: AlertBook,
) -> None:
    office = Office(book, replace(PAGER, group=None))

    def told(second: int) -> list[tuple[str, str]]:
        now_ns = NOW + second * S
        office.engine.repeat(office.receivers, now_ns)
        office.grouper.flush({r.name: r for r in office.receivers}, now_ns)
        return incidents(office.deliver(now_ns))

    office.see(0, ttft=True)
    ((alone, _),) = told(1)
    office.receivers = (PAGER,)
    assert told(60) == [(alone, "resolved")]
    ((of_group, status),) = told(90)
    assert (of_group != alone, status) == (True, "firing")
    assert told(100) == []
    office.see(110, ttft=False)
    assert told(400) == [(of_group, "resolved")]
    assert told(90_000) == []


@pytest.mark.parametrize("continues", [False, True])
def test_an_incident_of_an_alert_alone_is_closed_when_a_route_groups_it(
    book: AlertBook, continues: bool
) -> None:
    alone = replace(PAGER, group=None)
    office = Office(book, alone)
    office.see(0, ttft=True)
    office.engine.repeat(office.receivers, NOW + S)
    ((incident, _),) = incidents(office.deliver(NOW + S))
    grouped, matchers = f"{PAGER.name} [by team]", parse_matchers(['team="chat"'])
    tree = Route(PAGER.name, (), False, (Route(grouped, matchers, continues), Route(PAGER.name)))
    office.receivers = (
        replace(alone, route=tree),
        replace(PAGER, name=grouped, base=PAGER.name, route=tree),
    )
    now_ns = NOW + 60 * S
    office.engine.repeat(office.receivers, now_ns)
    office.grouper.flush({r.name: r for r in office.receivers}, now_ns)
    # Where it is still told of the alert alone, the incident stays.
    closed = [] if continues else [(incident, "resolved")]
    assert incidents(office.deliver(now_ns)) == closed


def test_an_incident_is_closed_though_its_last_repetition_was_withdrawn(book: AlertBook) -> None:
    office = Office(book, PAGER)

    def flush(second: int) -> None:
        office.grouper.flush({r.name: r for r in office.receivers}, NOW + second * S)

    office.see(0, ttft=True)
    flush(30)
    ((before, _),) = incidents(office.deliver(NOW + 30 * S))
    flush(3700)
    (repetition,) = book.due(NOW + 3700 * S)
    book.mark_failed(repetition.number, "down", NOW + 3701 * S, NOW + 3700 * S)
    (firing,) = book.alerts()
    book.acknowledge(firing.alert_id, "ann", "", NOW + 3702 * S)
    office.receivers = (replace(PAGER, group=AlertGrouping(("slo",))),)
    flush(3703)
    assert [book.give_up(n, NOW + 3704 * S) for n in book.overdue("on-call", NOW + 3704 * S)] == [
        "withdrawn"
    ]
    flush(3705)
    assert incidents(office.deliver(NOW + 3705 * S)) == [(before, "resolved")]


def test_without_ends_a_group_that_left_the_file_opens_no_second_incident(book: AlertBook) -> None:
    pager = replace(PAGER, sends_resolved=False)
    office = Office(book, pager)
    office.see(0, ttft=True)
    assert len(office.told(30)) == 1
    office.receivers = (replace(pager, group=AlertGrouping(("slo",))),)
    assert [office.told(second) for second in (60, 61, 400)] == [[], [], []]


def test_an_end_that_was_told_beside_a_firing_is_not_withdrawn_with_it(book: AlertBook) -> None:
    """The receiver was down from then until well after the whole group had ended."""
    office = Office(book)
    office.see(0, ttft=True)
    assert len(office.told(30)) == 1
    office.see(400, ttft=False, tpot=True)
    office.grouper.flush({"on-call": BY_TEAM}, NOW + 431 * S)
    office.see(500, ttft=False, tpot=False)
    office.grouper.flush({"on-call": BY_TEAM}, NOW + 501 * S)
    outbox = book
    for notification in outbox.overdue("on-call", NOW + 20_000 * S):
        outbox.give_up(notification, NOW + 20_000 * S)
    told = [statuses(body) for second in (20_000, 20_001, 21_000) for body in office.told(second)]
    assert told == [{"ttft": "resolved", "tpot": "firing"}, {"tpot": "resolved"}]


def test_what_waits_in_groups_is_counted(book: AlertBook) -> None:
    office = Office(book)
    office.see(0, ttft=True, tpot=True)
    assert office.grouper.num_pending() == 2
    office.told(30)
    assert office.grouper.num_pending() == 0


def test_a_large_group_is_cut_and_counted(book: AlertBook) -> None:
    office = Office(book)
    office.see(0, **{f"slo-{i:03d}": True for i in range(130)})
    (body,) = office.told(30)
    assert (len(body["alerts"]), body["truncatedAlerts"]) == (100, 30)


def test_each_receiver_groups_as_it_wants(book: AlertBook) -> None:
    alone = Receiver("log", "http://127.0.0.1:2/")
    office = Office(book, BY_TEAM, alone)
    office.see(0, ttft=True, tpot=True)
    assert [body["receiver"] for body in office.told(0)] == ["log", "log"]
    assert [body["receiver"] for body in office.told(30)] == ["on-call"]
