"""Decides when the log's open segment is sealed and handed to the store.

Each insert has a fixed cost, whatever its size (docs/decisions/0200). So a small segment waits: for
a while after the previous one, and if the collector sees its readers, until one needs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from evenkeel_collector.log.repeats import MARK_BYTES
from evenkeel_collector.log.segment_format import RECORD


class NeverFitsError(Exception):
    """The request exceeds what the log may hold: sending it again will not help."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    """When a segment is sealed, and when the log is full.

    Attributes:
        max_log_bytes: Limit for segments plus requests that wait for the disk.
        max_pending_bytes: Limit for requests that wait for the disk.
        seal_age_s: A segment is sealed at this age, unless the store is busy with another one, or
            it is small; at twice the time that the last insert took, if that is longer, up to
            `max_seal_age_s`.
        rest_s: A small segment is sealed at the earliest this long after the previous one.
        unread_age_s: A small segment without a waiting reader is sealed at this age; None if the
            collector cannot see readers: each segment is then stored as if a reader waited.
        small_spans: A segment with fewer spans is small.
        seal_spans: As the age; the store's memory per span does not depend on bytes alone.
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

    def check(self, num_bytes: int) -> None:
        """Refuse a payload that could not even be written to an empty log.

        Raises:
            NeverFitsError: If it is larger, with its head and digest.
        """
        limit = min(self.max_log_bytes, self.max_pending_bytes)
        size = RECORD.size + MARK_BYTES + num_bytes
        if size > limit:
            raise NeverFitsError(f"the log would keep {size} bytes of it, more than {limit}")


@dataclass(slots=True)
class SealPolicy:
    """Decides by the clock; times are those of `time.monotonic`.

    Attributes:
        limits: See `LogLimits`.
        insert_s: Duration of the last insert.
        sealed_s: When the last segment was sealed.
        is_requested: Whether a reader waits for the open segment.
    """

    limits: LogLimits
    insert_s: float = 0.0
    sealed_s: float = -math.inf
    is_requested: bool = False

    def due_s(self, begun_s: float, num_spans: int) -> float:
        """Return when a segment is sealed if it does not grow and the store is free."""
        limits = self.limits
        if self.is_requested or num_spans >= limits.seal_spans:
            return -math.inf
        ripe_s = self._ripe_s(begun_s)
        if num_spans >= limits.small_spans:
            return ripe_s
        rested_s = max(ripe_s, self.sealed_s + limits.rest_s)
        if limits.unread_age_s is None:
            return rested_s
        return max(rested_s, begun_s + limits.unread_age_s)

    def request(self, begun_s: float, rest_s: float, now_s: float) -> bool:
        """Seal the segment for a reader, unless it or the previous one is too young.

        With a rest of 0, neither is.
        """
        least_age_s = min(self.limits.seal_age_s, rest_s)
        self.is_requested |= now_s >= max(begun_s + least_age_s, self.sealed_s + rest_s)
        return self.is_requested

    def record_sealed(self, now_s: float) -> None:
        """Reset for the next segment."""
        self.sealed_s = now_s
        self.is_requested = False

    def _ripe_s(self, begun_s: float) -> float:
        """Return when a segment is old enough that the store idles most of the time."""
        limits = self.limits
        longest_s = max(limits.max_seal_age_s, limits.seal_age_s)
        return begun_s + min(max(limits.seal_age_s, 2 * self.insert_s), longest_s)
