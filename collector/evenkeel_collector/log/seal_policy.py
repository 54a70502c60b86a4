"""When the open segment of the log is sealed, and so handed to the store.

An insert costs the store a fixed time, whatever it holds (docs/decisions/0200). So a small segment
waits: for a while after the one before it, and where readers are seen, until one comes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLimits:
    """When a segment is sealed, and when the log takes no more.

    Attributes:
        max_log_bytes: What segments and requests that wait for the disk may hold together.
        max_pending_bytes: What requests that wait for the disk may hold.
        seal_age_s: A segment is sealed at this age, unless the store has another one in hand, or
            it is small; at twice the time that the last insert took, if that is longer, up to
            `max_seal_age_s`.
        rest_s: A small segment is sealed so long after the one before it, at the earliest.
        unread_age_s: A small segment that nobody reads is sealed at this age; None if readers are
            not seen here, and each segment is to be stored as if one waited.
        small_spans: What a small segment has less than.
        seal_spans: As the age; what spans cost the store's memory is not in their bytes alone.
        seal_bytes: A segment is sealed at this size, whatever the store does.
    """

    max_log_bytes: int = 1 << 30
    max_pending_bytes: int = 128 << 20
    seal_age_s: float = 0.4
    max_seal_age_s: float = 2.0
    rest_s: float = 2.1
    unread_age_s: float | None = None
    small_spans: int = 2_000
    seal_spans: int = 51_200
    seal_bytes: int = 42 << 20


@dataclass(slots=True)
class SealPolicy:
    """Decides by the clock; times are those of `time.monotonic`.

    Attributes:
        limits: See there.
        insert_s: What the last insert took.
        sealed_s: When a segment was sealed last.
        is_asked_for: Whether a reader waits for the open segment.
    """

    limits: LogLimits
    insert_s: float = 0.0
    sealed_s: float = -math.inf
    is_asked_for: bool = False

    def due_s(self, begun_s: float, num_spans: int) -> float:
        """Return when a segment is sealed that stays as it is, while the store is free."""
        limits = self.limits
        if self.is_asked_for or num_spans >= limits.seal_spans:
            return -math.inf
        ripe_s = self._ripe_s(begun_s)
        if num_spans >= limits.small_spans:
            return ripe_s
        rested_s = max(ripe_s, self.sealed_s + limits.rest_s)
        if limits.unread_age_s is None:
            return rested_s
        return max(rested_s, begun_s + limits.unread_age_s)

    def ask(self, begun_s: float, rest_s: float, now_s: float) -> bool:
        """Have a segment sealed for a reader, unless it or the last one sealed is too young."""
        self.is_asked_for |= now_s >= max(begun_s + self.limits.seal_age_s, self.sealed_s + rest_s)
        return self.is_asked_for

    def record_sealed(self, now_s: float) -> None:
        """Begin anew with the next segment."""
        self.sealed_s = now_s
        self.is_asked_for = False

    def _ripe_s(self, begun_s: float) -> float:
        """Return when a segment is old enough for the store to rest most of the time."""
        limits = self.limits
        longest_s = max(limits.max_seal_age_s, limits.seal_age_s)
        return begun_s + min(max(limits.seal_age_s, 2 * self.insert_s), longest_s)
