"""What each kind of receiver is sent, made of the notification that the outbox keeps.

The outbox holds Alertmanager's JSON of one alert; secrets enter only here, at the time of sending.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from evenkeel.errors import ConfigurationError
from evenkeel.slo.receiver import Receiver, ReceiverType
from evenkeel.times import rfc3339, to_datetime
from evenkeel_collector.alerts.outbox import QueuedNotification
from evenkeel_collector.delivery.slack import slack_message
from evenkeel_collector.delivery.text import title_of

# Alertmanager ends by itself what it is not told of again; evenkeel tells the end.
_ALERTMANAGER_HOLDS_NS = 7 * 86400 * 10**9


@dataclass(frozen=True, slots=True)
class Posting:
    """One HTTP request to make; `body` is text."""

    url: str
    body: str
    headers: dict[str, str] = field(default_factory=dict)


def alert_id(notification: QueuedNotification) -> str:
    """Return what names the firing, or the group, in every notification about it."""
    return notification.notification_id.partition("-")[0]


def make_posting(receiver: Receiver, notification: QueuedNotification, now_ns: int) -> Posting:
    """Return the request for one notification.

    Raises:
        ConfigurationError: If a secret is not there or is none.
    """
    message = json.loads(notification.body)
    url = receiver.address().rstrip("/") if receiver.type in _MAKERS else receiver.address()
    make = _MAKERS.get(receiver.type)
    if make is not None:
        return make(receiver, notification, message, url, now_ns)
    headers = (
        _signatures(receiver, notification, notification.body, now_ns) if receiver.secrets else {}
    )
    return Posting(url, notification.body, headers)


def _signatures(
    receiver: Receiver, notification: QueuedNotification, body: str, now_ns: int
) -> dict[str, str]:
    """Return the headers of Standard Webhooks; every secret signs, so keys can be changed."""
    from standardwebhooks.webhooks import Webhook

    moment = to_datetime(now_ns)
    try:
        signatures = [
            Webhook(secret.read()).sign(notification.notification_id, moment, body)
            for secret in receiver.secrets
        ]
    except ConfigurationError:
        raise
    except Exception as error:
        # The library's message might hold the secret: say which receiver, and not what it said.
        raise ConfigurationError(
            f"a secret of receiver {receiver.name!r} is no base64 (whsec_…)"
        ) from error
    return {"webhook-timestamp": str(now_ns // 10**9), "webhook-signature": " ".join(signatures)}


def _generic(
    receiver: Receiver,
    notification: QueuedNotification,
    message: dict[str, Any],
    url: str,
    now_ns: int,
) -> Posting:
    if receiver.group is None:
        kind, data = "alert", {"alert_id": alert_id(notification), **message["alerts"][0]}
    else:
        kind = "alert_group"
        data = {"group_id": alert_id(notification)}
        data |= {name: message[name] for name in ("groupLabels", "alerts", "truncatedAlerts")}
    body = json.dumps(
        {
            "type": f"{kind}.{notification.status}",
            "timestamp": rfc3339(notification.created_ns),
            "data": data,
        },
        ensure_ascii=False,
    )
    return Posting(receiver.address(), body, _signatures(receiver, notification, body, now_ns))


def _slack(
    receiver: Receiver,
    notification: QueuedNotification,
    message: dict[str, Any],
    url: str,
    now_ns: int,
) -> Posting:
    body = slack_message(title_of(message), message)
    return Posting(url, json.dumps(body, ensure_ascii=False))


def _pagerduty(
    receiver: Receiver,
    notification: QueuedNotification,
    message: dict[str, Any],
    url: str,
    now_ns: int,
) -> Posting:
    alert = message["alerts"][0]
    labels, notes = alert["labels"], alert["annotations"]
    event: dict[str, Any] = {
        "routing_key": receiver.secrets[0].read(),
        "event_action": "resolve" if notification.status == "resolved" else "trigger",
        "dedup_key": alert_id(notification),
    }
    if notification.status != "resolved":
        event["payload"] = {
            "summary": notes.get("summary", labels.get("alertname", "alert"))[:1024],
            "source": labels.get("service") or labels.get("slo", "evenkeel"),
            "severity": "critical" if labels.get("severity") == "page" else "warning",
            "timestamp": alert["startsAt"],
            "component": labels.get("model", ""),
            "group": labels.get("slo", ""),
            "class": labels.get("alertname", ""),
            "custom_details": notes,
        }
        event["client"] = "evenkeel"
        if "dashboard" in notes:
            event["links"] = [{"href": notes["dashboard"], "text": "The window that fired"}]
    return Posting(f"{url}/v2/enqueue", json.dumps(event, ensure_ascii=False))


def _opsgenie(
    receiver: Receiver,
    notification: QueuedNotification,
    message: dict[str, Any],
    url: str,
    now_ns: int,
) -> Posting:
    alert = message["alerts"][0]
    labels, notes = alert["labels"], alert["annotations"]
    headers = {"Authorization": f"GenieKey {receiver.secrets[0].read()}"}
    alias = alert_id(notification)
    if notification.status == "resolved":
        close = f"{url}/v2/alerts/{quote(alias)}/close?identifierType=alias"
        return Posting(close, json.dumps({"source": "evenkeel"}), headers)
    body = {
        "message": notes.get("summary", labels.get("alertname", "alert"))[:130],
        "alias": alias,
        "description": notes.get("description", "")[:15000],
        "priority": "P1" if labels.get("severity") == "page" else "P3",
        "source": "evenkeel",
        "tags": [f"{key}:{value}"[:50] for key, value in sorted(labels.items())],
        "details": notes,
    }
    return Posting(f"{url}/v2/alerts", json.dumps(body, ensure_ascii=False), headers)


def _alertmanager(
    receiver: Receiver,
    notification: QueuedNotification,
    message: dict[str, Any],
    url: str,
    now_ns: int,
) -> Posting:
    alert = message["alerts"][0]
    is_over = notification.status == "resolved"
    entry = {
        "labels": alert["labels"],
        "annotations": alert["annotations"],
        "startsAt": alert["startsAt"],
        "endsAt": alert["endsAt"] if is_over else rfc3339(now_ns + _ALERTMANAGER_HOLDS_NS),
        "generatorURL": alert["generatorURL"],
    }
    return Posting(f"{url}/api/v2/alerts", json.dumps([entry], ensure_ascii=False))


_Maker = Callable[[Receiver, QueuedNotification, dict[str, Any], str, int], Posting]
_MAKERS: dict[ReceiverType, _Maker] = {
    ReceiverType.GENERIC: _generic,
    ReceiverType.SLACK: _slack,
    ReceiverType.PAGERDUTY: _pagerduty,
    ReceiverType.OPSGENIE: _opsgenie,
    ReceiverType.ALERTMANAGER: _alertmanager,
}
