"""A notification of one alert or a group of alerts, independent of the format it is sent in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from evenkeel.slo.ended_alert import past_annotations


def fingerprint(labels: Mapping[str, str]) -> str:
    """Return a hash of the labels, as 16 hexadecimal digits."""
    text = json.dumps(sorted(labels.items()), separators=(",", ":"))
    return blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class NotifiedAlert:
    """One alert in a notification; `ends_at_ns` is None while it fires."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at_ns: int
    ends_at_ns: int | None = None

    @property
    def status(self) -> str:
        """Return firing or resolved."""
        return "firing" if self.ends_at_ns is None else "resolved"

    @property
    def sent_annotations(self) -> Mapping[str, str]:
        """Return the annotations as receivers get them: in the past tense once it has ended."""
        return self.annotations if self.ends_at_ns is None else past_annotations(self.annotations)


@dataclass(frozen=True, slots=True)
class NotifiedGroup:
    """The group of a notification.

    Attributes:
        labels: The labels that define the group.
        common_labels: Labels with the same value in all its alerts.
        common_annotations: Annotations sent with the same value for all its alerts.
        num_left_out: Number of alerts that are not listed.
    """

    labels: Mapping[str, str]
    common_labels: Mapping[str, str]
    common_annotations: Mapping[str, str]
    num_left_out: int = 0


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification to one receiver.

    Attributes:
        notification_id: The same on every attempt, so that receivers can deduplicate.
        receiver: The receiver's name.
        alert_id: Identifies the firing, or the group, in all notifications about it.
        fingerprint: Notifications with the same fingerprint are delivered in order.
        alerts: The reported alerts, firing ones first.
        group: The group; None for a single alert.
        dashboard_url: Link target; empty without a dashboard.
        is_repetition: Whether it only repeats an earlier notification.
        number: Its number in the outbox.
        created_ns: When it was queued.
        num_attempts: Failed attempts.
        last_error: Error of the last attempt.
        hold_ns: How long to hold it back for evidence.
    """

    notification_id: str
    receiver: str
    alert_id: str
    fingerprint: str
    alerts: tuple[NotifiedAlert, ...]
    group: NotifiedGroup | None = None
    dashboard_url: str = ""
    is_repetition: bool = False
    number: int = 0
    created_ns: int = 0
    num_attempts: int = 0
    last_error: str | None = None
    hold_ns: int = 0

    @property
    def num_left_out(self) -> int:
        """Return the number of alerts of the group that it does not list."""
        return 0 if self.group is None else self.group.num_left_out

    @property
    def status(self) -> str:
        """Return firing if any of its alerts fires, else resolved."""
        return "firing" if any(a.ends_at_ns is None for a in self.alerts) else "resolved"
