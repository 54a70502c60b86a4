"""Notices requests that reach the store long after their time, so that they are counted too.

An exporter that was cut off, a store that was down or an import bring rows of hours or days ago. A
cycle looks back for minutes only; what came for an earlier time shows in the number of stored rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from collector.slo_store import SloStore
from collector.slo_track import SECOND_NS

_WIDTH_NS = 300 * SECOND_NS


class Arrivals:
    """The number of stored requests by five minutes of their start, as it was when last looked at.

    Only days whose number of requests has changed are looked at anew. Rows that went, by retention
    or erasure, are no arrivals; on a day where as many went as came, those that came are not seen.
    """

    def __init__(self, store: SloStore) -> None:
        self._store = store
        self._noted = _Look()
        self._latest = _Look()

    def since(self, from_ns: int, now_ns: int) -> int | None:
        """Return where the oldest requests begin that came since the last noted look; None: none.

        What began within the five minutes before that look, or later, is not looked at.

        Args:
            from_ns: Older requests do not matter.
            now_ns: The moment of this look.

        Raises:
            StoreError: If the store is gone or refuses the query.
        """
        # A look that fails is not one that `note` may take.
        noted = self._latest = self._noted
        # Before the requests: what comes in between changes the number again.
        rows = self._store.read("slo_arrival_days", {})
        days = {row["day"]: row["num_requests"] for row in rows}
        changed = {day for day, number in days.items() if noted.days.get(day) != number}
        rows = self._store.read(
            "slo_arrivals", {"days": sorted(changed), "from_ns": from_ns, "to_ns": now_ns}
        )
        found = {row["from_ns"]: row["num_requests"] for row in rows}
        kept = {
            begin_ns: number
            for begin_ns, number in noted.found.items()
            if begin_ns >= from_ns and _day(begin_ns) in days and _day(begin_ns) not in changed
        }
        self._latest = _Look(now_ns, days, kept | found)
        if noted.at_ns is None:
            return None
        return min(
            (
                begin_ns
                for begin_ns, number in found.items()
                if begin_ns >= from_ns
                and begin_ns + _WIDTH_NS <= noted.at_ns
                and number > noted.found.get(begin_ns, 0)
            ),
            default=None,
        )

    def note(self) -> None:
        """Take what the last look found as counted."""
        self._noted = self._latest


def _day(begin_ns: int) -> date:
    return datetime.fromtimestamp(begin_ns // SECOND_NS, UTC).date()


@dataclass(frozen=True, slots=True)
class _Look:
    """Numbers of requests by day and by the start of five minutes; `at_ns` None: never looked."""

    at_ns: int | None = None
    days: Mapping[date, int] = field(default_factory=dict)
    found: Mapping[int, int] = field(default_factory=dict)
