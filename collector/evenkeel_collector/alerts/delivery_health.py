"""Alert through the other receivers when one receiver does not accept notifications."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.matchers import silence_command
from evenkeel.slo.receiver import Receiver
from evenkeel.times import rfc3339
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.outbox import FailingReceiver
from evenkeel_collector.alerts.recipients import DELIVERY_ALERT
from evenkeel_collector.alerts.state import Condition, Delays

# Temporary errors count after this time.
FAILING_AFTER_NS = 600 * 10**9
# By then, everything that waited for the end of a mute has been retried.
_RETRIED_NS = 60 * 10**9


def delivery_key(receiver: str) -> tuple[str, str]:
    """Return the name and severity of the alert about a receiver."""
    return f"delivery/{receiver}", Severity.PAGE.value


def delivery_conditions(
    book: AlertBook, receivers: Sequence[Receiver], now_ns: int
) -> list[Condition]:
    """Return, per receiver, whether it rejects notifications or has accepted none for ten minutes.

    The condition holds while a rejected notification is waiting, so it ends once deliveries work.
    Nothing is retried while a receiver is muted, so how long something waits then says nothing.
    """
    failing = book.failing(now_ns, FAILING_AFTER_NS)
    rejecting = book.failing(now_ns, now_ns)
    conditions = []
    for receiver in receivers:
        is_muted = receiver.is_muted(now_ns) or receiver.is_muted(now_ns - _RETRIED_NS)
        found = (rejecting if is_muted else failing).get(receiver.name)
        holds = None if is_muted and found is None else found is not None
        conditions.append(_condition(receiver.name, found, holds))
    return conditions


def _condition(receiver: str, failing: FailingReceiver | None, holds: bool | None) -> Condition:
    name, severity = delivery_key(receiver)
    return Condition(
        slo=name,
        severity=severity,
        holds=holds,
        delays=Delays(),
        labels={
            "alertname": DELIVERY_ALERT,
            "slo": name,
            "receiver": receiver,
            "severity": severity,
        },
        figures={"waiting": None if failing is None else float(failing.num_notifications)},
        describe=partial(_describe, receiver, failing),
    )


def _describe(receiver: str, failing: FailingReceiver | None) -> dict[str, str]:
    if failing is None:
        return {}
    return {
        "summary": f"receiver {receiver} does not accept notifications: {failing.error}",
        "description": (
            f"Notifications to {receiver} that some or all recipients have not received: "
            f"{failing.num_notifications}, the oldest since {rfc3339(failing.since_ns)}. "
            "A notification that no recipient has received is retried while its alert fires."
        ),
        "silence": silence_command(f"delivery/{receiver}"),
    }
