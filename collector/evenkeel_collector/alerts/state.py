"""The alert state machine: inactive → pending → firing → resolved, as a pure function of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

_AHEAD_NS = 60 * 10**9


class State(StrEnum):
    """The state of an alert; `resolved` is like `inactive`, after a firing."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Delays:
    """How long a condition must hold, or no longer hold, before its alert changes state.

    Attributes:
        pending_ns: The condition must hold this long before the alert fires.
        keep_firing_ns: It must not hold for this long before the alert resolves.
    """

    pending_ns: int = 0
    keep_firing_ns: int = 0


@dataclass(frozen=True, slots=True)
class Life:
    """An alert at one moment.

    Attributes:
        state: Its state.
        since_ns: When the condition began to hold: the alert's start, once pending.
        last_held_ns: When the condition was last seen to hold.
    """

    state: State = State.INACTIVE
    since_ns: int = 0
    last_held_ns: int = 0


def step(life: Life, holds: bool, now_ns: int, delays: Delays) -> Life:
    """Return the alert after one evaluation of its condition.

    With `pending_ns` 0 an alert fires at the first evaluation, without a pending state. A pending
    alert whose condition ends becomes inactive again, without a notification. If the clock was set
    back, what it saw later than now counts as seen now.
    """
    if life.state in (State.PENDING, State.FIRING):
        life = replace(
            life,
            since_ns=min(life.since_ns, now_ns),
            last_held_ns=min(life.last_held_ns, now_ns),
        )
    if holds:
        return _step_held(life, now_ns, delays)
    if life.state is State.PENDING:
        return Life()
    if life.state is State.FIRING and now_ns - life.last_held_ns >= delays.keep_firing_ns:
        return replace(life, state=State.RESOLVED)
    return life


def _step_held(life: Life, now_ns: int, delays: Delays) -> Life:
    if life.state is State.FIRING:
        return replace(life, last_held_ns=now_ns)
    since_ns = life.since_ns if life.state is State.PENDING else now_ns
    is_due = now_ns - since_ns >= delays.pending_ns
    return Life(State.FIRING if is_due else State.PENDING, since_ns, now_ns)


def newest_ns(now_ns: int, *times_ns: int) -> int:
    """Return the newest of these times; 0 if there is none.

    A time more than a minute ahead comes from a clock that has been set back, and is left out.
    """
    return max((time_ns for time_ns in times_ns if time_ns <= now_ns + _AHEAD_NS), default=0)


@dataclass(frozen=True, slots=True)
class Condition:
    """The result of one evaluation for one alert.

    Attributes:
        slo: Subject of the alert: the SLO's name, with a suffix if an SLO has several alerts of the
            same severity.
        severity: page or ticket.
        holds: Whether the condition holds; None if unknown, which leaves the alert unchanged.
        delays: How long to wait before firing and resolving.
        labels: Identify the alert.
        figures: The numbers behind the result.
        describe: Returns the annotations that need no query; called when the alert fires.
        gather: Reads the evidence from a store, in any thread; None if there is no evidence.
    """

    slo: str
    severity: str
    holds: bool | None
    delays: Delays
    labels: Mapping[str, str]
    figures: Mapping[str, float | None]
    describe: Callable[[], Mapping[str, str]]
    gather: Callable[[Any], Mapping[str, str]] | None = None
