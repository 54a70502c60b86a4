"""Format a notification as Prometheus Alertmanager's webhook JSON, version 4."""

from __future__ import annotations

from typing import Any

from evenkeel.slo.receiver import Receiver
from evenkeel.times import rfc3339
from evenkeel_collector.alerts.notification import (
    Notification,
    NotifiedAlert,
    NotifiedGroup,
    fingerprint,
)

_NEVER = "0001-01-01T00:00:00Z"  # Alertmanager's value for an alert without an end


def alertmanager_message(receiver: Receiver, notification: Notification) -> dict[str, Any]:
    """Return the message of one notification; it is firing if any of its alerts is."""
    group = notification.group or _alone(notification.alerts[0])
    shown_group = ", ".join(f'{name}="{value}"' for name, value in sorted(group.labels.items()))
    return {
        "version": "4",
        "groupKey": f"{{}}:{{{shown_group}}}",
        "truncatedAlerts": group.num_left_out,
        "status": notification.status,
        "receiver": receiver.base or receiver.name,
        "groupLabels": dict(group.labels),
        "commonLabels": dict(group.common_labels),
        "commonAnnotations": dict(group.common_annotations),
        "externalURL": notification.dashboard_url,
        "alerts": [_alert(alert, notification.dashboard_url) for alert in notification.alerts],
    }


def _alone(alert: NotifiedAlert) -> NotifiedGroup:
    labels = {name: alert.labels[name] for name in ("alertname", "slo") if name in alert.labels}
    return NotifiedGroup(labels, alert.labels, alert.sent_annotations)


def _alert(alert: NotifiedAlert, dashboard_url: str) -> dict[str, Any]:
    # Alertmanager refuses an end before the start, as after the clock was set back.
    starts_at_ns = alert.starts_at_ns
    if alert.ends_at_ns is not None:
        starts_at_ns = min(starts_at_ns, alert.ends_at_ns)
    return {
        "status": alert.status,
        "labels": dict(alert.labels),
        "annotations": dict(alert.sent_annotations),
        "startsAt": rfc3339(starts_at_ns),
        "endsAt": _NEVER if alert.ends_at_ns is None else rfc3339(alert.ends_at_ns),
        "generatorURL": dashboard_url,
        "fingerprint": fingerprint(alert.labels),
    }
