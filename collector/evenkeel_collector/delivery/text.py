"""A notification as plain text, for those who read mail and chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def title_of(message: Mapping[str, Any]) -> str:
    """Return one line: what an alert says of itself, or how many of a group fire and ended."""
    alerts = message["alerts"]
    if len(alerts) == 1:
        (alert,) = alerts
        labels = alert["labels"]
        summary = alert["annotations"].get("summary", labels.get("alertname", "alert"))
        is_over = alert["status"] == "resolved"
        word = "Resolved" if is_over else labels.get("severity", "alert").capitalize()
        return " ".join(f"{word}: {summary}".split())
    num_firing = sum(alert["status"] == "firing" for alert in alerts)
    num_over = len(alerts) - num_firing
    counts = [f"{n} {word}" for n, word in ((num_firing, "firing"), (num_over, "resolved")) if n]
    group = ", ".join(f"{name}={value}" for name, value in message["groupLabels"].items())
    return " ".join(f"{', '.join(counts)}: {group}".split())


def text_of(message: Mapping[str, Any]) -> str:
    """Return every alert with its annotations and labels, one fact a line."""
    blocks = []
    for alert in message["alerts"]:
        lines = [f"{alert['status']} since {alert['startsAt']}"]
        lines += [f"{name}: {text}" for name, text in alert["annotations"].items()]
        lines += ["", *(f"{name}={value}" for name, value in sorted(alert["labels"].items()))]
        blocks.append("\n".join(lines))
    if message.get("truncatedAlerts"):
        blocks.append(f"and {message['truncatedAlerts']} more")
    return "\n\n".join(blocks) + "\n"
