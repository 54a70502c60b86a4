"""Format a notification as plain text, for e-mail and chat."""

from __future__ import annotations

from evenkeel.outside_text import for_terminal
from evenkeel.times import rfc3339
from evenkeel_collector.alerts.notification import Notification, NotifiedAlert


def title_of(notification: Notification) -> str:
    """Return a one-line title: an alert's summary, or a group's numbers of firing and resolved."""
    alerts = notification.alerts
    if len(alerts) == 1:
        (alert,) = alerts
        summary = alert.sent_annotations.get("summary", alert.labels.get("alertname", "alert"))
        is_over = alert.status == "resolved"
        word = "Resolved" if is_over else alert.labels.get("severity", "alert").capitalize()
        return _in_a_line(f"{word}: {summary}")
    num_firing = sum(alert.status == "firing" for alert in alerts)
    num_over = len(alerts) - num_firing
    counts = [f"{n} {word}" for n, word in ((num_firing, "firing"), (num_over, "resolved")) if n]
    labels = notification.group.labels if notification.group is not None else {}
    group = ", ".join(f"{name}={value}" for name, value in labels.items())
    return _in_a_line(f"{', '.join(counts)}: {group}")


def text_of(notification: Notification) -> str:
    """Return every alert with its annotations and labels, one fact per line."""
    blocks = []
    for alert in notification.alerts:
        lines = [_when(alert)]
        lines += [f"{name}: {text}" for name, text in alert.sent_annotations.items()]
        lines += ["", *(f"{name}={value}" for name, value in sorted(alert.labels.items()))]
        blocks.append("\n".join(lines))
    if notification.num_left_out:
        blocks.append(f"and {notification.num_left_out} more")
    lines = "\n\n".join(blocks).splitlines()
    return "".join(f"{for_terminal(line)}\n" for line in lines)


def _when(alert: NotifiedAlert) -> str:
    if alert.ends_at_ns is None:
        return f"firing since {rfc3339(alert.starts_at_ns)}"
    return f"resolved at {rfc3339(alert.ends_at_ns)}, fired at {rfc3339(alert.starts_at_ns)}"


def _in_a_line(text: str) -> str:
    return for_terminal(" ".join(text.split()))
