"""A circuit breaker a receiver: who fails again and again is left alone for a while."""

from __future__ import annotations

from dataclasses import dataclass

FAILURES_TO_OPEN = 5
OPEN_UNITS = 30.0


@dataclass(slots=True)
class Breaker:
    """Opens after five failures in a row; then lets one attempt through every thirty units.

    While open, notifications wait without being attempted, and without counting as failed.
    """

    unit_s: float = 1.0
    num_failures: int = 0
    closed_from_ns: int = 0

    @property
    def is_open(self) -> bool:
        """Return whether the receiver is left alone but for an attempt now and then."""
        return self.num_failures >= FAILURES_TO_OPEN

    def may_try(self, now_ns: int) -> bool:
        """Return whether an attempt may be made, without taking the chance."""
        return not self.is_open or now_ns >= self.closed_from_ns

    def lets_through(self, now_ns: int) -> bool:
        """Return whether an attempt may be made; while open, asking takes the one chance."""
        if not self.is_open:
            return True
        if not self.may_try(now_ns):
            return False
        self.closed_from_ns = now_ns + int(OPEN_UNITS * self.unit_s * 1e9)
        return True

    def record(self, is_reached: bool, now_ns: int) -> None:
        """Take in how an attempt ended: whether the receiver takes notifications."""
        self.num_failures = 0 if is_reached else self.num_failures + 1
        if self.is_open:
            self.closed_from_ns = now_ns + int(OPEN_UNITS * self.unit_s * 1e9)
