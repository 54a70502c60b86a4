"""Circuit breaker: leaves a failing receiver alone, except for an occasional attempt."""

from dataclasses import dataclass

FAILURES_TO_OPEN = 5
OPEN_UNITS = 30.0


@dataclass(slots=True)
class Breaker:
    """A circuit breaker: after five consecutive failures it allows one attempt per 30 units.

    While it is open, notifications wait; they are not attempted and do not count as failed.
    """

    unit_s: float = 1.0
    num_failures: int = 0
    closed_from_ns: int = 0

    @property
    def is_open(self) -> bool:
        """Return whether the breaker is open, with only occasional attempts."""
        return self.num_failures >= FAILURES_TO_OPEN

    def may_try(self, now_ns: int) -> bool:
        """Return whether an attempt is allowed, without claiming it."""
        return not self.is_open or now_ns >= self.closed_from_ns

    def try_acquire(self, now_ns: int) -> bool:
        """Return whether an attempt is allowed; while open, this claims the only one."""
        if not self.is_open:
            return True
        if not self.may_try(now_ns):
            return False
        self.closed_from_ns = now_ns + int(OPEN_UNITS * self.unit_s * 1e9)
        return True

    def record(self, is_reached: bool, now_ns: int) -> None:
        """Record the result of an attempt: whether the receiver accepts notifications."""
        self.num_failures = 0 if is_reached else self.num_failures + 1
        if self.is_open:
            self.closed_from_ns = now_ns + int(OPEN_UNITS * self.unit_s * 1e9)
