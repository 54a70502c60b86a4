"""Computes the alerts page: what is firing and why, the timeline, and deliveries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from evenkeel.why.advice import Advice, advise
from evenkeel.why.causes import NAMES, describe_cause
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame.selection import parse_time_ms

Row = Mapping[str, Any]

# An alert's annotations by the question they answer, with their display names.
QUESTIONS = {
    "what": {
        "bad_requests": "bad requests",
        "sli": "SLI",
        "budget_left": "budget left",
        "budget_lasts": "budget lasts",
        "burn_rate_long": "burn rate, long window",
        "burn_rate_short": "burn rate, short window",
        "usual": "usual",
        "scale": "scale",
    },
    "who": {
        "worst_cohorts": "worst cohorts",
        "worst_versions": "worst prompt versions",
        "bad_by_prompt_size": "bad by prompt size",
    },
    "why": {
        "top_cause": "top cause",
        "ledger": "ledger",
        "change_point": "change of level",
        "prompt_change": "prompt change",
    },
}
_SPENT = re.compile(r"none: ([\d.,e+]+) times the budget is spent")
_RESULTS = ("was", "is", "until", "replayed")
_LINKS_HERE = {"dashboard", "dashboard_url", "explore"}
_HIDDEN = {
    "summary", "description", "exemplars", "silence", "runbook_url", "what_helps", *_LINKS_HERE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bar:
    """A period in which an alert was pending or firing, as a bar of the timeline."""

    name: str
    state: str
    from_ms: int
    to_ms: int
    is_silenced: bool


def evidence(annotations: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Return an alert's evidence by question: what, who, why; unknown annotations answer what."""
    annotations = _with_one_budget(annotations)
    found = {
        question: [(name, annotations[key]) for key, name in names.items() if annotations.get(key)]
        for question, names in QUESTIONS.items()
    }
    known = {key for names in QUESTIONS.values() for key in names} | _HIDDEN
    found["what"] += [
        (key.replace("_", " "), value)
        for key, value in annotations.items()
        if key not in known and value and not value.startswith(("http://", "https://"))
    ]
    return found


def _with_one_budget(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return annotations in which an exhausted budget is one fact, not two."""
    match = _SPENT.fullmatch(annotations.get("budget_left", ""))
    if match is None:
        return annotations
    said = {"budget_left": f"exhausted, {match[1]}× spent"}
    return {k: v for k, v in annotations.items() if k != "budget_lasts"} | said


def links(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return an alert's links to other sites, such as runbooks."""
    return [
        (key.removesuffix("_url").replace("_", " "), value)
        for key, value in annotations.items()
        if value.startswith(("http://", "https://")) and key not in _LINKS_HERE
    ]


def advice_on(top_cause: str) -> Advice | None:
    """Return what would help against an alert's top cause; None if its text names no cause.

    Args:
        top_cause: The annotation, such as "Waiting for batch capacity (first token): 1.4 s …".
    """
    name = top_cause.partition(": ")[0]
    cause = next(
        (
            c
            for c in NAMES
            for phase in ("ttft", "decode")
            if describe_cause(f"{phase}.{c}") == name
        ),
        "",
    )
    return advise(cause)


def burn_window(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the range that the alert judged, from its link to a dashboard; {} without one."""
    query = parse_qs(urlsplit(annotations.get("dashboard", "")).query)
    return {name: query[name][0] for name in ("from", "to") if name in query}


def explore_params(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of the Explore page that find an anomaly's requests; {} without."""
    query = parse_qs(urlsplit(annotations.get("explore", "")).query)
    return {name: values[0] for name, values in query.items()}


def with_just_fired(found: Sequence[dict[str, Any]], kept: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the stored alerts, and those that fire but take seconds to be stored; counted too.

    Args:
        found: Rows of the query `alerts`; the first one has the counts of all.
        kept: What the evaluator knows of the alerts.
    """
    num_all = found[0]["num_alerts"] if found else 0
    stored = {(each["slo"], each["severity"]) for each in found if each["state"] == "firing"}
    fired = {
        (each["slo"], each["severity"]): each
        for each in kept
        if each["state"] == "firing" and (each["slo"], each["severity"]) not in stored
    }
    if not fired or num_all > len(found):
        return list(found)
    rest = [each for each in found if (each["slo"], each["severity"]) not in fired
            or each["state"] != "pending"]  # fmt: skip
    shown = [*map(_as_stored, fired.values()), *rest]
    severities = [each["severity"] for each in shown if each["state"] == "firing"]
    counts = {
        "num_alerts": len(shown),
        "num_pages": severities.count("page"),
        "num_tickets": len(severities) - severities.count("page"),
        "num_pending": sum(each["state"] == "pending" for each in shown),
    }
    return [{**each, **counts} for each in shown]


def _as_stored(kept: Row) -> dict[str, Any]:
    """Return what the evaluator knows of an alert as a row of the query `alerts`."""
    since_ms = parse_time_ms(kept["since"]) or 0
    return {
        "alert_id": f"{kept['slo']} {kept['severity']}",
        "slo": kept["slo"],
        "severity": kept["severity"],
        "alertname": kept["labels"].get("alertname", ""),
        "state": "firing",
        "started_ms": since_ms,
        "fired_ms": since_ms,
        "ended_ms": None,
        "was_silenced": bool(kept["silenced_until"]),
        "burn_long": None,
        "annotations": kept["annotations"],
    }


def timeline(alerts: Sequence[Row], window: Window) -> list[Bar]:
    """Return the pending and firing periods of each alert, cut to the window."""
    bars = []
    for alert in alerts:
        end_ms = alert["ended_ms"] or window.to_ms
        fired_ms = alert["fired_ms"]
        parts = [("pending", alert["started_ms"], fired_ms or end_ms)]
        if fired_ms is not None:
            parts.append(("firing", fired_ms, end_ms))
        for state, begin, end in parts:
            begin, end = max(begin, window.from_ms), min(end, window.to_ms)
            if begin < end:
                name = f"{alert['slo']} · {alert['severity']}"
                bars.append(Bar(name, state, begin, end, bool(alert["was_silenced"])))
    return bars


def ended(alerts: Sequence[Row]) -> list[Row]:
    """Return the alerts that have ended, the newest first whatever their severity."""
    past = [alert for alert in alerts if alert["state"] not in ("firing", "pending")]
    return sorted(past, key=lambda alert: -(alert["fired_ms"] or alert["started_ms"]))


def headline(
    alerts: Sequence[Row], is_watched: bool = True, past_ms: int | None = None
) -> tuple[str, str]:
    """Return the level and headline of the alerts; without an evaluator the level is unknown.

    Args:
        alerts: The alerts of a range; the first one has the counts of all.
        is_watched: Whether an evaluator answers.
        past_ms: The end of a range in the past, of which the headline speaks; None for now.
    """
    counts = ("num_pages", "num_tickets", "num_pending")
    pages, tickets, pending = (int(alerts[0][name]) if alerts else 0 for name in counts)
    at, is_, are = "", "is", "are"
    if past_ms is not None:
        at, is_, are = f"At {formats.moment_ms(past_ms)}, ", "was", "were"
    if pages or tickets:
        parts = [f"{n:,} {word}{'s' if n > 1 else ''}" for n, word in
                 ((pages, "page"), (tickets, "ticket")) if n]  # fmt: skip
        verb = is_ if pages + tickets == 1 else are
        return ("bad" if pages else "warning"), f"{at}{' and '.join(parts)} {verb} firing"
    if pending:
        was = "" if past_ms is None else f"{is_ if pending == 1 else are} "
        return "warning", f"{at}{pending:,} {was}pending"
    if not is_watched:
        return "unknown", "No known alerts"
    return "good", f"{at}nothing was firing" if at else "Nothing is firing"


def delivery_words(notifications: Mapping[str, int], failing: Sequence[Row] = ()) -> str:
    """Return the delivery counts in words, and the receivers that do not accept notifications."""
    if not any(notifications.values()):
        return "none so far; they go to the receivers in the collector's --slos file"
    waiting, dead = notifications.get("waiting", 0), notifications.get("dead", 0)
    text = f"{notifications.get('delivered', 0)} delivered, {waiting or 'none'} pending"
    if failing:
        verb = "does" if len(failing) == 1 else "do"
        names = ", ".join(str(each["receiver"]) for each in failing)
        text += f" ({names} {verb} not accept them)"
    if dead or not failing:
        text += f", {dead or 'none'} failed"
    withdrawn = notifications.get("withdrawn", 0)
    return f"{text}, {withdrawn} withdrawn" if withdrawn else text


def failure_words(failing: Row, now_ms: int) -> str:
    """Return since when a receiver accepts no notifications, and why."""
    since_ms = parse_time_ms(failing["since"]) or 0
    num = failing["undelivered"]
    return (
        f"{failing['receiver']} has not accepted {num:,} notification{'' if num == 1 else 's'}, "
        f"the oldest for {formats.age((now_ms - since_ms) / 1000)}; they are retried. Last error: "
        f"{failing['error'] or 'unknown'}."
    )


def letter_words(letter: Row, history: Sequence[Row]) -> str:
    """Return the subject of a dead letter: the alert, its status, and the time."""
    about = next((change for change in history if change["id"] == letter["id"]), None)
    if about is None:
        return str(letter["status"])
    when = formats.short_moment_ms(parse_time_ms(about["time"]) or 0)
    return f"{about['slo']}, {about['severity']}, {letter['status']} at {when}"


def silenced_alerts(text: str) -> dict[str, Any]:
    """Return the silence target that a user typed: an SLO's name, or a matcher."""
    return {"matchers": [text]} if re.search("[=~]", text) else {"slo": text}


def silenced_s(slo: str, severity: str, alerts: Sequence[Row], now_ms: int) -> float | None:
    """Return how long an alert is still silenced, in seconds; None if it is not."""
    lasts = (
        lasts_s(each["silenced_until"], now_ms)
        for each in alerts
        if (each["slo"], each["severity"]) == (slo, severity) and each["silenced_until"]
    )
    return max((left_s for left_s in lasts if left_s), default=None)


def audit_words(details: Mapping[str, Any]) -> str:
    """Return the target and the result of an action in words."""
    result = details.get("result") or {}
    parts = [f"{name} {value}" for name, value in details.items() if name != "result" and value]
    parts += [f"{name} {result[name]}" for name in _RESULTS if name in result]
    if "result" not in details:
        # Its line is written first: it was cut off, or goes on.
        parts.append("no result: perhaps not carried out")
    return ", ".join(parts) or "–"


def lasts_s(until: str, now_ms: int) -> float | None:
    """Return the seconds left until an ISO 8601 time; None if the time is invalid."""
    until_ms = parse_time_ms(until)
    return None if until_ms is None else max(0.0, (until_ms - now_ms) / 1000)
