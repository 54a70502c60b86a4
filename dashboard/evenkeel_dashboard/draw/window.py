"""A time range as queries take it and charts show it."""

from __future__ import annotations

from dataclasses import dataclass, replace

_RAW_UP_TO_S = 6 * 3_600
# A rollup of whole minutes says little of a shorter range.
_SHORTEST_ROLLUP_S = 600
MAX_RAW_REQUESTS = 150_000
MAX_MINUTE_REQUESTS = 3_000_000
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Window:
    """A time range as the queries take it, with the width of a step of its series.

    Attributes:
        from_ms: Begin, Unix milliseconds.
        to_ms: End, exclusive.
        step_s: Width of a step.
        is_busy: Whether it holds too many requests to read them one by one.
    """

    from_ms: int
    to_ms: int
    step_s: int
    is_busy: bool = False

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return (self.to_ms - self.from_ms) / 1000

    @property
    def is_long(self) -> bool:
        """Whether series are read from the minute rollup instead of the requests."""
        return self.is_busy or self.duration_s > _RAW_UP_TO_S

    def sized(self, num_requests: float) -> Window:
        """Return the window, read from the minute rollup if it holds too many requests.

        Of the rollup a step is a whole number of minutes; of very many requests over a day or
        more, of hours, for which there is a rollup of its own.
        """
        if num_requests <= MAX_RAW_REQUESTS or self.duration_s < _SHORTEST_ROLLUP_S:
            return self
        is_huge = num_requests > MAX_MINUTE_REQUESTS and self.duration_s >= _DAY_S
        return replace(self, is_busy=True, step_s=max(3_600 if is_huge else 60, self.step_s))

    def newest(self, num_requests: float) -> Window:
        """Return the last hour of a window that holds too many requests to rank them all."""
        if num_requests <= MAX_MINUTE_REQUESTS:
            return self
        return replace(self, from_ms=max(self.from_ms, self.to_ms - 3_600_000))

    def before(self) -> Window:
        """Return the window of the same length that ends where this one begins."""
        return replace(self, from_ms=2 * self.from_ms - self.to_ms, to_ms=self.from_ms)
