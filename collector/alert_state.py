"""The life of one alert: inactive → pending → firing → resolved, as a pure function of time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class State(StrEnum):
    """Where an alert stands; `resolved` rests like `inactive` and remembers that it fired."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an alert waits before it believes what it sees.

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
        state: Where it stands.
        since_ns: When the condition began to hold: the alert's start, from pending on.
        last_held_ns: When the condition was last seen to hold.
    """

    state: State = State.INACTIVE
    since_ns: int = 0
    last_held_ns: int = 0


def step(life: Life, holds: bool, now_ns: int, patience: Patience) -> Life:
    """Return the alert after one look at its condition.

    With `pending_ns` 0 an alert fires at the first look, without a pending state. A pending alert
    whose condition ends goes back to inactive: nobody was told. A clock that runs backwards
    counts as standing still.
    """
    if life.state in (State.PENDING, State.FIRING):
        now_ns = max(now_ns, life.last_held_ns)
    if holds:
        return _step_held(life, now_ns, patience)
    if life.state is State.PENDING:
        return Life()
    if life.state is State.FIRING and now_ns - life.last_held_ns >= patience.keep_firing_ns:
        return replace(life, state=State.RESOLVED)
    return life


def _step_held(life: Life, now_ns: int, patience: Patience) -> Life:
    if life.state is State.FIRING:
        return replace(life, last_held_ns=now_ns)
    since_ns = life.since_ns if life.state is State.PENDING else now_ns
    is_due = now_ns - since_ns >= patience.pending_ns
    return Life(State.FIRING if is_due else State.PENDING, since_ns, now_ns)
