"""The gate: capacity, order, and what happens to those who give up."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from runtime.control_gate import Gate, Ticket


def run(test: object) -> None:
    asyncio.run(test)  # type: ignore[arg-type]


def test_with_room_nobody_waits() -> None:
    async def scenario() -> None:
        gate = Gate(2)
        assert gate.arrive("chat", 1.0).is_inside
        assert gate.arrive("chat", 1.0).is_inside
        assert not gate.arrive("chat", 1.0).is_inside
        assert gate.count_waiting() == {"chat": 1}

    run(scenario())


def test_the_earliest_deadline_goes_first_and_ties_by_arrival() -> None:
    async def scenario() -> None:
        gate = Gate(1)
        inside = gate.arrive("chat", 0.0)
        late, first, second = (gate.arrive("chat", d) for d in (9.0, 5.0, 5.0))
        order: list[Ticket] = []
        for _ in range(3):
            gate.leave(inside)
            (inside,) = [t for t in (late, first, second) if t.is_inside]
            order.append(inside)
        assert order == [first, second, late]

    run(scenario())


def test_a_batch_request_ages_past_later_chats() -> None:
    async def scenario() -> None:
        gate = Gate(1)
        inside = gate.arrive("chat", 0.5)
        batch = gate.arrive("batch", 0.0 + 30)
        chat = gate.arrive("chat", 29.9 + 0.5)
        gate.leave(inside)
        assert batch.is_inside
        assert not chat.is_inside

    run(scenario())


def test_who_gives_up_keeps_no_place() -> None:
    async def scenario() -> None:
        gate = Gate(1)
        inside = gate.arrive("chat", 0.0)
        impatient, patient = gate.arrive("chat", 1.0), gate.arrive("chat", 2.0)
        gate.leave(impatient)
        gate.leave(impatient)
        gate.leave(inside)
        gate.leave(inside)
        assert patient.is_inside
        assert gate.num_inside == 1

    run(scenario())


def test_a_larger_gate_lets_in_at_once_and_a_smaller_throws_nobody_out() -> None:
    async def scenario() -> None:
        gate = Gate(1)
        tickets = [gate.arrive("chat", float(d)) for d in range(4)]
        gate.resize(3)
        assert [t.is_inside for t in tickets] == [True, True, True, False]
        gate.resize(1)
        assert gate.num_inside == 3
        gate.leave(tickets[0])
        assert not tickets[3].is_inside

    run(scenario())


@given(
    capacity=st.integers(1, 4),
    events=st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=80),
)
def test_the_gate_is_full_or_nobody_waits(capacity: int, events: list[tuple[bool, int]]) -> None:
    async def scenario() -> None:
        gate = Gate(capacity)
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

    run(scenario())
