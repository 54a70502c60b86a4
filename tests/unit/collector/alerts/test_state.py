"""The alert state machine: named lives, and what holds of every life."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_collector.alerts.state import Delays, Life, State, step

S = 10**9

LIVES = [
    ("fires at once without delays", Delays(), "0110", "inactive firing firing resolved"),
    ("waits before it fires", Delays(2 * S), "1111", "pending pending firing firing"),
    ("forgets what did not last", Delays(2 * S), "1101", "pending pending inactive pending"),
    ("keeps firing for a while", Delays(0, 3 * S), "10010", "firing firing firing firing firing"),
    (
        "resolves when the while is over",
        Delays(0, 3 * S),
        "1000",
        "firing firing firing resolved",
    ),
    ("fires anew after it resolved", Delays(), "1011", "firing resolved firing firing"),
    ("stays resolved", Delays(), "100", "firing resolved resolved"),
]


@pytest.mark.parametrize(
    ("delays", "looks", "states"), [case[1:] for case in LIVES], ids=[case[0] for case in LIVES]
)
def test_a_life_second_by_second(delays: Delays, looks: str, states: str) -> None:
    life, seen = Life(), []
    for second, holds in enumerate(looks, start=100):
        life = step(life, holds == "1", second * S, delays)
        seen.append(life.state.value)
    assert " ".join(seen) == states


def test_a_new_firing_has_a_new_start() -> None:
    life = Life()
    for second, holds in [(1, True), (2, False), (5, True)]:
        life = step(life, holds, second * S, Delays())
    assert (life.state, life.since_ns) == (State.FIRING, 5 * S)


def test_a_clock_set_back_does_not_resolve_or_fire_early() -> None:
    life = step(Life(), True, 100 * S, Delays(0, 10 * S))
    life = step(life, False, 50 * S, Delays(0, 10 * S))
    assert life.state is State.FIRING
    pending = step(Life(), True, 100 * S, Delays(10 * S))
    assert step(pending, True, 50 * S, Delays(10 * S)).state is State.PENDING


def test_an_alert_waits_no_longer_because_the_clock_was_ahead() -> None:
    """A machine may start hours ahead, until it asks a time server."""
    ahead = 7200 * S
    pending = step(Life(), True, ahead + 100 * S, Delays(10 * S))
    pending = step(pending, True, 100 * S, Delays(10 * S))
    assert step(pending, True, 110 * S, Delays(10 * S)) == Life(State.FIRING, 100 * S, 110 * S)
    firing = step(Life(), True, ahead + 100 * S, Delays(0, 10 * S))
    firing = step(firing, False, 100 * S, Delays(0, 10 * S))
    # It does not end before it began.
    assert step(firing, False, 110 * S, Delays(0, 10 * S)) == Life(State.RESOLVED, 100 * S, 100 * S)


ALLOWED = {
    (State.INACTIVE, State.PENDING),
    (State.INACTIVE, State.FIRING),
    (State.PENDING, State.INACTIVE),
    (State.PENDING, State.FIRING),
    (State.FIRING, State.RESOLVED),
    (State.RESOLVED, State.PENDING),
    (State.RESOLVED, State.FIRING),
}


@settings(deadline=None)
@given(
    looks=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=40),
    pending_s=st.integers(0, 6),
    keep_s=st.integers(0, 6),
)
def test_every_life_obeys_its_delays(
    looks: list[tuple[bool, int]], pending_s: int, keep_s: int
) -> None:
    delays = Delays(pending_s * S, keep_s * S)
    life, now_s, held_since = Life(), 1000, None
    for holds, wait_s in looks:
        now_s += wait_s
        held_since = (held_since or now_s) if holds else None
        before, life = life, step(life, holds, now_s * S, delays)
        if life.state is not before.state:
            assert (before.state, life.state) in ALLOWED
        if life.state is State.FIRING and before.state is not State.FIRING:
            assert holds
            assert held_since is not None
            assert now_s - held_since >= pending_s
        if life.state is State.RESOLVED and before.state is State.FIRING:
            assert not holds
            assert now_s * S - before.last_held_ns >= keep_s * S
