"""The gate: capacity, order, and what happens to those who give up."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_runtime.control.gate import Gate, GateFullError, Room, Standing, Ticket
from tests.fixtures.manual_clock import ManualClock


async def test_with_room_nobody_waits() -> None:
    gate = Gate(Room.for_all(2))
    assert gate.arrive("chat", 1.0).is_inside
    assert gate.arrive("chat", 1.0).is_inside
    assert not gate.arrive("chat", 1.0).is_inside
    assert gate.count_waiting() == {"chat": 1}


async def test_the_earliest_deadline_goes_first_and_ties_by_arrival() -> None:
    gate = Gate(Room.for_all(1))
    inside = gate.arrive("chat", 0.0)
    late, first, second = (gate.arrive("chat", d) for d in (9.0, 5.0, 5.0))
    order: list[Ticket] = []
    for _ in range(3):
        gate.leave(inside)
        (inside,) = [t for t in (late, first, second) if t.is_inside]
        order.append(inside)
    assert order == [first, second, late]


async def test_a_batch_request_ages_past_later_chats() -> None:
    gate = Gate(Room.for_all(1))
    inside = gate.arrive("chat", 0.5)
    batch = gate.arrive("batch", 0.0 + 30)
    chat = gate.arrive("chat", 29.9 + 0.5)
    gate.leave(inside)
    assert batch.is_inside
    assert not chat.is_inside


async def test_who_gives_up_keeps_no_place() -> None:
    gate = Gate(Room.for_all(1))
    inside = gate.arrive("chat", 0.0)
    impatient, patient = gate.arrive("chat", 1.0), gate.arrive("chat", 2.0)
    gate.leave(impatient)
    gate.leave(impatient)
    gate.leave(inside)
    gate.leave(inside)
    assert patient.is_inside
    assert gate.num_inside == 1


async def test_a_larger_gate_lets_in_at_once_and_a_smaller_throws_nobody_out() -> None:
    gate = Gate(Room.for_all(1))
    tickets = [gate.arrive("chat", float(d)) for d in range(4)]
    gate.resize(Room.for_all(3))
    assert [t.is_inside for t in tickets] == [True, True, True, False]
    gate.resize(Room.for_all(1))
    assert gate.num_inside == 3
    gate.leave(tickets[0])
    assert not tickets[3].is_inside


async def test_who_cannot_wait_goes_in_beside_those_that_can() -> None:
    clock = ManualClock(0.0)
    gate = Gate(Room(urgent=3, patient=2, late=2, urgent_s=1.0), clock=clock)
    slow = [gate.arrive("batch", 30.0), gate.arrive("batch", 31.0)]
    waiting = gate.arrive("batch", 32.0)
    assert not waiting.is_inside
    urgent = gate.arrive("chat", 0.5)
    assert urgent.is_inside
    assert gate.num_inside == 3
    second = gate.arrive("chat", 0.6)
    assert not second.is_inside
    gate.leave(urgent)
    assert second.is_inside
    # Who could wait cannot any more.
    clock.now_s = 31.5
    gate.leave(slow[0])
    assert waiting.is_inside
    assert gate.num_inside == 3


async def test_there_may_be_less_room_for_who_is_late() -> None:
    clock = ManualClock(0.0)
    gate = Gate(Room(urgent=2, patient=2, late=1, urgent_s=1.0), clock=clock)
    first = gate.arrive("chat", 0.5)
    gate.arrive("chat", 0.5)
    late = gate.arrive("chat", 0.6, latest_s=0.6)
    clock.now_s = 0.7
    gate.leave(first)
    assert not late.is_inside
    assert gate.arrive("chat", 1.2, latest_s=1.2).is_inside
    gate.resize(Room.for_all(3))
    assert late.is_inside


async def test_who_is_late_makes_room_for_who_can_be_in_time() -> None:
    clock = ManualClock(0.0)
    gate = Gate(Room.for_all(1), clock=clock)
    inside = gate.arrive("chat", 0.5)
    late = gate.arrive("chat", 0.6, latest_s=0.6)
    clock.now_s = 0.7
    fresh = gate.arrive("chat", 1.2, latest_s=1.2)
    gate.leave(inside)
    assert (late.is_inside, late.standing) == (False, Standing.LATE)
    assert fresh.is_inside
    # It is not forgotten: with nobody in time waiting its turn comes.
    gate.leave(fresh)
    assert late.is_inside


async def test_a_queue_longer_than_a_limit_makes_those_at_its_end_doubtful() -> None:
    clock = ManualClock(0.0)
    gate = Gate(Room.for_all(1), clock=clock)
    tickets = [gate.arrive("chat", float(n), 10.0, 1000.0) for n in range(60)]
    for ticket in tickets[:40]:
        clock.now_s += 1
        gate.leave(ticket)
    # One a second, 19 wait.
    now_s = clock.now_s
    assert gate.least_wait_s(100.0) == pytest.approx(19, abs=1)
    assert gate.least_wait_s(0.0) == 0.0
    hopeful = gate.arrive("chat", 100.0, 10.0, now_s + 25)
    doubtful = gate.arrive("chat", 100.0, 10.0, now_s + 15)
    assert (hopeful.standing, doubtful.standing) == (Standing.IN_TIME, Standing.DOUBTFUL)
    # Of a class that has had no turn of late nothing is to be expected.
    patient = gate.arrive("batch", 200.0, 60.0, now_s + 60)
    assert patient.standing is Standing.IN_TIME
    assert gate.arrive("batch", 300.0, 60.0, now_s + 60).standing is Standing.DOUBTFUL


async def test_a_full_queue_pushes_out_its_last_or_takes_nobody() -> None:
    gate = Gate(Room.for_all(1), max_waiting=2)
    gate.arrive("chat", 0.0)
    first, last = gate.arrive("chat", 1.0), gate.arrive("chat", 3.0)
    with pytest.raises(GateFullError):
        gate.arrive("chat", 4.0)
    assert not gate.arrive("chat", 2.0).was_pushed_out
    assert last.was_pushed_out and last.let_in.cancelled()
    assert not first.was_pushed_out
    assert gate.count_waiting() == {"chat": 2}
    gate.leave(last)
    assert gate.count_waiting() == {"chat": 2}


@settings(deadline=None)
@given(
    room=st.builds(
        Room,
        urgent=st.integers(4, 7),
        patient=st.integers(1, 4),
        late=st.integers(1, 4),
        urgent_s=st.floats(0, 10),
    ),
    events=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=80),
)
async def test_whoever_waits_has_a_reason(room: Room, events: list[tuple[int, int]]) -> None:
    """Any arrivals, departures and times: the places are bounded and used, the order is kept."""
    clock = ManualClock(0.0)
    gate = Gate(room, max_waiting=5, clock=clock)
    present: list[Ticket] = []
    for kind, number in events:
        clock.now_s += 0.1
        if kind == 0 and present:
            gate.leave(present.pop(number % len(present)))
        else:
            latest_s = clock.now_s + number * 0.2 * kind
            with suppress(GateFullError):
                present.append(gate.arrive("chat", float(number), 1.0, latest_s))
        inside = [t for t in present if t.is_inside]
        waiting = [t for t in present if not t.is_inside and not t.was_pushed_out]
        assert gate.num_inside == len(inside) <= room.urgent
        fewest = min(room.patient, room.late)
        assert len(inside) >= min(fewest, len(inside) + len(waiting))
        assert sum(gate.count_waiting().values()) == len(waiting) <= 5
        assert all(t.let_in.done() == (t.is_inside or t.was_pushed_out) for t in present)
    for ticket in present:
        gate.leave(ticket)
    assert (gate.num_inside, gate.count_waiting()) == (0, {})


@settings(deadline=None)
@given(
    capacity=st.integers(1, 4),
    events=st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=80),
)
async def test_the_gate_is_full_or_nobody_waits(
    capacity: int, events: list[tuple[bool, int]]
) -> None:
    gate = Gate(Room.for_all(capacity))
    present: list[Ticket] = []
    for arrives, number in events:
        if arrives or not present:
            present.append(gate.arrive("chat", float(number)))
        else:
            gate.leave(present.pop(number % len(present)))
        inside = [t for t in present if t.is_inside]
        waiting = [t for t in present if not t.is_inside]
        assert gate.num_inside == len(inside) == min(capacity, len(present))
        assert sum(gate.count_waiting().values()) == len(waiting)
        assert all(t.let_in.done() == t.is_inside for t in present)
    for ticket in present:
        gate.leave(ticket)
    assert gate.num_inside == 0
