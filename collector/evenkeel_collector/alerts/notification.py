"""What a receiver is owed, whatever form it will be sent in: one alert, or a group of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b


def fingerprint(labels: Mapping[str, str]) -> str:
    """Return 16 hexadecimal digits that are the same for the same labels, and for no others."""
    text = json.dumps(sorted(labels.items()), separators=(",", ":"))
    return blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class NotifiedAlert:
    """One alert as a notification reports it; `ends_at_ns` is None while it fires."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at_ns: int
    ends_at_ns: int | None = None

    @property
    def status(self) -> str:
        """Return firing or resolved."""
        return "firing" if self.ends_at_ns is None else "resolved"


@dataclass(frozen=True, slots=True)
class NotifiedGroup:
    """What a notification reports of its group as a whole.

    Attributes:
        labels: Those that make the group.
        common_labels: Those that all its alerts have alike.
        common_annotations: Likewise.
        num_left_out: Alerts that are counted and not listed.
    """

    labels: Mapping[str, str]
    common_labels: Mapping[str, str]
    common_annotations: Mapping[str, str]
    num_left_out: int = 0


@dataclass(frozen=True, slots=True)
class Notification:
    """What one receiver is owed.

    Attributes:
        notification_id: The same on every attempt: receivers may deduplicate by it.
        receiver: The receiver's name.
        alert_id: Names the firing, or the group, in every notification about it.
        fingerprint: Notifications with the same one reach their receiver in order.
        alerts: What it reports, those that fire first.
        group: The group; None for an alert on its own.
        dashboard_url: Where it leads; empty without a dashboard.
        is_repetition: It reports nothing new.
        number: Its place in the outbox.
        created_ns: When it was put there.
        num_attempts: Attempts that failed.
        last_error: Why the last one failed.
        hold_ns: How long it is first held back, for its evidence.
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
        """Return how many alerts of the group it does not list."""
        return 0 if self.group is None else self.group.num_left_out

    @property
    def status(self) -> str:
        """Return firing while any of its alerts fires, then resolved."""
        return "firing" if any(a.ends_at_ns is None for a in self.alerts) else "resolved"
