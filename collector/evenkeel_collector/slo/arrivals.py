"""Notices requests that reach the store long after their time, so that they are counted too.

An exporter that batches for minutes brings rows that a cycle no longer looks for; one that was cut
off, a store that was down or an import bring rows of hours or days ago. What came for an earlier
time shows in the number of stored rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from evenkeel.slo.query import MAX_REQUEST_NS
from evenkeel.times import to_datetime
from evenkeel_collector.slo.store import SloStore
from evenkeel_collector.slo.track import SECOND_NS

_HERE = Path(__file__).parent
_WIDTH_NS = 300 * SECOND_NS
# With the interval between cycles, what is late by 1 to 15 minutes counts after half a minute.
_RECENT_EVERY_NS = 15 * SECOND_NS
_RECENT_WIDTH_NS = 15 * SECOND_NS
_RECENT_NS = 960 * SECOND_NS


class Arrivals:
    """The number of stored requests by five minutes of their start, as it was when last looked at.

    Only days whose number of requests has changed are looked at anew. Rows that went, by retention
    or erasure, are no arrivals; on a day where as many went as came, those that came are not seen.
    """

    def __init__(self, store: SloStore) -> None:
        self._store = store
        self._committed = _Look()
        self._latest = _Look()

    def since(self, from_ns: int, now_ns: int) -> int | None:
        """Return the start of the oldest requests since the last committed look; None: none.

        What began within the five minutes before that look, or later, is not looked at.

        Args:
            from_ns: Older requests do not matter.
            now_ns: The moment of this look.

        Raises:
            StoreError: If the store is gone or refuses the query.
        """
        # A look that fails is not one that `commit` may take.
        committed = self._latest = self._committed
        # Before the requests: what comes in between changes the number again.
        rows = self._store.read(_HERE / "slo_arrival_days.sql", {})
        days = {row["day"]: row["num_requests"] for row in rows}
        changed = {day for day, number in days.items() if committed.days.get(day) != number}
        rows = self._store.read(
            _HERE / "slo_arrivals.sql",
            {"days": sorted(changed), "from_ns": from_ns, "to_ns": now_ns},
        )
        found = {row["from_ns"]: row["num_requests"] for row in rows}
        kept = {
            begin_ns: number
            for begin_ns, number in committed.found.items()
            if begin_ns >= from_ns and _day(begin_ns) in days and _day(begin_ns) not in changed
        }
        self._latest = _Look(now_ns, days, kept | found)
        if committed.at_ns is None:
            return None
        return min(
            (
                begin_ns
                for begin_ns, number in found.items()
                if begin_ns >= from_ns
                and begin_ns + _WIDTH_NS <= committed.at_ns
                and number > committed.found.get(begin_ns, 0)
            ),
            default=None,
        )

    def commit(self) -> None:
        """Take what the last look found as counted."""
        self._committed = self._latest


class RecentArrivals:
    """The number of stored requests by a quarter of a minute of their end, of the last 16 minutes.

    One query that reads two columns; no count is made anew where nothing came late.
    """

    def __init__(self, store: SloStore) -> None:
        self._store = store
        self._committed = self._latest = _RecentLook()

    def is_due(self, now_ns: int) -> bool:
        """Return whether the last committed look is long enough ago."""
        return self._committed.at_ns is None or now_ns - self._committed.at_ns >= _RECENT_EVERY_NS

    def since(self, now_ns: int, late_ns: int) -> int | None:
        """Return the oldest moment for which requests came since the committed look; None: none.

        Args:
            now_ns: The moment of this look.
            late_ns: What ended within this time is read in any case.

        Raises:
            StoreError: If the store is gone or refuses the query.
        """
        committed = self._latest = self._committed
        from_ns = (now_ns - _RECENT_NS) // _RECENT_WIDTH_NS * _RECENT_WIDTH_NS
        span = {"from_ns": from_ns, "to_ns": now_ns, "max_request_ns": MAX_REQUEST_NS}
        rows = self._store.read(
            _HERE / "slo_recent_arrivals.sql", {"width_ns": _RECENT_WIDTH_NS, **span}
        )
        found = {row["bucket"]: row["num_requests"] for row in rows}
        self._latest = _RecentLook(now_ns, found)
        if committed.at_ns is None:
            return None
        late = (
            bucket * _RECENT_WIDTH_NS
            for bucket, number in found.items()
            if bucket * _RECENT_WIDTH_NS < now_ns - late_ns
            and number > committed.found.get(bucket, 0)
        )
        return min(late, default=None)

    def commit(self) -> None:
        """Take what the last look found as counted."""
        self._committed = self._latest


def _day(begin_ns: int) -> date:
    return to_datetime(begin_ns).date()


@dataclass(frozen=True, slots=True)
class _Look:
    """Numbers of requests by day and by the start of five minutes; `at_ns` None: never looked."""

    at_ns: int | None = None
    days: Mapping[date, int] = field(default_factory=dict)
    found: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _RecentLook:
    """Numbers of requests by bucket of their end; `at_ns` None: never looked."""

    at_ns: int | None = None
    found: Mapping[int, int] = field(default_factory=dict)
