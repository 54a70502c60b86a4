"""The gate: a bounded number of requests in the engine, earliest deadline first."""

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

# Maximum queue length; beyond it, the last in order is refused.
MAX_WAITING = 4096
# A forecast this much longer than the time left makes a request doubtful, since forecasts vary.
_MARGIN = 1.1


class Standing(IntEnum):
    """Whether a waiting request can still be in time, in the order of service."""

    IN_TIME = 0
    DOUBTFUL = 1
    LATE = 2


@dataclass(frozen=True, slots=True)
class Room:
    """Maximum number of requests inside, by the urgency of the next one to enter.

    Attributes:
        urgent: For a request that can be in time and is due within `urgent_s`.
        patient: For one that can be in time and is due later.
        late: For one that is late or probably will be.
        urgent_s: Boundary between urgent and patient, in seconds.
    """

    urgent: int
    patient: int
    late: int
    urgent_s: float = 0.0

    @classmethod
    def for_all(cls, num: int) -> Room:
        """Return the same number for every kind of request."""
        return cls(num, num, num)


class GateFullError(EvenkeelError):
    """The queue is full and the new request would be last."""


@dataclass(order=True, slots=True)
class Ticket:
    """One request at the gate, waiting until `let_in` is done; cancelled if it gave up.

    Attributes:
        standing: Whether it can be in time.
        deadline_s: When its first token is due, on any one clock; the order within a standing.
        number: Its place among requests with the same deadline.
        slo_class: Its class.
        limit_s: The limit of its class; shorter limits keep going first.
        latest_s: If let in later than this, it cannot be in time.
        let_in: Done when it may enter; cancelled if it gave up or was pushed out.
        is_inside: Whether it occupies a place.
        was_pushed_out: Whether it was last in a full queue.
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
    """Admits requests, earliest deadline first, so that waiting requests move up.

    Requests that can still be in time go before those that probably cannot, and those before late
    ones, so that under overload as many as possible are in time. Requests cannot be evicted from
    the engine, so patient and late requests may get fewer places than urgent ones.

    Args:
        room: How many may be inside.
        max_waiting: Maximum number of waiting requests.
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
        """Change how many may be inside; no request is evicted."""
        self._room = room
        self.let_in()

    def count_waiting(self) -> Counter[str]:
        """Return how many wait, by class."""
        return Counter(ticket.slo_class for ticket in self._queue)

    def least_wait_s(self, deadline_s: float) -> float:
        """Return the wait for a request with this deadline, at the best recent pace.

        Counts the requests ahead of it; later arrivals with earlier deadlines only make it longer.
        0 without a queue, or before the pace is known.
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
        """Join the queue, or enter at once.

        Args:
            slo_class: Its class.
            deadline_s: When it is due.
            limit_s: The limit of its class.
            latest_s: If let in later than this, it cannot be in time.

        Raises:
            GateFullError: If the queue is full and all in it go first.
        """
        standing = Standing.IN_TIME
        if self._forecast_s(deadline_s, limit_s) * _MARGIN > latest_s - self._clock():
            standing = Standing.DOUBTFUL
        let_in = asyncio.get_running_loop().create_future()
        number = next(self._numbers)
        ticket = Ticket(standing, deadline_s, number, slo_class, limit_s, latest_s, let_in)
        if len(self._queue) >= self._max_waiting:
            if ticket > self._queue[-1]:
                raise GateFullError(f"{self._max_waiting} requests are already waiting")
            last = self._queue.pop()
            last.was_pushed_out = True
            last.let_in.cancel()
        insort(self._queue, ticket)
        self.let_in()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Free the place of a request that has finished or gives up waiting."""
        if ticket.is_inside:
            ticket.is_inside = False
            self._num_inside -= 1
        elif not ticket.let_in.done():
            del self._queue[bisect_left(self._queue, ticket)]
        ticket.let_in.cancel()
        self.let_in()

    def let_in(self) -> None:
        """Let in those who may enter by now; time alone can make a request urgent or late."""
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

    def _count_before(self, deadline_s: float) -> int:
        keys = (Standing.IN_TIME, deadline_s)
        return bisect_right(self._queue, keys, key=lambda t: (t.standing, t.deadline_s))

    def _forecast_s(self, deadline_s: float, limit_s: float) -> float:
        """Return the expected wait, given that shorter limits keep arriving; 0 if unknown.

        Requests ahead of it with a shorter limit are part of those arrivals.
        """
        if not self._queue or self._pace.per_s() is None:
            return 0.0
        before = self._queue[: self._count_before(deadline_s)]
        num_before = sum(1 for ticket in before if ticket.limit_s >= limit_s)
        per_s = self._pace.per_s(limit_s)
        if not num_before:
            return 0.0
        return num_before / per_s if per_s else math.inf

    def _places_for(self, ticket: Ticket, now_s: float) -> int:
        if ticket.standing is not Standing.IN_TIME:
            return self._room.late
        is_urgent = ticket.deadline_s - now_s <= self._room.urgent_s
        return self._room.urgent if is_urgent else self._room.patient
