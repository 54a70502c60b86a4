"""Build the HTTP request for each kind of receiver; secrets are only read here, when sending."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from evenkeel.errors import ConfigurationError
from evenkeel.slo.receiver import Receiver, ReceiverType
from evenkeel.times import rfc3339, to_datetime
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.delivery.alertmanager import alertmanager_message
from evenkeel_collector.delivery.slack import slack_message
from evenkeel_collector.delivery.text import title_of

# Alertmanager resolves alerts at the end that they were sent with. evenkeel sends the end itself,
# and an alert may fire for months until then.
_ALERTMANAGER_HOLDS_NS = 366 * 86400 * 10**9
_POSTED = ("labels", "annotations", "startsAt", "endsAt", "generatorURL")


@dataclass(frozen=True, slots=True)
class Posting:
    """One HTTP request to make; `body` is text."""

    url: str
    body: str
    headers: dict[str, str] = field(default_factory=dict)


def make_posting(receiver: Receiver, notification: Notification, now_ns: int) -> Posting:
    """Return the request for one notification.

    Raises:
        ConfigurationError: If a secret is missing or invalid.
    """
    url = receiver.address().rstrip("/") if receiver.type in _MAKERS else receiver.address()
    make = _MAKERS.get(receiver.type)
    if make is not None:
        return make(receiver, notification, url, now_ns)
    body = _json(alertmanager_message(receiver, notification))
    headers = webhook_signature(receiver, notification, body, now_ns) if receiver.secrets else {}
    return Posting(url, body, headers)


def _generic(receiver: Receiver, notification: Notification, url: str, now_ns: int) -> Posting:
    message = alertmanager_message(receiver, notification)
    if notification.group is None:
        kind, data = "alert", {"alert_id": notification.alert_id, **message["alerts"][0]}
    else:
        kind = "alert_group"
        data = {"group_id": notification.alert_id}
        data |= {name: message[name] for name in ("groupLabels", "alerts", "truncatedAlerts")}
    body = _json(
        {
            "type": f"{kind}.{notification.status}",
            "timestamp": rfc3339(notification.created_ns),
            "data": data,
        }
    )
    return Posting(
        receiver.address(), body, webhook_signature(receiver, notification, body, now_ns)
    )


def _slack(receiver: Receiver, notification: Notification, url: str, now_ns: int) -> Posting:
    body = slack_message(title_of(notification), notification)
    return Posting(url, _json(body))


def _pagerduty(receiver: Receiver, notification: Notification, url: str, now_ns: int) -> Posting:
    alert = notification.alerts[0]
    labels, notes = alert.labels, alert.sent_annotations
    event: dict[str, Any] = {
        "routing_key": receiver.secrets[0].read(),
        "event_action": "resolve" if notification.status == "resolved" else "trigger",
        "dedup_key": notification.alert_id,
    }
    if notification.status != "resolved":
        event["payload"] = {
            "summary": notes.get("summary", labels.get("alertname", "alert"))[:1024],
            "source": labels.get("service") or labels.get("slo", "evenkeel"),
            "severity": "critical" if labels.get("severity") == "page" else "warning",
            "timestamp": rfc3339(alert.starts_at_ns),
            "component": labels.get("model", ""),
            "group": labels.get("slo", ""),
            "class": labels.get("alertname", ""),
            "custom_details": notes,
        }
        event["client"] = "evenkeel"
        if "dashboard" in notes:
            event["links"] = [{"href": notes["dashboard"], "text": "The window that fired"}]
    return Posting(f"{url}/v2/enqueue", _json(event))


def _opsgenie(receiver: Receiver, notification: Notification, url: str, now_ns: int) -> Posting:
    alert = notification.alerts[0]
    labels, notes = alert.labels, alert.sent_annotations
    headers = {"Authorization": f"GenieKey {receiver.secrets[0].read()}"}
    alias = notification.alert_id
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
    return Posting(f"{url}/v2/alerts", _json(body), headers)


def _alertmanager(receiver: Receiver, notification: Notification, url: str, now_ns: int) -> Posting:
    (alert, *_) = alertmanager_message(receiver, notification)["alerts"]
    entry = {name: alert[name] for name in _POSTED}
    if notification.status != "resolved":
        entry["endsAt"] = rfc3339(now_ns + _ALERTMANAGER_HOLDS_NS)
    return Posting(f"{url}/api/v2/alerts", _json([entry]))


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False)


_Maker = Callable[[Receiver, Notification, str, int], Posting]
_MAKERS: dict[ReceiverType, _Maker] = {
    ReceiverType.GENERIC: _generic,
    ReceiverType.SLACK: _slack,
    ReceiverType.PAGERDUTY: _pagerduty,
    ReceiverType.OPSGENIE: _opsgenie,
    ReceiverType.ALERTMANAGER: _alertmanager,
}


def webhook_signature(
    receiver: Receiver, notification: Notification, body: str, now_ns: int
) -> dict[str, str]:
    """Return the headers of a Standard Webhooks signature (https://www.standardwebhooks.com).

    There is one signature per secret, so that keys can rotate.

    Raises:
        ConfigurationError: If a secret is missing or is not base64.
    """
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
        # The library's message might contain the secret, so only name the receiver.
        raise ConfigurationError(
            f"a secret of receiver {receiver.name!r} is not base64 (whsec_…)"
        ) from error
    return {"webhook-timestamp": str(now_ns // 10**9), "webhook-signature": " ".join(signatures)}
