"""The gate: at most so many requests in the engine, the earliest deadline first."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from dataclasses import dataclass, field
from itertools import count


@dataclass(order=True, slots=True)
class Ticket:
    """One request at the gate, waiting until `let_in` is done; a cancelled one has given up.

    Attributes:
        deadline_s: When its first token is due, on any one clock; the order of the gate.
        number: Its place among requests with the same deadline.
        slo_class: Its class.
        let_in: Done when it may go in.
        is_inside: Whether it takes a place.
    """

    deadline_s: float
    number: int
    slo_class: str = field(compare=False)
    let_in: asyncio.Future[None] = field(compare=False)
    is_inside: bool = field(default=False, compare=False)


class Gate:
    """Lets requests in by earliest deadline first, which is also what ages them.

    A deadline is fixed at arrival: whatever comes later, a request's turn comes. With room inside
    nobody waits.

    Args:
        capacity: Most requests inside.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._queue: list[Ticket] = []
        self._num_inside = 0
        self._numbers = count()

    @property
    def num_inside(self) -> int:
        """Requests inside."""
        return self._num_inside

    @property
    def capacity(self) -> int:
        """Most requests inside."""
        return self._capacity

    def resize(self, capacity: int) -> None:
        """Change how many may be inside; nobody is thrown out."""
        self._capacity = capacity
        self._let_in()

    def count_waiting(self) -> Counter[str]:
        """Return how many wait, by class."""
        return Counter(ticket.slo_class for ticket in self._queue if not ticket.let_in.done())

    def arrive(self, slo_class: str, deadline_s: float) -> Ticket:
        """Take a place in the queue, or at once inside."""
        let_in = asyncio.get_running_loop().create_future()
        ticket = Ticket(deadline_s, next(self._numbers), slo_class, let_in)
        heapq.heappush(self._queue, ticket)
        self._let_in()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Free the place of a request that is over, or that gives up waiting."""
        ticket.let_in.cancel()
        if ticket.is_inside:
            ticket.is_inside = False
            self._num_inside -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._queue:
            if self._queue[0].let_in.cancelled():
                heapq.heappop(self._queue)
            elif self._num_inside < self._capacity:
                ticket = heapq.heappop(self._queue)
                ticket.is_inside = True
                self._num_inside += 1
                ticket.let_in.set_result(None)
            else:
                return
