"""Format a notification as Slack blocks: the summary, the evidence and a link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenkeel_collector.alerts.notification import Notification, NotifiedAlert

# Slack's own limits, of which one exceeded is a message refused: characters of a text, of a field,
# of a header and of a button's address, and blocks of a message.
_TEXT_LIMIT = 2900
_FIELD_LIMIT = 1900
_HEADER_LIMIT = 150
_URL_LIMIT = 3000
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
    # Shown where there is no room for blocks, such as on a phone's lock screen.
    return {"text": _escape(title, _TEXT_LIMIT), "blocks": blocks}


def _alert_blocks(alert: NotifiedAlert) -> list[Block]:
    notes = alert.sent_annotations
    blocks: list[Block] = []
    if alert.status != "resolved":
        if notes.get("description"):
            blocks.append(_text(_escape(notes["description"], _TEXT_LIMIT)))
        fields = [
            {"type": "mrkdwn", "text": _fact(name, notes, _FIELD_LIMIT)}
            for name in _FIELDS
            if name in notes
        ]
        if fields:
            blocks.append({"type": "section", "fields": fields})
        blocks += [_text(_fact(name, notes, _TEXT_LIMIT)) for name in _FACTS if name in notes]
        if "exemplars" in notes:
            lines = map(_linked, notes["exemplars"].splitlines())
            blocks.append(_text(_fitting("*exemplars*", *lines)))
        if "silence" in notes:
            blocks.append(_text(f"`{_escape(notes['silence'], _TEXT_LIMIT)}`"))
    if 0 < len(notes.get("dashboard", "")) <= _URL_LIMIT:
        button = {"type": "plain_text", "text": "Show it"}
        element = {"type": "button", "text": button, "url": notes["dashboard"]}
        blocks.append({"type": "actions", "elements": [element]})
    return blocks


def _alert_line(alert: NotifiedAlert) -> str:
    notes, labels = alert.sent_annotations, alert.labels
    severity = labels.get("severity", "alert")
    word = "resolved" if alert.status == "resolved" else f"{severity} firing"
    summary = _escape(notes.get("summary", labels.get("alertname", "alert")), _FIELD_LIMIT)
    lines = [f"*{word}*: {summary}"]
    if word != "resolved" and "top_cause" in notes:
        lines.append(_fact("top_cause", notes, _FIELD_LIMIT))
    if notes.get("dashboard"):
        lines.append(f"<{_escape(notes['dashboard'])}|Show it>")
    return _fitting(*lines)


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


def _fact(name: str, notes: Mapping[str, str], limit: int) -> str:
    return f"*{name.replace('_', ' ')}*\n{_escape(notes[name], limit - 50)}"


def _text(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _fitting(*lines: str) -> str:
    """Return as many of the lines as fit in a text: part of a link would be none."""
    kept: list[str] = []
    for line in lines:
        if sum(map(len, kept)) + len(kept) + len(line) <= _TEXT_LIMIT:
            kept.append(line)
    return "\n".join(kept)


def _escape(text: str, limit: int | None = None) -> str:
    """Return the text for Slack, cut to a limit, but not within an escaped character."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if limit is None or len(escaped) <= limit:
        return escaped
    cut = escaped[: limit - 1]
    before, ampersand, entity = cut.rpartition("&")
    return f"{before if ampersand and ';' not in entity else cut}…"
