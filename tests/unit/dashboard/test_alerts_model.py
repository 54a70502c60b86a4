"""What the alerts page says of alerts."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.alerts_model import Bar, delivery_words, evidence, headline, lasts_s, links, timeline
from dashboard.selection import Window

WINDOW = Window(1_000_000, 2_000_000, 10)


def alert(**fields: Any) -> dict[str, Any]:
    return {
        "slo": "s", "severity": "page", "state": "firing", "started_ms": 500_000,
        "fired_ms": 1_200_000, "ended_ms": None, "was_silenced": False,
    } | fields  # fmt: skip


@pytest.mark.parametrize(
    ("alerts", "expected"),
    [
        pytest.param([], ("good", "Nothing fires"), id="nothing"),
        pytest.param([alert()], ("bad", "1 page fires"), id="a page"),
        pytest.param([alert(severity="ticket")], ("warning", "1 ticket fires"), id="a ticket"),
        pytest.param(
            [alert(), alert(), alert(severity="ticket")],
            ("bad", "2 pages and 1 ticket fire"),
            id="both",
        ),
        pytest.param([alert(state="pending")], ("warning", "1 pending"), id="pending"),
        pytest.param([alert(state="resolved")], ("good", "Nothing fires"), id="over"),
    ],
)
def test_the_headline_counts_what_fires(
    alerts: list[dict[str, Any]], expected: tuple[str, str]
) -> None:
    assert headline(alerts) == expected


def test_the_timeline_is_cut_to_the_window() -> None:
    bars = timeline([alert(was_silenced=True)], WINDOW)
    assert bars == [
        Bar("s · page", "pending", 1_000_000, 1_200_000, True),
        Bar("s · page", "firing", 1_200_000, 2_000_000, True),
    ]
    assert timeline([alert(fired_ms=None, ended_ms=900_000)], WINDOW) == []


def test_evidence_has_what_is_known_first_and_nothing_twice() -> None:
    annotations = {"zebra_count": "3", "top_cause": "queue", "summary": "x", "link": "https://a"}
    assert evidence(annotations) == [("top cause", "queue"), ("zebra count", "3")]
    assert links({"runbook_url": "https://a", "x_url": "javascript:alert(1)"}) == [
        ("runbook", "https://a")
    ]


def test_deliveries_and_silences_in_words() -> None:
    assert (
        delivery_words({"delivered": 3, "waiting": 1}) == "3 delivered, 1 on their way, none dead"
    )
    assert delivery_words({"dead": 2}) == "0 delivered, 0 on their way, 2 dead"
    assert lasts_s("1970-01-01T00:01:00Z", 30_000) == 30
    assert lasts_s("never", 0) is None
