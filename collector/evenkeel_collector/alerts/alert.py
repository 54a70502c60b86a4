"""An alert as it is stored, and one change of its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.alerts.state import Life, State


@dataclass(frozen=True, slots=True)
class Details:
    """What is told of an alert: who it is, what people read, the figures behind it."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert as it is stored; `alert_id` names one firing and is '' before the first."""

    slo: str
    severity: str
    life: Life
    alert_id: str = ""
    is_notified: bool = False
    details: Details = field(default_factory=Details)


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of an alert's state; `id` never changes and is unique."""

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
    """One alert's new state, with the transition and the notifications that belong to it.

    With `awaits_evidence` its evidence is still to come, and the history waits for it.
    """

    alert: Alert
    transition: Transition | None = None
    notifications: tuple[Notification, ...] = ()
    awaits_evidence: bool = False
