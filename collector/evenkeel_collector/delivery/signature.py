"""Sign a webhook as Standard Webhooks define it (https://www.standardwebhooks.com)."""

from __future__ import annotations

from evenkeel.errors import ConfigurationError
from evenkeel.slo.receiver import Receiver
from evenkeel.times import to_datetime
from evenkeel_collector.alerts.notification import Notification


def webhook_signature(
    receiver: Receiver, notification: Notification, body: str, now_ns: int
) -> dict[str, str]:
    """Return the signature's headers, with one signature per secret so that keys can rotate.

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
