"""Format a notification as Slack blocks: the summary, the evidence and a link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenkeel_collector.alerts.notification import Notification, NotifiedAlert

# Slack's own limits: characters of a text, of a header, and blocks of a message.
_TEXT_LIMIT = 2900
_HEADER_LIMIT = 150
_MOST_ALERTS = 40
_FIELDS = ("budget_left", "budget_lasts", "bad_requests", "bad_by_prompt_size")
_FACTS = (
    "top_cause",
    "worst_cohorts",
    "change_point",
    "last_deploy",
    "prompt_change",
    "control_action",
    "eval_verdict",
    "evidence",
)

Block = dict[str, Any]


def slack_message(title: str, notification: Notification) -> dict[str, Any]:
    """Return the body of a notification of one alert or a group."""
    header = {"type": "plain_text", "text": title[:_HEADER_LIMIT]}
    blocks: list[Block] = [{"type": "header", "text": header}]
    alerts = notification.alerts
    if len(alerts) == 1:
        blocks += _alert_blocks(alerts[0])
    else:
        blocks += [_text(_alert_line(alert)) for alert in alerts[:_MOST_ALERTS]]
        num_left = len(alerts) - _MOST_ALERTS + notification.num_left_out
        if num_left > 0:
            blocks.append(_text(f"and {num_left} more"))
    return {"text": title, "blocks": blocks}


def _alert_blocks(alert: NotifiedAlert) -> list[Block]:
    notes = alert.annotations
    blocks: list[Block] = []
    if alert.status != "resolved":
        if "description" in notes:
            blocks.append(_text(_escape(notes["description"])))
        fields = [{"type": "mrkdwn", "text": _fact(n, notes)} for n in _FIELDS if n in notes]
        if fields:
            blocks.append({"type": "section", "fields": fields})
        blocks += [_text(_fact(name, notes)) for name in _FACTS if name in notes]
        if "exemplars" in notes:
            lines = "\n".join(_linked(line) for line in notes["exemplars"].splitlines())
            blocks.append(_text(f"*exemplars*\n{lines}"))
        if "silence" in notes:
            blocks.append(_text(f"`{_escape(notes['silence'])}`"))
    if "dashboard" in notes:
        button = {"type": "plain_text", "text": "Show it"}
        element = {"type": "button", "text": button, "url": notes["dashboard"]}
        blocks.append({"type": "actions", "elements": [element]})
    return blocks


def _alert_line(alert: NotifiedAlert) -> str:
    notes, labels = alert.annotations, alert.labels
    severity = labels.get("severity", "alert")
    word = "resolved" if alert.status == "resolved" else f"{severity} firing"
    summary = _escape(notes.get("summary", labels.get("alertname", "alert")))
    cause = f"\n{_fact('top_cause', notes)}" if word != "resolved" and "top_cause" in notes else ""
    link = f"\n<{_escape(notes['dashboard'])}|Show it>" if "dashboard" in notes else ""
    return f"*{word}*: {summary}{cause}{link}"


def _linked(line: str) -> str:
    """Return an exemplar with its request id as a link, if it has an address."""
    text, _, url = line.rpartition(" ")
    if not url.startswith(("http://", "https://")):
        return _escape(line)
    # An id may have spaces.
    request_id, bracket, rest = text.rpartition(" (")
    if not bracket:
        request_id, rest = text, ""
    return f"<{_escape(url)}|{_escape(request_id)}>{_escape(bracket + rest)}"


def _fact(name: str, notes: Mapping[str, str]) -> str:
    return f"*{name.replace('_', ' ')}*\n{_escape(notes[name])}"[:_TEXT_LIMIT]


def _text(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:_TEXT_LIMIT]}}


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
