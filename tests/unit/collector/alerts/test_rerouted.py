"""A receiver that was told of a firing is told of its end, wherever the alert goes by then."""

from collections.abc import Sequence
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
OPS = Receiver("ops", "http://127.0.0.1:1/", repeat_s=Fraction(3600))
CREW = Receiver("crew", "http://127.0.0.1:2/")
NO_PAGES = replace(OPS, severities=("ticket",))
GROUP = AlertGrouping(("slo",))
CHAT = Condition("chat", "page", True, Delays(), {"slo": "chat", "severity": "page"}, {}, dict)


def cycle(
    book: AlertBook, second: int, *receivers: Receiver, holds: bool = True, slo: str = "chat"
) -> list[str]:
    """Evaluate after a restart and deliver; return who was told, each by its status."""
    now_ns = NOW + second * S
    engine = AlertEngine(book)
    engine.observe([replace(CHAT, slo=slo, holds=holds)], receivers, now_ns)
    engine.repeat(receivers, now_ns)
    Grouper(book).flush({receiver.name: receiver for receiver in receivers}, now_ns)
    notifications = book.due(now_ns)
    for notification in notifications:
        book.mark_delivered(notification.number, now_ns)
    return sorted(f"{each.receiver} {each.status}" for each in notifications)


VARIANT = replace(OPS, name="ops [repeat 2h]", base="ops")
CASES = [
    ("it wants no pages any more", [OPS], [NO_PAGES], ["ops resolved"]),
    ("others get them", [OPS], [NO_PAGES, CREW], ["crew resolved", "ops resolved"]),
    ("nothing changed", [OPS, CREW], [OPS, CREW], ["crew resolved", "ops resolved"]),
    ("it left the file", [OPS, CREW], [CREW], ["crew resolved"]),
    ("it wants no ends", [OPS], [replace(NO_PAGES, sends_resolved=False)], []),
    ("it has other options", [VARIANT], [NO_PAGES], ["ops resolved"]),
    ("one of its two options", [OPS], [NO_PAGES, VARIANT], ["ops [repeat 2h] resolved"]),
    (
        "it groups them",
        [replace(OPS, group=GROUP)],
        [replace(NO_PAGES, group=GROUP)],
        ["ops resolved"],
    ),
    ("its group is gone, too", [replace(OPS, group=GROUP)], [NO_PAGES], ["ops resolved"]),
    (
        "a group of another of its options",
        [replace(OPS, group=GROUP)],
        [replace(NO_PAGES, group=GROUP), VARIANT],
        ["ops [repeat 2h] resolved", "ops resolved"],
    ),
]


@pytest.mark.parametrize(
    ("before", "after", "told"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_who_was_told_of_a_firing_is_told_of_its_end(
    book: AlertBook, before: Sequence[Receiver], after: Sequence[Receiver], told: list[str]
) -> None:
    assert cycle(book, 0, *before) == sorted(f"{each.name} firing" for each in before)
    cycle(book, 60, *after)
    assert cycle(book, 120, *after, holds=False) == told
    # And never again, whatever repeats.
    assert [cycle(book, hour * 3600, *after, holds=False) for hour in range(1, 9)] == [[]] * 8


def test_who_was_not_told_of_a_firing_is_not_told_of_its_end(book: AlertBook) -> None:
    book.add_silence(Silence("s", "chat", 0, NOW + 100 * S, ""))
    assert cycle(book, 0, OPS) == []
    assert cycle(book, 101, NO_PAGES, CREW) == ["crew firing"]
    assert cycle(book, 120, NO_PAGES, CREW, holds=False) == ["crew resolved"]


def test_what_a_group_had_still_to_tell_does_not_come_after_the_end(book: AlertBook) -> None:
    waits = replace(OPS, group=AlertGrouping(("slo",), Fraction(30)))
    assert cycle(book, 0, waits) == []
    assert cycle(book, 10, OPS, holds=False) == ["ops resolved"]
    assert [cycle(book, second, OPS, holds=False) for second in (20, 60, 4000)] == [[], [], []]


BY_SEVERITY = replace(OPS, group=AlertGrouping(("severity",)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (replace(OPS, group=GROUP), BY_SEVERITY),
        (replace(OPS, group=GROUP), OPS),
        (OPS, BY_SEVERITY),
    ],
    ids=["other groups", "no groups", "groups at last"],
)
def test_what_fires_is_repeated_also_after_its_receiver_got_other_groups(
    book: AlertBook, before: Receiver, after: Receiver
) -> None:
    assert cycle(book, 0, before) == ["ops firing"]
    assert [cycle(book, second, after) for second in (60, 61, 3500)] == [[], [], []]
    assert [cycle(book, second, after) for second in (3700, 3701)] == [["ops firing"], []]
    assert cycle(book, 7400, after) == ["ops firing"]
    assert cycle(book, 7500, after, holds=False) == ["ops resolved"]
    assert [cycle(book, second, after, holds=False) for second in (7600, 20000)] == [[], []]
