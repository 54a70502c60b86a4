"""The alert about a receiver that takes no notifications, and books of before."""

from dataclasses import replace
from datetime import time
from pathlib import Path
from zoneinfo import ZoneInfo

from evenkeel.slo.mute_time import MuteTime
from evenkeel.slo.receiver import Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.delivery_health import (
    FAILING_AFTER_NS,
    delivery_conditions,
    delivery_key,
)
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.alerts.state import Condition, Delays, State
from evenkeel_collector.operators.alert_list import listing_json, listing_text, read_listing

S = 10**9
NOW = 1_795_168_800 * S
A, B = Receiver("a", "http://127.0.0.1:1/"), Receiver("b", "http://127.0.0.1:2/")
CHAT = Condition("chat", "page", True, Delays(), {"slo": "chat"}, {}, dict)


class Office:
    """An engine that also looks at deliveries; receivers `refuse` or take what they are owed."""

    def __init__(self, book: AlertBook, *receivers: Receiver) -> None:
        self.book, self.receivers, self.outbox = book, receivers, book
        self.engine = AlertEngine(book)

    def cycle(self, second: int, *conditions: Condition) -> list[str]:
        now_ns = NOW + second * S
        found = [*conditions, *delivery_conditions(self.book, self.receivers, now_ns)]
        changes = self.engine.observe(found, self.receivers, now_ns)
        return [f"{change.slo} {change.state}" for change in changes]

    def send(self, second: int, *refusing: str, error: str = "answered 401") -> list[Notification]:
        """Attempt what is due once; return what was accepted."""
        now_ns, accepted = NOW + second * S, []
        for notification in self.outbox.due(2**62):
            if notification.receiver in refusing:
                self.outbox.mark_failed(notification.number, error, now_ns, now_ns, is_refused=True)
            else:
                self.outbox.mark_delivered(notification.number, now_ns)
                accepted.append(notification)
        return accepted


def test_a_refusal_is_told_through_the_others_until_deliveries_work(book: AlertBook) -> None:
    office = Office(book, A, B)
    office.cycle(0, CHAT)
    assert [x.receiver for x in office.send(1, "a")] == ["b"]
    assert office.cycle(10) == ["delivery/a firing"]
    (told,) = office.send(11, "a")
    assert told.receiver == "b"
    alert = told.alerts[0]
    assert alert.labels["alertname"] == "SloDeliveryFailing"
    assert alert.labels["receiver"] == "a"
    assert alert.annotations["summary"] == "receiver a does not accept notifications: answered 401"
    assert office.cycle(20) == []
    assert [x.receiver for x in office.send(21)] == ["a"]
    assert office.cycle(30) == ["delivery/a resolved"]
    assert [(x.receiver, x.status) for x in office.send(31)] == [("b", "resolved")]


def test_one_who_wants_tickets_alone_hears_of_it_too(book: AlertBook) -> None:
    tickets = Receiver("b", "http://127.0.0.1:2/", severities=("ticket",))
    office = Office(book, A, tickets)
    office.cycle(0, CHAT)
    office.send(1, "a")
    office.cycle(10)
    assert [x.receiver for x in office.send(11, "a")] == ["b"]


def test_there_is_one_alert_a_receiver_when_all_of_them_fail(book: AlertBook) -> None:
    office = Office(book, A, B)
    changes = []
    for second in range(0, 7200, 30):
        changes += office.cycle(second, CHAT)
        office.send(second + 1, "a", "b")
    assert changes == ["chat firing", "delivery/a firing", "delivery/b firing"]
    assert book.count_by_state()["waiting"] == 4
    for second in range(7200, 7300, 30):
        office.send(second)
        changes += office.cycle(second, CHAT)
    assert sorted(changes[3:]) == ["delivery/a resolved", "delivery/b resolved"]


def test_a_new_page_goes_before_what_is_retried(book: AlertBook) -> None:
    """Many pages that are refused, and retried every minute, would take all of its time."""
    office = Office(book, A)
    old = [replace(CHAT, slo=f"old-{i}", labels={"slo": f"old-{i}"}) for i in range(8)]
    office.cycle(0, *old)
    office.send(1, "a")
    office.cycle(2, *old, CHAT)
    first, *others = book.due(NOW + 3 * S, limit=8, receiver="a")
    assert first.alerts[0].labels == {"slo": "chat"}
    assert [n.alerts[0].labels["slo"] for n in others] == [f"old-{i}" for i in range(7)]


def test_an_outage_counts_after_ten_minutes(book: AlertBook) -> None:
    office = Office(book, A, B)
    office.cycle(0, CHAT)
    (to_a, to_b) = book.due(NOW)
    book.mark_delivered(to_b.number, NOW)
    book.mark_failed(to_a.number, "answered 503", NOW, NOW)
    before = FAILING_AFTER_NS // S - 1
    assert office.cycle(before) == []
    assert office.cycle(before + 1) == ["delivery/a firing"]


def test_a_page_that_waits_untried_is_no_failure(book: AlertBook) -> None:
    """A muted receiver's, for one."""
    office = Office(book, A, B)
    office.cycle(0, CHAT)
    assert office.cycle(86400) == []


def test_a_resolution_that_was_given_up_keeps_it_firing_until_something_gets_through(
    book: AlertBook,
) -> None:
    office = Office(book, A)
    office.cycle(0, CHAT)
    office.send(1)
    over = Condition("chat", "page", False, Delays(), {"slo": "chat"}, {}, dict)
    office.cycle(10, over)
    office.send(11, "a")
    office.cycle(20)
    office.send(86499, "a")
    (notification,) = book.overdue("a", 2**62)
    book.give_up(notification, NOW + 86500 * S)
    assert office.cycle(86501) == []
    office.cycle(86510, CHAT)
    office.send(86511)
    assert office.cycle(86520) == ["delivery/a resolved"]


def test_a_dead_letter_does_not_keep_it_firing_because_of_one_recipient(book: AlertBook) -> None:
    """One who is refused for good: every e-mail since is delivered to the others."""
    office = Office(book, A)
    office.cycle(0, CHAT)
    office.send(1)
    office.cycle(10, replace(CHAT, holds=False))
    (end,) = office.book.due(2**62)
    office.send(11, "a")
    assert office.cycle(12) == ["delivery/a firing"]
    book.give_up(end, NOW + 13 * S)
    office.cycle(20, CHAT)
    (page,) = office.book.due(2**62)
    book.mark_delivered(page.number, NOW + 21 * S, error="recipients refused: b@x.test (550)")
    assert office.cycle(22) == []
    assert office.cycle(3600) == []
    assert office.cycle(3622) == ["delivery/a resolved"]


def test_a_receiver_that_left_the_file_ends_its_alert(book: AlertBook) -> None:
    office = Office(book, A, B)
    office.cycle(0, CHAT)
    office.send(1, "a")
    office.cycle(10)
    office.engine.resolve_absent({("chat", "page"), delivery_key("b")}, [B], NOW + 20 * S)
    assert office.engine.alerts[delivery_key("a")].life.state is State.RESOLVED


def test_a_receiver_that_is_muted_is_not_failing(book: AlertBook) -> None:
    """Nothing is tried again before the span ends, at 12:00; NOW is 10:00."""
    every_day = tuple(range(7))
    muted = MuteTime(every_day, time(10, 5), time(12), ZoneInfo("UTC"))
    office = Office(book, replace(A, mute_times=(muted,)), B)
    office.cycle(290, CHAT)
    for notification in book.due(2**62, receiver="a"):
        book.mark_failed(notification.number, "answered 503", NOW + 300 * S, NOW + 295 * S)
    end = 7200
    for second in (3600, end - 1, end, end + 50):
        assert office.cycle(second) == [], second
    assert office.cycle(end + 61) == ["delivery/a firing"]
    # What fires is not taken for over meanwhile.
    assert office.cycle(86400 + 3600) == []


def test_the_listing_names_a_receiver_that_has_not_accepted_anything_yet(
    book: AlertBook, tmp_path: Path
) -> None:
    """Long before it alerts: "none failed" would say that somebody was notified."""
    office = Office(book, A, B)
    office.cycle(0, CHAT)
    for notification in book.due(2**62):
        if notification.receiver == "a":
            book.mark_failed(notification.number, "ConnectError", NOW + S, NOW + S)
        else:
            book.mark_delivered(notification.number, NOW + S)
    listing = read_listing(tmp_path / "alerts.db", 10, NOW + 2 * S)
    assert listing_json(listing)["failing"] == [
        {
            "receiver": "a",
            "undelivered": 1,
            "since": "2026-11-20T10:00:00.000Z",
            "error": "ConnectError",
        }
    ]
    said = (
        "a does not accept notifications: 1 undelivered, the oldest since 2026-11-20T10:00:00.000Z"
    )
    assert f"{said}: ConnectError" in listing_text(listing)
    office.send(3)
    assert not read_listing(tmp_path / "alerts.db", 10, NOW + 4 * S).failing


def test_the_listing_names_no_receiver_for_dead_letters_alone(
    book: AlertBook, tmp_path: Path
) -> None:
    """They are listed themselves, and a removed receiver would be named forever."""
    office = Office(book, A, B)
    office.cycle(0, CHAT)
    office.send(1, "a")
    assert set(read_listing(tmp_path / "alerts.db", 10, NOW + 2 * S).failing) == {"a"}
    for notification in book.due(2**62, receiver="a"):
        book.mark_dead(notification.number, "the SLO file no longer has this receiver", NOW + S)
    listing = read_listing(tmp_path / "alerts.db", 10, NOW + 2 * S)
    assert book.failing(NOW + 2 * S, 0) and not listing.failing
    assert [letter.receiver for letter in listing.dead_letters] == ["a"]
