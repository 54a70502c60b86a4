"""The gate: at most so many requests in the engine, the earliest deadline first."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from time import monotonic

from evenkeel.errors import EvenkeelError
from evenkeel_runtime.control.pace import Pace

# Requests that may wait: beyond that, whoever would be last is refused.
MAX_WAITING = 4096
# A forecast this much longer than what is left makes a request doubtful: the queue is no clockwork.
_MARGIN = 1.1


class Standing(IntEnum):
    """Whether a waiting request can still be in time; the first goes first."""

    IN_TIME = 0
    DOUBTFUL = 1
    LATE = 2


@dataclass(frozen=True, slots=True)
class Room:
    """How many requests may be inside for another one to go in.

    Attributes:
        urgent: One that can be in time and is due within `urgent_s`.
        patient: One that can be in time and is due later.
        late: One that is late, or probably will be.
        urgent_s: Seconds.
    """

    urgent: int
    patient: int
    late: int
    urgent_s: float = 0.0

    @classmethod
    def for_all(cls, num: int) -> Room:
        """Return the same number for everybody."""
        return cls(num, num, num)


class GateFullError(EvenkeelError):
    """Nobody more may wait, and who came would be last."""


@dataclass(order=True, slots=True)
class Ticket:
    """One request at the gate, waiting until `let_in` is done; a cancelled one has given up.

    Attributes:
        standing: Whether it can be in time.
        deadline_s: When its first token is due, on any one clock; the order among its like.
        number: Its place among requests with the same deadline.
        slo_class: Its class.
        limit_s: The limit of its class, which says who keeps going before whom.
        latest_s: Let in after this, it cannot be in time.
        let_in: Done when it may go in; cancelled where it gave up or was pushed out.
        is_inside: Whether it takes a place.
        was_pushed_out: Whether the queue was full and it was the last.
    """

    standing: Standing
    deadline_s: float
    number: int
    slo_class: str = field(compare=False)
    limit_s: float = field(compare=False)
    latest_s: float = field(compare=False)
    let_in: asyncio.Future[None] = field(compare=False)
    is_inside: bool = field(default=False, compare=False)
    was_pushed_out: bool = field(default=False, compare=False)


class Gate:
    """Lets requests in by earliest deadline first, which is also what ages them.

    Requests that can still be in time go before those that probably cannot, and those before the
    ones that are late: under overload, when not all can be in time, as many as possible are. Nobody
    can be put out of the engine again, so there may be less room for those that can wait, and for
    those that are late, than for those that cannot wait.

    Args:
        room: How many may be inside.
        max_waiting: Most requests that wait.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        room: Room,
        max_waiting: int = MAX_WAITING,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._room = room
        self._max_waiting = max_waiting
        self._clock = clock
        self._queue: list[Ticket] = []
        self._num_inside = 0
        self._numbers = count()
        self._pace = Pace()

    @property
    def num_inside(self) -> int:
        """Requests inside."""
        return self._num_inside

    @property
    def room(self) -> Room:
        """How many may be inside."""
        return self._room

    def resize(self, room: Room) -> None:
        """Change how many may be inside; nobody is thrown out."""
        self._room = room
        self._let_in()

    def count_waiting(self) -> Counter[str]:
        """Return how many wait, by class."""
        return Counter(ticket.slo_class for ticket in self._queue)

    def least_wait_s(self, deadline_s: float) -> float:
        """Return the wait before a request with this deadline, at all the pace there was.

        Counts who waits before it in its order; whoever comes later with an earlier deadline only
        makes it longer. 0 without a queue, or before the pace is known.
        """
        per_s = self._pace.per_s()
        if not self._queue or per_s is None:
            return 0.0
        return self._count_before(deadline_s) / per_s

    def arrive(
        self,
        slo_class: str,
        deadline_s: float,
        limit_s: float = math.inf,
        latest_s: float = math.inf,
    ) -> Ticket:
        """Take a place in the queue, or at once inside.

        Args:
            slo_class: Its class.
            deadline_s: When it is due.
            limit_s: The limit of its class.
            latest_s: Let in after this, it cannot be in time.

        Raises:
            GateFullError: If as many wait as may, all before it.
        """
        standing = Standing.IN_TIME
        if self._forecast_s(deadline_s, limit_s) * _MARGIN > latest_s - self._clock():
            standing = Standing.DOUBTFUL
        let_in = asyncio.get_running_loop().create_future()
        number = next(self._numbers)
        ticket = Ticket(standing, deadline_s, number, slo_class, limit_s, latest_s, let_in)
        if len(self._queue) >= self._max_waiting:
            if ticket > self._queue[-1]:
                raise GateFullError(f"{self._max_waiting} requests wait already")
            last = self._queue.pop()
            last.was_pushed_out = True
            last.let_in.cancel()
        insort(self._queue, ticket)
        self._let_in()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Free the place of a request that is over, or that gives up waiting."""
        if ticket.is_inside:
            ticket.is_inside = False
            self._num_inside -= 1
        elif not ticket.let_in.done():
            del self._queue[bisect_left(self._queue, ticket)]
        ticket.let_in.cancel()
        self._let_in()

    def _count_before(self, deadline_s: float) -> int:
        keys = (Standing.IN_TIME, deadline_s)
        return bisect_right(self._queue, keys, key=lambda t: (t.standing, t.deadline_s))

    def _forecast_s(self, deadline_s: float, limit_s: float) -> float:
        """Return the wait to be expected, as those with shorter limits keep coming; 0 if unknown.

        Those waiting before it with a shorter limit are part of what keeps coming.
        """
        if not self._queue or self._pace.per_s() is None:
            return 0.0
        before = self._queue[: self._count_before(deadline_s)]
        num_before = sum(1 for ticket in before if ticket.limit_s >= limit_s)
        per_s = self._pace.per_s(limit_s)
        if not num_before:
            return 0.0
        return num_before / per_s if per_s else math.inf

    def _let_in(self) -> None:
        now_s = self._clock()
        while self._queue:
            first = self._queue[0]
            if first.standing is not Standing.LATE and now_s > first.latest_s:
                self._queue.pop(0)
                first.standing = Standing.LATE
                insort(self._queue, first)
            elif self._num_inside < self._places_for(first, now_s):
                self._queue.pop(0)
                first.is_inside = True
                self._num_inside += 1
                first.let_in.set_result(None)
                self._pace.record(first.limit_s, now_s)
            else:
                self._pace.begin(now_s)
                return
        self._pace.pause()

    def _places_for(self, ticket: Ticket, now_s: float) -> int:
        if ticket.standing is not Standing.IN_TIME:
            return self._room.late
        is_urgent = ticket.deadline_s - now_s <= self._room.urgent_s
        return self._room.urgent if is_urgent else self._room.patient
