"""The past windows of cohorts, kept in memory: what spikes are compared with."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenkeel.slo.model import SELECTOR_COLUMNS
from evenkeel.slo.query import MAX_REQUEST_NS
from evenkeel.slo.spike_measures import SPIKE_MEASURES, SpikeKind
from evenkeel.slo.spikes import PAST_LEVELS, Spike, SpikePast
from evenkeel_collector.slo.store import SloStore

Cohort = tuple[str, ...]
SEPARATOR = "\x1f"
_OLDEST = Path(__file__).parent / "spike_oldest.sql"
_SECOND_NS = 10**9
# The past is read in pieces, as many in a cycle as fit into this time.
_PIECE_NS = 7200 * _SECOND_NS
_PIECES_S = 1.0
# Rows arrive after a request ends; the two newest windows are read again, for those that come late.
_LATE_NS = 60 * _SECOND_NS
_READ_AGAIN = 2
_NO_LIMIT = 2**32 - 1
# A ClickHouse server takes 128 KiB in a field of a form, in which names may be escaped.
_MAX_PARAMETER_BYTES = 32 * 1024
# Of each measure, the rows of an array: the number of requests, and its values by quantile.
_QUANTILES = {level: row for row, level in enumerate(PAST_LEVELS, 1)}
_NUM_ROWS = {SpikeKind.TOKENS: 3, SpikeKind.SHARE: 2}


def _first_rows() -> tuple[Mapping[str, int], int]:
    rows, num = {}, 0
    for name, measure in SPIKE_MEASURES.items():
        rows[name] = num
        num += _NUM_ROWS[measure.kind]
    return rows, num


_ROW_OF, _NUM = _first_rows()


class SpikePasts:
    """The past of the cohorts of rules that have the same window and cohorts.

    Some 0.2 MB for each cohort, with windows of five minutes.

    Args:
        store: Where requests are stored.
        test: One of the rules.
        select: What it selects.
        now_ns: The current time.
    """

    def __init__(
        self, store: SloStore, test: Spike, select: Mapping[str, str], now_ns: int
    ) -> None:
        self._store = store
        self._test = test
        self._select = {column: select.get(column, "") for column in SELECTOR_COLUMNS}
        self._width_ns = int(test.over_s * _SECOND_NS)
        self._num = test.num_past
        self._end = self._complete(now_ns)
        self._arrays: dict[Cohort, NDArray[np.float32]] = {}
        self._loading: tuple[Cohort, ...] = ()
        self._waiting: dict[Cohort, None] = {}
        self._piece_end = self._end
        self._begin = 0

    @property
    def is_loading(self) -> bool:
        """Whether the past of a cohort is still to be read."""
        return bool(self._loading or self._waiting)

    def newest(self, now_ns: int, min_requests: int, most: int) -> list[dict[str, Any]]:
        """Return the newest windows of the busiest cohorts of each tenant, busiest first.

        Raises:
            StoreError: If the store is unavailable or rejects the query.
        """
        from_ns = now_ns - 4 * self._width_ns
        rows = self._read(from_ns, now_ns, False, (), min_requests, 20 * most)
        return sorted(rows, key=lambda row: row["num_requests"], reverse=True)

    def follow(self, cohorts: Collection[Cohort], now_ns: int) -> None:
        """Keep these cohorts, and read the windows that are complete since the last call.

        Raises:
            StoreError: If the store is unavailable or rejects the query.
        """
        for cohort in cohorts:
            if cohort not in self._arrays:
                self._waiting[cohort] = None
        end = self._complete(now_ns)
        if end > self._end and self._arrays:
            first = max(self._end - _READ_AGAIN, end - self._num)
            rows = self._read_past(first, end, self._arrays)
            self._move(end)
            self._take(rows)
        self._move(end)

    def load(self) -> None:
        """Read some of the past of cohorts that are new, and at the end begin with the next.

        Raises:
            StoreError: If the store is unavailable or rejects the query.
        """
        if not self._loading:
            # Each piece costs a query, even one of before there was a store.
            (row,) = self._store.read(_OLDEST, {})
            self._begin = row["oldest_ns"] // self._width_ns
            self._loading, self._waiting = tuple(self._waiting), {}
            self._piece_end = self._end
            for cohort in self._loading:
                self._arrays[cohort] = np.full((_NUM, self._num), np.nan, np.float32)
        if not self._loading:
            return
        began_s = time.monotonic()
        while self._loading and time.monotonic() - began_s < _PIECES_S:
            oldest = max(self._end - self._num, self._begin)
            first = max(self._piece_end - max(_PIECE_NS // self._width_ns, 1), oldest)
            if self._piece_end > first:
                self._take(self._read_past(first, self._piece_end, self._loading))
            self._piece_end = first
            if first <= oldest:
                self._loading = ()

    def forget_all_but(self, cohorts: Collection[Cohort]) -> None:
        """Drop every other cohort."""
        self._arrays = {c: kept for c, kept in self._arrays.items() if c in cohorts}
        self._waiting = {cohort: None for cohort in self._waiting if cohort in cohorts}
        self._loading = tuple(cohort for cohort in self._loading if cohort in cohorts)

    @property
    def cohorts(self) -> Collection[Cohort]:
        """The cohorts whose past is known, or being read."""
        return self._arrays.keys()

    def find(self, cohort: Cohort, test: Spike) -> SpikePast | None:
        """Return the past of a cohort for one rule; None if it is not read yet."""
        array = self._arrays.get(cohort)
        if array is None or cohort in self._loading:
            return None
        row = _ROW_OF[test.measure]
        value = row + (_QUANTILES[test.quantile] if test.is_tokens else 1)
        return SpikePast(
            np.nan_to_num(array[row].astype(np.float64)), array[value].astype(np.float64)
        )

    def _complete(self, now_ns: int) -> int:
        """Return the number of the first window that is not complete."""
        return (now_ns - _LATE_NS) // self._width_ns

    def _move(self, end: int) -> None:
        by = min(max(end - self._end, 0), self._num)
        if by:
            for array in self._arrays.values():
                array[:, : self._num - by] = array[:, by:].copy()
                array[:, self._num - by :] = np.nan
        self._end = max(end, self._end)

    def _take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        oldest = self._end - self._num
        for row in rows:
            array = self._arrays.get(tuple(row["cohort"]))
            column = row["place"] - oldest
            if array is None or not 0 <= column < self._num:
                continue
            for name, measure in SPIKE_MEASURES.items():
                first = _ROW_OF[name]
                num = float(row[f"{name}_num"])
                if not num > 0:
                    continue
                array[first, column] = num
                if measure.kind is SpikeKind.TOKENS:
                    array[first + 1 : first + 3, column] = row[f"{name}_levels"]
                else:
                    array[first + 1, column] = row[name]

    def _read_past(self, first: int, end: int, cohorts: Iterable[Cohort]) -> list[dict[str, Any]]:
        from_ns, to_ns = first * self._width_ns, end * self._width_ns
        rows = []
        for some in in_pieces(cohorts):
            rows += self._read(from_ns, to_ns, True, some, 0, _NO_LIMIT)
        return rows

    def _read(
        self,
        from_ns: int,
        to_ns: int,
        is_past: bool,
        known: Sequence[str],
        min_requests: int,
        most: int,
    ) -> list[dict[str, Any]]:
        return self._store.spike_windows(
            {
                **self._select,
                "columns": list(self._test.by),
                "width_ns": self._width_ns,
                "above": self._test.above,
                "from_ns": from_ns,
                "to_ns": to_ns,
                "max_request_ns": MAX_REQUEST_NS,
                "is_past": int(is_past),
                "separator": SEPARATOR,
                "known": list(known),
                "min_requests": min_requests,
                "most": most,
            }
        )


def in_pieces(cohorts: Iterable[Cohort]) -> Iterator[list[str]]:
    """Return the cohorts as text, in pieces that a ClickHouse server accepts as a parameter."""
    piece, num_bytes = list[str](), 0
    for text in map(SEPARATOR.join, cohorts):
        size = len(text.encode())
        if piece and num_bytes + size > _MAX_PARAMETER_BYTES:
            yield piece
            piece, num_bytes = [], 0
        piece.append(text)
        num_bytes += size
    if piece:
        yield piece
