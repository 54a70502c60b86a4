"""Format a notification as plain text, for e-mail and chat."""

from __future__ import annotations

from evenkeel.times import rfc3339
from evenkeel_collector.alerts.notification import Notification


def title_of(notification: Notification) -> str:
    """Return a one-line title: an alert's summary, or a group's numbers of firing and resolved."""
    alerts = notification.alerts
    if len(alerts) == 1:
        (alert,) = alerts
        summary = alert.annotations.get("summary", alert.labels.get("alertname", "alert"))
        is_over = alert.status == "resolved"
        word = "Resolved" if is_over else alert.labels.get("severity", "alert").capitalize()
        return " ".join(f"{word}: {summary}".split())
    num_firing = sum(alert.status == "firing" for alert in alerts)
    num_over = len(alerts) - num_firing
    counts = [f"{n} {word}" for n, word in ((num_firing, "firing"), (num_over, "resolved")) if n]
    labels = notification.group.labels if notification.group is not None else {}
    group = ", ".join(f"{name}={value}" for name, value in labels.items())
    return " ".join(f"{', '.join(counts)}: {group}".split())


def text_of(notification: Notification) -> str:
    """Return every alert with its annotations and labels, one fact per line."""
    blocks = []
    for alert in notification.alerts:
        lines = [f"{alert.status} since {rfc3339(alert.starts_at_ns)}"]
        lines += [f"{name}: {text}" for name, text in alert.annotations.items()]
        lines += ["", *(f"{name}={value}" for name, value in sorted(alert.labels.items()))]
        blocks.append("\n".join(lines))
    if notification.num_left_out:
        blocks.append(f"and {notification.num_left_out} more")
    return "\n\n".join(blocks) + "\n"
