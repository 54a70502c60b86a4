"""The alerts page's headline, timeline and texts."""

import re
from typing import Any

import pytest

from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.pages.alerts.columns import alert_columns, slo_link
from evenkeel_dashboard.pages.alerts.model import (
    Bar,
    advice_on,
    audit_words,
    burn_window,
    delivery_words,
    ended,
    evidence,
    failure_words,
    headline,
    lasts_s,
    letter_words,
    links,
    silenced_alerts,
    silenced_s,
    timeline,
    with_just_fired,
)

WINDOW = Window(1_000_000, 2_000_000, 10)


def alert(**fields: Any) -> dict[str, Any]:
    return {
        "slo": "s", "severity": "page", "state": "firing", "started_ms": 500_000,
        "fired_ms": 1_200_000, "ended_ms": None, "was_silenced": False,
    } | fields  # fmt: skip


def counted(pages: int = 0, tickets: int = 0, pending: int = 0) -> list[dict[str, Any]]:
    """Return an alert with the counts of all, as the query has them."""
    return [alert(num_pages=pages, num_tickets=tickets, num_pending=pending)]


TEN_PAST_THREE_MS = 1_795_576_200_000


@pytest.mark.parametrize(
    ("alerts", "level", "now", "past"),
    [
        pytest.param([], "good", "Nothing is firing", "nothing was firing", id="nothing"),
        pytest.param(counted(1), "bad", "1 page is firing", "1 page was firing", id="a page"),
        pytest.param(
            counted(0, 1), "warning", "1 ticket is firing", "1 ticket was firing", id="a ticket"
        ),
        pytest.param(
            counted(2, 1_400),
            "bad",
            "2 pages and 1,400 tickets are firing",
            "2 pages and 1,400 tickets were firing",
            id="both, more than are shown",
        ),
        pytest.param(counted(pending=2), "warning", "2 pending", "2 were pending", id="pending"),
        pytest.param(counted(), "good", "Nothing is firing", "nothing was firing", id="over"),
    ],
)
def test_the_headline_counts_what_fires(
    alerts: list[dict[str, Any]], level: str, now: str, past: str
) -> None:
    assert headline(alerts) == (level, now)
    at = f"At 2026-11-25 03:10:00 UTC, {past}"
    assert headline(alerts, past_ms=TEN_PAST_THREE_MS) == (level, at)


def kept(slo: str, severity: str, state: str = "firing") -> dict[str, Any]:
    return {
        "slo": slo, "severity": severity, "state": state, "since": "2026-11-25T03:10:00Z",
        "silenced_until": None, "labels": {}, "annotations": {"summary": "burns"},
    }  # fmt: skip


def test_an_alert_that_is_not_stored_yet_is_firing() -> None:
    assert with_just_fired([], [kept("s", "page", "resolved")]) == []
    found = with_just_fired([], [kept("s", "page")])
    assert headline(found) == ("bad", "1 page is firing")
    assert (found[0]["fired_ms"], found[0]["annotations"]) == (
        TEN_PAST_THREE_MS,
        {"summary": "burns"},
    )
    stored = [alert(num_pages=0, num_tickets=0, num_pending=1, num_alerts=1, state="pending")]
    assert headline(with_just_fired(stored, [kept("s", "page")])) == ("bad", "1 page is firing")
    beside = with_just_fired(stored, [kept("s", "ticket")])
    assert [each["state"] for each in beside] == ["firing", "pending"]
    assert headline(beside) == ("warning", "1 ticket is firing")
    firing = [alert(num_pages=1, num_tickets=0, num_pending=0, num_alerts=1)]
    assert with_just_fired(firing, [kept("s", "page")]) == firing
    many = [each | {"num_alerts": 101} for each in firing]
    assert with_just_fired(many, [kept("z", "page")]) == many, "those beyond the limit are counted"


def test_where_nothing_is_watched_nothing_is_no_good_news() -> None:
    assert headline([], is_watched=False) == ("unknown", "No known alerts")
    assert headline(counted(1), is_watched=False)[0] == "bad"


def test_the_timeline_is_cut_to_the_window() -> None:
    bars = timeline([alert(was_silenced=True)], WINDOW)
    assert bars == [
        Bar("s · page", "pending", 1_000_000, 1_200_000, True),
        Bar("s · page", "firing", 1_200_000, 2_000_000, True),
    ]
    assert timeline([alert(fired_ms=None, ended_ms=900_000)], WINDOW) == []


def test_evidence_has_what_is_known_first_and_nothing_twice() -> None:
    annotations = {"zebra_count": "3", "top_cause": "queue", "summary": "x", "link": "https://a"}
    assert evidence(annotations) == {
        "what": [("zebra count", "3")],
        "who": [],
        "why": [("top cause", "queue")],
    }
    assert links({"runbook_url": "https://a", "x_url": "javascript:alert(1)"}) == [
        ("runbook", "https://a")
    ]


def test_the_top_cause_says_what_would_help() -> None:
    advice = advice_on("Waiting for batch capacity (first token): 1.4 s in bad requests")
    assert advice is not None and "--max-num-batched-tokens" in advice.flags
    assert advice_on("queue: 1.4 s on average in bad requests") is None
    assert advice_on("") is None


def test_an_exhausted_budget_is_one_fact() -> None:
    annotations = {"budget_left": "none: 26.6 times the budget is spent", "budget_lasts": "spent"}
    assert evidence(annotations)["what"] == [("budget left", "exhausted, 26.6× spent")]
    left = {"budget_left": "40%", "budget_lasts": "3h at this rate"}
    assert len(evidence(left)["what"]) == 2


def test_the_window_of_an_alert_is_that_of_its_link() -> None:
    link = "http://h:1/slo?slo=s&from=2026-01-01T00%3A00Z&to=2026-01-01T01%3A00Z"
    assert burn_window({"dashboard": link}) == {
        "from": "2026-01-01T00:00Z",
        "to": "2026-01-01T01:00Z",
    }
    assert burn_window({}) == {}


def test_an_alert_says_what_who_why_and_what_to_do() -> None:
    annotations = {
        "bad_requests": "3 of 9",
        "worst_cohorts": "tenant <b>",
        "top_cause": "Waiting for batch capacity: 2 s in bad requests",
        "exemplars": "req-1 http://x\nreq-2 http://x",
        "runbook_url": "https://wiki/run",
        "dashboard": "http://h:1/slo?from=2026-01-01T00%3A00Z&to=2026-01-01T01%3A00Z",
    }
    html = alert_columns(annotations, "./slo?slo=s", {"tz": "local"})
    assert re.findall("<h4>(\\w+)</h4>", html) == ["What", "Who", "Why", "Do"]
    assert (
        '<a href="./request?request_id=req-1&amp;tz=local" target="_self">Waiting for batch' in html
    ), "the top cause leads to the worst example"
    assert "tenant &lt;b&gt;" in html
    assert 'href="./engine?tz=local&amp;from=2026-01-01T00%3A00Z&amp;to=' in html
    assert 'href="https://wiki/run"' in html
    assert "http://h:1" not in html, "no link to the page one is on"


def test_an_anomaly_says_what_would_help_and_leads_to_its_requests() -> None:
    annotations = {
        "summary": "Prompts are longer than usual",
        "usual": "the highest of the 2h before",
        "what_helps": "Open the longest <prompts>.",
        "explore": "/explore?from=2026-01-01T00%3A00Z&model=m&order=input&min_input_tokens=400",
    }
    html = alert_columns(annotations, "./slo?slo=s", {})
    assert "What would help: Open the longest &lt;prompts&gt;." in html
    href = "./explore?from=2026-01-01T00%3A00Z&amp;model=m&amp;order=input&amp;min_input_tokens=400"
    assert f'<a href="{href}" target="_self">See these requests</a>' in html
    assert "spent the budget" not in html, "a rule has no budget"


@pytest.mark.parametrize(
    ("alertname", "href"),
    [("SloBudgetBurn", "./slo?slo=chat&tz=local"), ("RequestRule", ""), ("Anomaly", "")],
)
def test_only_an_alert_of_an_slo_leads_to_one(alertname: str, href: str) -> None:
    raised = alert(slo="chat", alertname=alertname)
    assert slo_link(raised, {"tz": "local"}) == href
    said = alert_columns({}, href, {})
    assert ("See who spent the budget" in said) == bool(href)


def test_alerts_that_ended_are_listed_newest_first_not_pages_first() -> None:
    rows = [
        alert(slo=name, severity=severity, state=state, started_ms=start_ms, fired_ms=fired_ms)
        for name, severity, state, start_ms, fired_ms in (
            ("firing", "page", "firing", 9, 9),
            ("old", "page", "resolved", 1, 2),
            ("new", "ticket", "resolved", 5, 6),
            ("never fired", "ticket", "inactive", 4, None),
        )
    ]
    assert [each["slo"] for each in ended(rows)] == ["new", "never fired", "old"]


def test_deliveries_and_silences_in_words() -> None:
    assert delivery_words({"delivered": 3, "waiting": 1}) == "3 delivered, 1 pending, none failed"
    none = {"waiting": 0, "delivered": 0, "dead": 0, "in_groups": 0}
    assert delivery_words(none) == (
        "none so far; they go to the receivers in the collector's --slos file"
    )
    assert delivery_words({"dead": 2}) == "0 delivered, none pending, 2 failed"
    failing = {
        "receiver": "on-call", "undelivered": 17, "since": "1970-01-01T00:01:00Z",
        "error": "ConnectError",
    }  # fmt: skip
    said = delivery_words({"waiting": 17}, [failing])
    assert said == "0 delivered, 17 pending (on-call does not accept them)"
    said = delivery_words({"waiting": 17, "dead": 2}, [failing, {**failing, "receiver": "mail"}])
    assert said == "0 delivered, 17 pending (on-call, mail do not accept them), 2 failed"
    assert failure_words(failing, 480_000) == (
        "on-call has not accepted 17 notifications, the oldest for 7 min; they are retried. "
        "Last error: ConnectError."
    )
    assert lasts_s("1970-01-01T00:01:00Z", 30_000) == 30
    assert lasts_s("never", 0) is None


def test_a_dead_letter_says_which_alert_it_was_about() -> None:
    letter = {"number": 1, "id": "a-firing", "status": "firing"}
    change = {"id": "a-firing", "slo": "chat", "severity": "page", "time": "2026-01-02T03:04:05.6Z"}
    assert letter_words(letter, [change]).startswith("chat, page, firing at 02 Jan ")
    assert letter_words(letter, [change]).endswith(" 03:04:05")
    assert letter_words(letter, []) == "firing"


def test_a_silence_that_is_over_silences_nobody() -> None:
    alerts: list[dict[str, Any]] = [
        {"slo": "chat", "severity": "page", "silenced_until": "1970-01-01T00:02:00Z"},
        {"slo": "chat", "severity": "ticket", "silenced_until": None},
    ]
    assert silenced_s("chat", "page", alerts, 30_000) == 90.0
    assert silenced_s("chat", "page", alerts, 120_000) is None
    assert silenced_s("chat", "ticket", alerts, 0) is None
    assert silenced_s("batch", "page", alerts, 0) is None


def test_a_silence_is_of_an_slo_or_of_labels() -> None:
    assert silenced_alerts("chat-ttft") == {"slo": "chat-ttft"}
    assert silenced_alerts('severity=~"a|b"') == {"matchers": ['severity=~"a|b"']}


def test_the_audit_says_what_an_action_was_done_to() -> None:
    moved = {"prompt": "support", "reason": "", "result": {"is": "b", "label": "x", "was": "a"}}
    assert audit_words(moved) == "prompt support, was a, is b"
    assert audit_words({"number": None, "result": {"replayed": 2}}) == "replayed 2"
    assert audit_words({"result": {}}) == "–"


def test_the_audit_tells_an_action_that_was_cut_off() -> None:
    assert audit_words({"slo": "chat"}) == "slo chat, no result: perhaps not carried out"
