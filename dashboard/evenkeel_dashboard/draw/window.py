"""The time range of a page's queries and charts."""

from __future__ import annotations

from dataclasses import dataclass, replace

_RAW_UP_TO_S = 6 * 3_600
# A minute rollup is too coarse for a shorter range.
_SHORTEST_ROLLUP_S = 600
MAX_RAW_REQUESTS = 150_000
MAX_MINUTE_REQUESTS = 3_000_000
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Window:
    """A time range for queries, with the step width of its series.

    Attributes:
        from_ms: Start, Unix milliseconds.
        to_ms: End, exclusive.
        step_s: Width of a step.
        is_busy: Whether it holds too many requests to read individually.
    """

    from_ms: int
    to_ms: int
    step_s: int
    is_busy: bool = False

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return (self.to_ms - self.from_ms) / 1000

    def covered_s(self, begin_ms: int) -> float:
        """Return the seconds inside the window of the step that begins then, 1 at least."""
        end_ms = min(begin_ms + self.step_s * 1000, self.to_ms)
        return max(1.0, (end_ms - max(begin_ms, self.from_ms)) / 1000)

    @property
    def is_long(self) -> bool:
        """Whether to read series from the minute rollup instead of the requests."""
        return self.is_busy or self.duration_s > _RAW_UP_TO_S

    def sized(self, num_requests: float) -> Window:
        """Return the window, set to read from the minute rollup if it holds too many requests.

        Rollup steps are whole minutes. For very many requests over a day or more they are whole
        hours, read from the hour rollup.
        """
        if num_requests <= MAX_RAW_REQUESTS or self.duration_s < _SHORTEST_ROLLUP_S:
            return self
        is_huge = num_requests > MAX_MINUTE_REQUESTS and self.duration_s >= _DAY_S
        return self.rolled(3_600 if is_huge else 60)

    def rolled(self, least_step_s: int = 60) -> Window:
        """Return the window, set to read from the minute rollup."""
        return replace(self, is_busy=True, step_s=max(least_step_s, self.step_s))

    def is_only_rolled(self, num_read: float, num_stored: float) -> bool:
        """Return whether only the rollup is left of it, which may be kept longer than the requests.

        Args:
            num_read: Requests that were read individually.
            num_stored: Requests that the rollup has.
        """
        is_rollable = not self.is_long and self.duration_s >= _SHORTEST_ROLLUP_S
        return is_rollable and not num_read and num_stored > 0

    def newest(self, num_requests: float) -> Window:
        """Return the window, cut to its last hour if it holds too many requests to rank."""
        if num_requests <= MAX_MINUTE_REQUESTS:
            return self
        return replace(self, from_ms=max(self.from_ms, self.to_ms - 3_600_000))

    def before(self) -> Window:
        """Return the window of the same length that ends where this one starts."""
        return replace(self, from_ms=2 * self.from_ms - self.to_ms, to_ms=self.from_ms)
