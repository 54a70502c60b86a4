"""Sends each receiver one test notification, past the outbox."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

import httpx

from evenkeel.slo.receiver import Receiver
from evenkeel_collector.alerts.message import alertmanager_body
from evenkeel_collector.alerts.outbox import QueuedNotification
from evenkeel_collector.delivery.attempt import deliver
from evenkeel_collector.delivery.queue import DeliveryPolicy


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What one receiver made of the test; `error` is '' when it accepted."""

    receiver: str
    is_delivered: bool
    error: str


async def send_test(receivers: Sequence[Receiver]) -> list[TrialResult]:
    """Return one attempt a receiver, in their order; nothing is retried."""
    policy = DeliveryPolicy()
    attempts = []
    async with httpx.AsyncClient(timeout=policy.timeout_s) as client:
        for receiver in receivers:
            now_ns = time.time_ns()
            body = alertmanager_body(
                receiver.name,
                {"alertname": "EvenkeelTest", "slo": "test", "severity": "ticket"},
                {"summary": "Test notification: evenkeel reaches this receiver; nothing is wrong"},
                now_ns,
                None,
                None,
            )
            notification = QueuedNotification(
                0, f"test-{uuid4().hex}", receiver.name, "firing", body, 0, now_ns, None
            )
            outcome = await deliver(client, receiver, notification, policy.timeout_s)
            attempts.append(TrialResult(receiver.name, outcome.is_delivered, outcome.error))
    return attempts
