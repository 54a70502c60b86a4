"""Finds requests that reach the store long after they ended, so that they are counted too.

An exporter that batches for minutes delivers rows that a cycle no longer looks for. An exporter
that was cut off, a store that was down or an import deliver rows that are hours or days old. Late
rows show up as a change in the number of stored rows per time bucket.
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
# Together with the cycle interval, rows 1 to 15 minutes late are counted within half a minute.
_RECENT_EVERY_NS = 15 * SECOND_NS
_RECENT_WIDTH_NS = 15 * SECOND_NS
_RECENT_NS = 960 * SECOND_NS


class Arrivals:
    """The number of stored requests per five minutes of start time, as of the last check.

    Only days whose number of requests changed are read again. Rows removed by retention or erasure
    are not arrivals; if as many rows left a day as arrived, the arrivals go unnoticed.
    """

    def __init__(self, store: SloStore) -> None:
        self._store = store
        self._committed = _Look()
        self._latest = _Look()

    def since(self, from_ns: int, now_ns: int) -> int | None:
        """Return the start time of the oldest late request since the last committed check, or None.

        Requests that began within the five minutes before that check, or later, are ignored.

        Args:
            from_ns: Ignore older requests.
            now_ns: The time of this check.

        Raises:
            StoreError: If the store is unavailable or rejects the query.
        """
        # `commit` must not accept a check that failed.
        committed = self._latest = self._committed
        # Read before the requests, so that rows arriving in between change the number again.
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
        """Accept the last check: everything it found has been counted."""
        self._committed = self._latest


class RecentArrivals:
    """The number of stored requests per 15 seconds of end time, over the last 16 minutes.

    Reads two columns in one query; nothing is recounted if nothing arrived late.
    """

    def __init__(self, store: SloStore) -> None:
        self._store = store
        self._committed = self._latest = _RecentLook()

    def is_due(self, now_ns: int) -> bool:
        """Return whether the last committed check is old enough to repeat."""
        return self._committed.at_ns is None or now_ns - self._committed.at_ns >= _RECENT_EVERY_NS

    def since(self, now_ns: int, late_ns: int) -> int | None:
        """Return the oldest time for which requests arrived since the committed check, or None.

        Args:
            now_ns: The time of this check.
            late_ns: Requests that ended within this time are read anyway.

        Raises:
            StoreError: If the store is unavailable or rejects the query.
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
        """Accept the last check: everything it found has been counted."""
        self._committed = self._latest


def _day(begin_ns: int) -> date:
    return to_datetime(begin_ns).date()


@dataclass(frozen=True, slots=True)
class _Look:
    """Requests per day and per five minutes of start; `at_ns` is None before the first check."""

    at_ns: int | None = None
    days: Mapping[date, int] = field(default_factory=dict)
    found: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _RecentLook:
    """Requests per bucket of end time; `at_ns` is None before the first check."""

    at_ns: int | None = None
    found: Mapping[int, int] = field(default_factory=dict)
