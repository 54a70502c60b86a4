"""What a receiver is told: the JSON that Prometheus Alertmanager posts to webhooks, version 4."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from evenkeel.times import rfc3339

_NEVER = "0001-01-01T00:00:00Z"  # how Alertmanager writes an end that has not come


def fingerprint(labels: Mapping[str, str]) -> str:
    """Return 16 hexadecimal digits that are the same for the same labels, and for no others."""
    text = json.dumps(sorted(labels.items()), separators=(",", ":"))
    return blake2b(text.encode(), digest_size=8).hexdigest()


def alertmanager_body(
    receiver: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    starts_at_ns: int,
    ends_at_ns: int | None,
    dashboard_url: str | None,
) -> str:
    """Return the body of one notification about one alert.

    Args:
        receiver: The receiver's name.
        labels: Identify the alert.
        annotations: Describe it.
        starts_at_ns: When the condition began to hold.
        ends_at_ns: When the alert resolved; None while it fires.
        dashboard_url: Where `generatorURL` and `externalURL` lead; empty without one.
    """
    alert = {
        "status": "firing" if ends_at_ns is None else "resolved",
        "labels": dict(labels),
        "annotations": dict(annotations),
        "startsAt": rfc3339(starts_at_ns),
        "endsAt": _NEVER if ends_at_ns is None else rfc3339(ends_at_ns),
        "generatorURL": dashboard_url or "",
        "fingerprint": fingerprint(labels),
    }
    group = {name: labels[name] for name in ("alertname", "slo") if name in labels}
    return group_body(receiver, group, [alert], dashboard_url or "", 1)


def group_body(
    receiver: str,
    group_labels: Mapping[str, str],
    alerts: Sequence[Mapping[str, Any]],
    dashboard_url: str,
    most_alerts: int,
) -> str:
    """Return the body of one notification about a group of alerts, those that fire first.

    It fires while any of them does. Common are the labels and annotations that all have alike.
    """
    ordered = sorted(alerts, key=lambda alert: (alert["status"] != "firing", alert["startsAt"]))
    shown_group = ", ".join(f'{name}="{value}"' for name, value in sorted(group_labels.items()))
    return json.dumps(
        {
            "version": "4",
            "groupKey": f"{{}}:{{{shown_group}}}",
            "truncatedAlerts": max(len(ordered) - most_alerts, 0),
            "status": ordered[0]["status"],
            "receiver": receiver,
            "groupLabels": dict(group_labels),
            "commonLabels": _common([alert["labels"] for alert in ordered]),
            "commonAnnotations": _common([alert["annotations"] for alert in ordered]),
            "externalURL": dashboard_url,
            "alerts": ordered[:most_alerts],
        },
        ensure_ascii=False,
    )


def _common(texts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first, *others = texts
    return {
        name: text
        for name, text in first.items()
        if all(other.get(name) == text for other in others)
    }
