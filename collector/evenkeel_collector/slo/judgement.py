"""Judges many SLOs over the same rows at once, vectorized: `slo_rows` reads each request once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import re2
from numpy.typing import NDArray

from evenkeel.slo.good_events import (
    TOKEN_COLUMNS,
    is_known,
    is_treated,
    judge_durations,
    treatments_of_endings,
)
from evenkeel.slo.model import DURATIONS, SELECTOR_COLUMNS, Indicator, Treatment
from evenkeel.slo.query import CountedIndicator, Span, status_ranges
from evenkeel.slo.selection import MOST_STATUS, Filter

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_NUMBERS = (*DURATIONS, *(each for pair in TOKEN_COLUMNS.values() for each in pair), "weight")
# Limits of one read: the length of `matched` is one byte of 7 bits.
MOST_PATTERNS = 127
# Selections are cached up to this many times the rows; others are recomputed.
_KEPT_ROWS = 4
Wanted = Mapping[str, Sequence[str]]
# A column, and the RE2 pattern to search it for.
Pattern = tuple[str, str]


def _row_type(num_patterns: int) -> np.dtype[np.void]:
    """Return a row of `slo_rows`; `matched` is an array prefixed with its length."""
    return np.dtype(
        [("end_ns", "<i8"), ("ending", "u1")]
        + [(name, "<f8") for name in _NUMBERS]
        + [(f"{column}_code", "<u4") for column in SELECTOR_COLUMNS]
        + [("http_status", "<u2"), ("num_patterns", "u1"), ("matched", "u1", (num_patterns,))]
    )


@dataclass(frozen=True, slots=True)
class Buckets:
    """Valid and bad events in consecutive buckets; index 0 is bucket `first`."""

    first: int
    total: Floats
    bad: Floats

    @classmethod
    def covering(cls, span: Span, width_ns: int) -> Buckets:
        """Return empty buckets of one width covering a span."""
        first = span.from_ns // width_ns
        num = max((span.to_ns - 1) // width_ns - first + 1, 0)
        return cls(first, np.zeros(num), np.zeros(num))

    def add(self, numbers: NDArray[np.int64], total: Floats, bad: Floats) -> None:
        """Add events by the number of their bucket."""
        if len(numbers):
            places = numbers - self.first
            self.total[:] += np.bincount(places, weights=total, minlength=len(self.total))
            self.bad[:] += np.bincount(places, weights=bad, minlength=len(self.bad))


def wanted_values(parts: Sequence[CountedIndicator]) -> dict[str, list[str]]:
    """Return the values named by any part, by column: the parameters of `slo_rows`."""
    values: dict[str, list[str]] = {column: [] for column in SELECTOR_COLUMNS}
    for column, value in sorted({each for part in parts for each in _values(part.indicator)}):
        values[column].append(value)
    return values


def wanted_patterns(parts: Sequence[CountedIndicator]) -> list[Pattern]:
    """Return the patterns of any part, in the order of `matched`."""
    return sorted({each for part in parts for each in _patterns(part.indicator)})


def matched_sql(patterns: Sequence[Pattern], quote: Callable[[str], str]) -> str:
    """Return SQL for `matched`: an array with one flag per pattern, set if its column matches.

    Columns have few distinct values, and the store matches a constant pattern once per value.

    Args:
        patterns: The patterns to match.
        quote: Quotes a text as a SQL literal.
    """
    # A request without a value has ''.
    found = [
        f"ifNull(match(requests.{column}, {quote(pattern)}), {int(bool(re2.search(pattern, '')))})"
        for column, pattern in patterns
    ]
    return f"CAST([{', '.join(found)}], 'Array(UInt8)')"


def read_together(parts: Sequence[CountedIndicator]) -> list[list[int]]:
    """Return the indices of parts in groups that each fit into one read."""
    groups: list[list[int]] = []
    patterns: set[Pattern] = set()
    for place, part in enumerate(parts):
        patterns |= _patterns(part.indicator)
        if not groups or len(patterns) > MOST_PATTERNS:
            groups.append([])
            patterns = _patterns(part.indicator)
        groups[-1].append(place)
    return groups


def _values(indicator: Indicator) -> set[tuple[str, str]]:
    listed = {(f.column, value) for f in indicator.filters if f.is_list for value in f.values}
    return listed | set(indicator.select.items())


def _patterns(indicator: Indicator) -> set[Pattern]:
    return {(each.column, each.pattern) for each in indicator.filters if not each.is_list}


class Rows:
    """The rows of a time span, as returned by `slo_rows` in RowBinary.

    Args:
        content: The bytes.
        wanted: The parameters of the query.
        patterns: Those of `matched`.
    """

    def __init__(self, content: bytes, wanted: Wanted, patterns: Sequence[Pattern]) -> None:
        row = _row_type(len(patterns))
        rows = np.frombuffer(content, dtype=row)
        self._columns = {name: np.ascontiguousarray(rows[name]) for name in row.names or ()}
        self._codes = {c: {v: i + 1 for i, v in enumerate(wanted[c])} for c in SELECTOR_COLUMNS}
        self._places = {pattern: place for place, pattern in enumerate(patterns)}
        self._selected: dict[Any, dict[str, NDArray[np.generic]]] = {}
        self._sorted: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        self._room = _KEPT_ROWS * len(rows)

    def count(self, part: CountedIndicator, into: Buckets) -> None:
        """Add the part's events to its buckets."""
        columns = self._select(part.indicator)
        total, bad = judge(part.indicator, columns)
        valid = total > 0
        numbers = columns["end_ns"][valid].astype(np.int64) // part.width_ns
        into.add(numbers, total[valid], bad[valid])

    def _select(self, indicator: Indicator) -> dict[str, NDArray[np.generic]]:
        """Return the rows that an indicator selects; cached per selector."""
        key = (tuple(sorted(indicator.select.items())), indicator.filters)
        selected = self._selected.get(key)
        if selected is None:
            selected = self._columns
            places = self._places_of(indicator)
            if places is not None:
                selected = {name: values[places] for name, values in self._columns.items()}
            num_rows = len(selected["end_ns"])
            if num_rows <= self._room:
                self._room -= num_rows
                self._selected[key] = selected
        return selected

    def _places_of(self, indicator: Indicator) -> NDArray[np.int64] | None:
        """Return the indices of the selected rows, ascending; None for all of them."""
        wanted: list[tuple[str, tuple[str, ...]]] = [
            (column, (value,)) for column, value in sorted(indicator.select.items())
        ]
        wanted += [
            (each.column, each.values)
            for each in indicator.filters
            if each.is_list and not each.is_excluding
        ]
        places: NDArray[np.int64] | None = None
        for column, values in wanted:
            codes = sorted({self._codes[column][value] for value in values})
            if places is None:
                places = self._rows_with(column, codes)
            else:
                places = places[np.isin(self._columns[f"{column}_code"][places], codes)]
        for each in indicator.filters:
            if each.is_list and not each.is_excluding:
                continue
            is_kept = self._is_found(each, places) != each.is_excluding
            places = np.flatnonzero(is_kept) if places is None else places[is_kept]
        return places

    def _rows_with(self, column: str, codes: Sequence[int]) -> NDArray[np.int64]:
        """Return the indices of the rows with one of these codes, ascending.

        Rows are sorted by a column once: masking all of them per value would get slower with
        every value.
        """
        if column not in self._sorted:
            of_rows = self._columns[f"{column}_code"]
            order = np.argsort(of_rows, kind="stable")
            bounds = np.searchsorted(of_rows[order], np.arange(len(self._codes[column]) + 2))
            self._sorted[column] = order, bounds
        order, bounds = self._sorted[column]
        slices = [order[bounds[code] : bounds[code + 1]] for code in codes]
        return slices[0] if len(slices) == 1 else np.sort(np.concatenate(slices))

    def _is_found(self, each: Filter, places: NDArray[np.int64] | None) -> Bools:
        """Return which of these rows match a filter's values or pattern."""
        rows = slice(None) if places is None else places
        found: Bools
        if each.is_list:
            codes = self._codes[each.column]
            is_listed = np.zeros(len(codes) + 1, dtype=bool)
            is_listed[[codes[value] for value in each.values]] = True
            found = is_listed[self._columns[f"{each.column}_code"][rows]]
        else:
            found = self._columns["matched"][rows, self._places[each.column, each.pattern]] != 0
        return found


def judge(
    indicator: Indicator, columns: Mapping[str, NDArray[np.generic]]
) -> tuple[Floats, Floats]:
    """Return each row's weight as a valid and as a bad event; 0 if it is neither."""
    treatments = treatments_of_endings(indicator)
    ending = columns["ending"].astype(np.int64)
    is_bad = np.array([each is Treatment.BAD for each in treatments])[ending]
    is_out = np.array([each is Treatment.EXCLUDED for each in treatments])[ending]
    if indicator.statuses:
        by_status = _status_treatments(indicator)[columns["http_status"].astype(np.int64)]
        is_bad = is_treated(Treatment.BAD, is_bad, by_status)
        is_out = is_treated(Treatment.EXCLUDED, is_out, by_status)
    number = {name: columns[name].astype(np.float64, copy=False) for name in _NUMBERS}
    weight = number["weight"]
    if indicator.metric in TOKEN_COLUMNS:
        num, num_good = (number[column] for column in TOKEN_COLUMNS[indicator.metric])
        is_valid = ~is_out & (num > 0) & is_known(num_good)
        total = np.where(is_valid, weight * num, 0.0)
        missed = np.where(is_valid, weight * (num - np.minimum(num_good, num)), 0.0)
        return total, np.where(is_bad, total, missed)
    is_valid = ~is_out
    if indicator.judged:
        durations = {metric: number[metric] for metric in DURATIONS}
        is_missed, is_judged = judge_durations(durations, indicator.judged, ending > 0)
        is_valid &= is_bad | is_judged
        is_bad = is_bad | is_missed
    total = np.where(is_valid, weight, 0.0)
    return total, np.where(is_bad, total, 0.0)


def _status_treatments(indicator: Indicator) -> NDArray[np.uint8]:
    numbers = np.zeros(MOST_STATUS + 1, dtype=np.uint8)
    for first, last, number in status_ranges(indicator):
        numbers[first : last + 1] = number
    return numbers
