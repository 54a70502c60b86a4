"""Notices requests that reach the store long after their time, so that they are counted too.

An exporter that was cut off, a store that was down or an import bring rows of hours or days ago. A
cycle looks back for minutes only; what came for an earlier time shows in the number of stored rows.
"""

from __future__ import annotations

from collector.slo_store import SloStore
from collector.slo_track import SECOND_NS

_WIDTH_NS = 300 * SECOND_NS


class Arrivals:
    """The number of stored requests by five minutes of their start, as it was when last looked at.

    Rows that went, by retention or erasure, are no arrivals: what was counted stays counted until
    the next start.
    """

    def __init__(self, store: SloStore) -> None:
        self._store = store
        self._seen: dict[int, int] = {}
        self._until_ns: int | None = None
        self._found: tuple[dict[int, int], int] = ({}, 0)

    def since(self, from_ns: int, now_ns: int) -> int | None:
        """Return where the oldest requests begin that came since the last noted look; None: none.

        What began within the five minutes before that look, or later, is not looked at.

        Args:
            from_ns: Older requests do not matter.
            now_ns: The moment of this look.

        Raises:
            StoreError: If the store is gone or refuses the query.
        """
        rows = self._store.read("slo_arrivals", {"from_ns": from_ns, "to_ns": now_ns})
        found = {row["from_ns"]: row["num_requests"] for row in rows}
        self._found = found, now_ns
        until_ns = self._until_ns
        if until_ns is None:
            return None
        return min(
            (
                begin_ns
                for begin_ns, num_requests in found.items()
                if begin_ns >= from_ns
                and begin_ns + _WIDTH_NS <= until_ns
                and num_requests > self._seen.get(begin_ns, 0)
            ),
            default=None,
        )

    def note(self) -> None:
        """Take what the last look found as counted."""
        self._seen, self._until_ns = self._found
