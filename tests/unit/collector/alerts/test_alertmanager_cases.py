"""Alertmanager's acceptance cases as timelines; docs/guide/alerts.md says which hold."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import time
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from evenkeel.slo.matchers import parse_matchers
from evenkeel.slo.mute_time import MuteTime
from evenkeel.slo.receiver import AlertGrouping, Receiver
from evenkeel.slo.routing import InhibitRule, Maintenance
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.groups import Grouper
from evenkeel_collector.alerts.silence import Silence
from evenkeel_collector.alerts.state import Condition, Delays

S = 10**9
TOGETHER = AlertGrouping((), Fraction(1), Fraction(1))
ALONE = Receiver("default", "http://127.0.0.1:1/")
DEFAULT = replace(ALONE, group=TOGETHER)
Told = list[tuple[str, str]]


class Timeline:
    """An engine, its groups and its outbox, stepped by hand.

    Receivers accept at once, but for those in `failing`, which are asked again in a second.
    """

    def __init__(self, book: AlertBook, *receivers: Receiver) -> None:
        self.book, self.receivers = book, receivers
        self.engine = AlertEngine(book)
        self.failing: set[str] = set()
        self.attempts: list[tuple[str, str]] = []
        self._known: dict[str, Mapping[str, str]] = {}

    def at(self, seconds: float, firing: Mapping[str, Mapping[str, str]]) -> dict[str, Told]:
        """Evaluate; return what each receiver is told: (alert, status), in order."""
        now_ns = int(seconds * S)
        self._known |= firing
        conditions = [
            Condition(name, "page", name in firing, Delays(), {**labels, "slo": name}, {}, dict)
            for name, labels in self._known.items()
        ]
        self.engine.observe(conditions, self.receivers, now_ns)
        self.engine.repeat(self.receivers, now_ns)
        Grouper(self.book).flush({r.name: r for r in self.receivers}, now_ns)
        told: dict[str, Told] = {}
        outbox = self.book
        # As its queue has it: nothing goes to a receiver while it is muted.
        muted = {r.name for r in self.receivers if r.is_muted(now_ns)}
        while due := [each for each in outbox.due(now_ns) if each.receiver not in muted]:
            for notification in due:
                self.attempts.append((notification.receiver, notification.notification_id))
                if notification.receiver in self.failing:
                    outbox.mark_failed(notification.number, "503", now_ns + S, now_ns)
                    continue
                told.setdefault(notification.receiver, []).extend(
                    (alert.labels["slo"], alert.status) for alert in notification.alerts
                )
                outbox.mark_delivered(notification.number, now_ns)
        return {name: sorted(alerts) for name, alerts in told.items()}


def named(*names: str, **labels: str) -> dict[str, dict[str, str]]:
    return {name: labels for name in names}


def test_batching_and_merging(book: AlertBook) -> None:
    line = Timeline(book, replace(DEFAULT, repeat_s=Fraction(5)))
    assert line.at(1.1, named("1")) == {}
    assert line.at(1.7, named("1", "5")) == {}
    assert line.at(2.1, named("1", "5")) == {"default": [("1", "firing"), ("5", "firing")]}
    everything = named("1", "2", "3", "5")
    assert line.at(3.0, everything) == {}
    assert line.at(4.1, everything) == {"default": [(name, "firing") for name in everything]}
    assert line.at(9.0, everything) == {}
    assert line.at(9.2, everything) == {"default": [(name, "firing") for name in everything]}


def test_repeat_then_resolved(book: AlertBook) -> None:
    line = Timeline(book, replace(DEFAULT, repeat_s=Fraction(1)))
    line.at(1, named("a"))
    assert line.at(2, named("a")) == {"default": [("a", "firing")]}
    assert line.at(3, named("a")) == {"default": [("a", "firing")]}
    # A change waits for `wait` in a group that has been told of, too.
    assert line.at(4, {}) == {}
    assert line.at(5, {}) == {"default": [("a", "resolved")]}
    assert line.at(99, {}) == {}


@pytest.mark.parametrize("group", [None, AlertGrouping(("team",), Fraction(1), Fraction(1))])
def test_a_receiver_that_wants_no_resolved(book: AlertBook, group: AlertGrouping | None) -> None:
    both = replace(ALONE, name="both", group=group)
    quiet = replace(both, name="quiet", sends_resolved=False, repeat_s=Fraction(50))
    line = Timeline(book, both, quiet)
    told = [line.at(second, named("a", "b") if second < 5 else {}) for second in range(1, 99, 2)]
    heard = {name: [a for step in told for a in step.get(name, [])] for name in ("both", "quiet")}
    firing = [("a", "firing"), ("b", "firing")]
    assert heard["quiet"] == firing
    assert heard["both"] == [*firing, ("a", "resolved"), ("b", "resolved")]
    # It fires again: that is told anew.
    again = [line.at(second, named("a")) for second in (200, 202)]
    assert [step["quiet"] for step in again if "quiet" in step] == [[("a", "firing")]]


def test_silencing_from_a_moment_to_a_moment(book: AlertBook) -> None:
    line = Timeline(book, replace(ALONE, repeat_s=Fraction(1)))
    both = named("test1", "test2")
    assert line.at(1, both) == {"default": [("test1", "firing"), ("test2", "firing")]}
    matchers = parse_matchers('slo=~"test1"')
    book.add_silence(Silence("s", "", int(2.5 * S), int(4.5 * S), "", matchers))
    assert line.at(2, both) == {"default": [("test1", "firing"), ("test2", "firing")]}
    assert line.at(3, both) == {"default": [("test2", "firing")]}
    assert line.at(4, both) == {"default": [("test2", "firing")]}
    assert line.at(5, both) == {"default": [("test1", "firing"), ("test2", "firing")]}


def test_a_silence_ended_early_lets_the_alerts_through(book: AlertBook) -> None:
    line = Timeline(book, ALONE)
    book.add_silence(Silence("s", "", 1, 100 * S, "", parse_matchers('alertname=~".+"')))
    both = named("test1", "test2", alertname="X")
    assert line.at(2, both) == {}
    assert book.end_silence("s", int(3.5 * S))
    assert line.at(4, both) == {"default": [("test1", "firing"), ("test2", "firing")]}


JOB_DOWN = InhibitRule(
    parse_matchers("alertname=JobDown"), parse_matchers("alertname=InstanceDown"), ("job", "zone")
)


def test_inhibiting_by_equal_labels(book: AlertBook) -> None:
    line = Timeline(book, ALONE)
    line.engine.set_inhibitions([JOB_DOWN])
    job = {"job": {"alertname": "JobDown", "job": "j", "zone": "aa"}}
    instances = {
        zone: {"alertname": "InstanceDown", "job": "j", "zone": zone} for zone in ("aa", "ab")
    }
    assert line.at(1, job | instances) == {"default": [("ab", "firing"), ("job", "firing")]}
    assert line.at(2, instances) == {"default": [("job", "resolved")]}
    assert line.at(3, instances) == {"default": [("aa", "firing")]}


def test_always_inhibited_and_ended_together_tells_only_of_the_source(book: AlertBook) -> None:
    line = Timeline(book, ALONE)
    line.engine.set_inhibitions([JOB_DOWN])
    both = {
        "i": {"alertname": "InstanceDown", "job": "j"},
        "j": {"alertname": "JobDown", "job": "j"},
    }
    assert line.at(1, both) == {"default": [("j", "firing")]}
    assert line.at(3, {}) == {"default": [("j", "resolved")]}


def test_what_is_source_and_target_does_not_withhold_itself(book: AlertBook) -> None:
    line = Timeline(book, ALONE)
    rule = InhibitRule(parse_matchers('slo=~".+"'), parse_matchers('slo=~"a|b"'), ())
    line.engine.set_inhibitions([rule])
    assert line.at(1, named("a", "b")) == {"default": [("a", "firing"), ("b", "firing")]}
    line.engine.set_inhibitions([rule])
    assert line.at(2, named("a", "b", "c")) == {"default": [("c", "firing")]}


def test_a_maintenance_window_comes_again(book: AlertBook) -> None:
    nightly = MuteTime((3,), time(0), time(1), ZoneInfo("UTC"))
    window = Maintenance(parse_matchers("team=a"), (nightly,))
    line = Timeline(book, ALONE)
    line.engine.set_inhibitions((), [window])
    # 1 January 1970 was a Thursday.
    alerts: Mapping[str, Mapping[str, str]] = {"x": {"team": "a"}, "y": {"team": "b"}}
    assert line.at(60, alerts) == {"default": [("y", "firing")]}
    assert line.at(3600, alerts) == {"default": [("x", "firing")]}
    line.at(3700, {})
    assert line.at(86_400 + 60, alerts) == {"default": [("x", "firing"), ("y", "firing")]}
    line.at(86_400 + 70, {})
    assert line.at(7 * 86_400 + 60, alerts) == {"default": [("y", "firing")]}


def test_a_restart_tells_nothing_twice(book: AlertBook) -> None:
    assert Timeline(book, ALONE).at(1, named("a")) == {"default": [("a", "firing")]}
    assert Timeline(book, ALONE).at(2, named("a")) == {}


def test_retry_is_each_receivers_own(book: AlertBook) -> None:
    line = Timeline(book, replace(ALONE, name="well"), replace(ALONE, name="ill"))
    line.failing = {"ill"}
    assert line.at(1, named("a")) == {"well": [("a", "firing")]}
    assert line.at(2.5, named("a")) == {}
    line.failing = set()
    assert line.at(4, named("a")) == {"ill": [("a", "firing")]}
    # The same notification each time.
    assert len({notification for receiver, notification in line.attempts if receiver == "ill"}) == 1
    assert line.at(9, named("a")) == {}


def test_resolved_comes_once_and_when_the_condition_ends(book: AlertBook) -> None:
    line = Timeline(book, DEFAULT)
    line.at(1, named("a", "b"))
    assert line.at(3, named("a", "b")) == {"default": [("a", "firing"), ("b", "firing")]}
    # No `resolve_timeout`: an alert fires for as long as its condition holds.
    assert line.at(3600, named("a", "b")) == {}
    line.at(3700, named("b"))
    assert line.at(3702, named("b")) == {"default": [("a", "resolved"), ("b", "firing")]}
    line.at(3800, {})
    assert line.at(3802, {}) == {"default": [("b", "resolved")]}
    assert line.at(9999, {}) == {}


def test_reload_keeps_groups_and_tells_new_receivers(book: AlertBook) -> None:
    slow = replace(DEFAULT, group=AlertGrouping((), Fraction(100), Fraction(100)))
    line = Timeline(book, slow)
    assert line.at(1, named("a")) == {}
    # Before the wait was over the file says another one.
    line.receivers = (DEFAULT,)
    assert line.at(2.5, named("a")) == {"default": [("a", "firing")]}
    line.receivers = (DEFAULT, replace(ALONE, name="new"))
    assert line.at(4, named("a")) == {"new": [("a", "firing")]}
    assert line.at(5, named("a")) == {}
    line.at(6, {})
    both = {"default": [("a", "resolved")], "new": [("a", "resolved")]}
    told = [line.at(second, {}) for second in (7, 8, 9)]
    heard = {name: [a for step in told for a in step.get(name, [])] for name in both}
    assert heard["default"] == both["default"]


def test_utf_8_labels_and_values_in_alerts_silences_and_groups(book: AlertBook) -> None:
    line = Timeline(book, replace(DEFAULT, group=AlertGrouping(("Σ",), Fraction(1), Fraction(1))))
    alerts: Mapping[str, Mapping[str, str]] = {
        "a": {"Σ": "🙂", "a\u00a0b": "x"}, "b": {"Σ": "c"},
    }  # fmt: skip
    silence = parse_matchers('{"Σ"="🙂"}')
    book.add_silence(Silence("s", "", 1, int(4.5 * S), "", silence))
    line.at(2, alerts)
    assert line.at(3.5, alerts) == {"default": [("b", "firing")]}
    line.at(5, alerts)
    assert line.at(6.5, alerts) == {"default": [("a", "firing")]}


@pytest.mark.parametrize("group", [None, TOGETHER])
def test_in_a_mute_time_notifications_wait(book: AlertBook, group: AlertGrouping | None) -> None:
    # Until one o'clock on Thursdays, such as 1 January 1970.
    night = MuteTime((3,), time(0), time(1), ZoneInfo("UTC"))
    line = Timeline(book, replace(ALONE, mute_times=(night,), group=group, repeat_s=Fraction(9)))
    for second in (60, 70, 600, 3590):
        assert line.at(second, named("a", "b")) == {}
    told = [line.at(second, named("b")) for second in (3595, 3602, 3604)]
    heard = [alert for step in told for alert in step.get("default", [])]
    assert heard.count(("b", "firing")) == 1
    # The other's end was told as well, behind its beginning if that was.
    assert heard.count(("a", "firing")) <= heard.count(("a", "resolved")) <= 1


def test_dispatch_a_late_alert_joins_the_next_notification(book: AlertBook) -> None:
    """`group_wait` before the first, `group_interval` between, `repeat_interval` without change."""
    grouping = AlertGrouping(("team",), Fraction(10), Fraction(60))
    line = Timeline(book, replace(DEFAULT, group=grouping, repeat_s=Fraction(600)))
    first, second = named("a", team="x"), named("b", team="x")
    assert line.at(0.5, first) == {}
    assert line.at(9, first) == {}
    assert line.at(11, first) == {"default": [("a", "firing")]}
    assert line.at(20, first | second) == {}
    assert line.at(60, first | second) == {}
    assert line.at(72, first | second) == {"default": [("a", "firing"), ("b", "firing")]}
    assert line.at(600, first | second) == {}
    assert line.at(673, first | second) == {"default": [("a", "firing"), ("b", "firing")]}
    # Another team's group has its own times.
    assert line.at(674, first | second | named("c", team="y")) == {}
    late = line.at(685, first | second | named("c", team="y"))
    assert late == {"default": [("c", "firing")]}


@pytest.mark.parametrize("group", [None, TOGETHER])
def test_no_repetition_in_maintenance(book: AlertBook, group: AlertGrouping | None) -> None:
    nightly = MuteTime((3,), time(1), time(2), ZoneInfo("UTC"))
    window = Maintenance(parse_matchers("team=a"), (nightly,))
    line = Timeline(book, replace(ALONE, group=group, repeat_s=Fraction(600)))
    line.engine.set_inhibitions((), [window])
    alerts = named("x", team="a")
    told = [line.at(second, alerts) for second in range(2995, 3595, 5)]
    assert [step for step in told if step] == [{"default": [("x", "firing")]}]
    assert not any(line.at(second, alerts) for second in range(3600, 7200, 60))
    assert line.at(7205, alerts) == {"default": [("x", "firing")]}
