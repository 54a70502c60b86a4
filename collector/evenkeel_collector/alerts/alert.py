"""Stored alerts and their state transitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.alerts.state import Life, State


@dataclass(frozen=True, slots=True)
class Details:
    """An alert's identifying labels, its annotations for people, and the figures behind it."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """One stored alert; `alert_id` identifies one firing and is '' before the first."""

    slo: str
    severity: str
    life: Life
    alert_id: str = ""
    is_notified: bool = False
    details: Details = field(default_factory=Details)


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of an alert's state; `id` is unique and stable."""

    id: str
    time_ns: int
    slo: str
    severity: str
    alert_id: str
    from_state: State
    state: State
    starts_at_ns: int
    is_silenced: bool
    details: Details


@dataclass(frozen=True, slots=True)
class Update:
    """One alert's new state, with its transition and notifications.

    With `awaits_evidence` the transition is not stored in the history until evidence is added.
    """

    alert: Alert
    transition: Transition | None = None
    notifications: tuple[Notification, ...] = ()
    awaits_evidence: bool = False
