"""Which connections a port has, and which make room for others."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_collector.ports.connections import (
    ANSWER_S,
    BODY_BYTES_PER_S,
    BODY_S,
    HANDSHAKE_S,
    HEAD_S,
    IDLE_S,
    Connection,
    Connections,
    Wait,
    connections_per_port,
)
from evenkeel_collector.telemetry.metrics import SelfMetrics


def closed(connection: Connection) -> Callable[[], bool]:
    """Return what tells whether the connection was closed."""
    seen: list[None] = []
    connection.close = lambda: seen.append(None)
    return lambda: bool(seen)


def admit(connections: Connections, peer: str, wait: Wait, since_s: float = 0.0) -> Connection:
    connection = connections.admit(peer)
    assert connection is not None
    connection.wait, connection.since_s = wait, since_s
    return connection


def test_the_connection_that_waited_longest_makes_room() -> None:
    connections = Connections("http", 4, SelfMetrics())
    # Two addresses, so that neither has more than its half.
    idle = closed(admit(connections, "a", Wait.IDLE, 1))
    busy = closed(admit(connections, "a", Wait.US, 0))
    young = closed(admit(connections, "b", Wait.HEAD, 3))
    old = closed(admit(connections, "b", Wait.HEAD, 2))
    assert connections.admit("b") is not None
    assert (idle(), busy(), young(), old()) == (False, False, False, True)
    assert connections.admit("b") is not None
    assert (idle(), busy(), young()) == (False, False, True)


def test_a_full_port_takes_from_the_address_that_has_most() -> None:
    connections = Connections("http", 4, SelfMetrics())
    single = closed(admit(connections, "a", Wait.HEAD, 0))
    closed_of_b = [closed(admit(connections, "b", Wait.IDLE, 5)) for _ in range(2)]
    admit(connections, "c", Wait.US)
    assert connections.admit("d") is not None
    assert not single()
    assert sum(is_closed() for is_closed in closed_of_b) == 1


def test_requests_in_hand_are_never_closed_for_another() -> None:
    connections = Connections("http", 4, SelfMetrics())
    in_hand = [closed(admit(connections, peer, Wait.US)) for peer in "aabb"]
    assert connections.admit("c") is None
    assert not any(is_closed() for is_closed in in_hand)


@pytest.mark.parametrize(
    ("wait", "limit_s"),
    [
        (Wait.HANDSHAKE, HANDSHAKE_S),
        (Wait.HEAD, HEAD_S),
        (Wait.BODY, BODY_S),
        (Wait.READER, ANSWER_S),
        (Wait.IDLE, IDLE_S),
        (Wait.US, None),
    ],
)
def test_each_wait_has_its_limit(wait: Wait, limit_s: float | None) -> None:
    connection = Connection("a", wait=wait, since_s=0.0)
    if limit_s is None:
        assert not connection.is_late(1e9)
        return
    assert not connection.is_late(limit_s - 1)
    assert connection.is_late(limit_s + 1)


def test_a_body_that_arrives_may_take_longer() -> None:
    connection = Connection("a", wait=Wait.BODY, since_s=0.0)
    connection.num_body_bytes = 100 * BODY_BYTES_PER_S
    assert not connection.is_late(BODY_S + 99)
    assert connection.is_late(BODY_S + 101)


@pytest.mark.parametrize(
    ("wanted", "num_descriptors", "expected"),
    [(1_024, 65_536, 1_024), (1_024, 1_024, 170), (100, 1_024, 100), (1_024, 4, 1)],
)
def test_connections_leave_half_of_the_descriptors(
    wanted: int, num_descriptors: int, expected: int
) -> None:
    assert connections_per_port(wanted, num_descriptors) == expected


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(list(Wait)), st.booleans()),
        max_size=80,
    ),
    st.integers(1, 12),
)
def test_the_bounds_hold_whatever_arrives(
    arrivals: list[tuple[str, Wait, bool]], most: int
) -> None:
    connections = Connections("http", most, SelfMetrics())
    open_ones: set[Connection] = set()
    for number, (peer, wait, leaves) in enumerate(arrivals):
        connection = connections.admit(peer)
        if connection is not None:
            connection.close = partial(open_ones.discard, connection)
            connection.wait, connection.since_s = wait, number
            open_ones.add(connection)
        if leaves and open_ones:
            gone = next(iter(open_ones))
            open_ones.discard(gone)
            connections.release(gone)
        assert len(open_ones) <= most
        for each in "abc":
            assert sum(c.peer == each for c in open_ones) <= max(most // 2, 1)
        assert connections.num_open() == len(open_ones)
