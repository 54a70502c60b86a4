"""The alert that a receiver takes no notifications: nobody else would hear of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from evenkeel.slo.arithmetic import Severity
from evenkeel.slo.matchers import silence_command
from evenkeel.slo.receiver import Receiver
from evenkeel.times import rfc3339
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import DELIVERY_ALERT
from evenkeel_collector.alerts.outbox import Failing
from evenkeel_collector.alerts.state import Condition, Delays

# Errors that may pass by themselves count after so long.
PATIENCE_NS = 600 * 10**9


def delivery_key(receiver: str) -> tuple[str, str]:
    """Return what identifies the alert about a receiver."""
    return f"delivery/{receiver}", Severity.PAGE.value


def delivery_conditions(
    book: AlertBook, receivers: Sequence[Receiver], now_ns: int
) -> list[Condition]:
    """Return for each receiver whether it refuses, or took nothing for ten minutes.

    It holds while something waits that was refused, so it ends when deliveries work again.
    """
    failing = book.failing(now_ns, PATIENCE_NS)
    return [_condition(receiver.name, failing.get(receiver.name)) for receiver in receivers]


def _condition(receiver: str, failing: Failing | None) -> Condition:
    name, severity = delivery_key(receiver)
    return Condition(
        slo=name,
        severity=severity,
        holds=failing is not None,
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


def _describe(receiver: str, failing: Failing | None) -> dict[str, str]:
    if failing is None:
        return {}
    return {
        "summary": f"receiver {receiver} gets no notifications: {failing.error}",
        "description": (
            f"{failing.num_notifications} notifications to {receiver} are not delivered, "
            f"the oldest of {rfc3339(failing.since_ns)}. "
            "They are tried again while their alerts fire."
        ),
        "silence": silence_command(f"delivery/{receiver}"),
    }
