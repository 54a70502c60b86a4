"""Counts a range's requests, which decides how it is read, and lists the filter values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.selection import Selection

MOST_VALUES = 50
"""Values that are listed of each filter, as in the queries."""
# A minute rollup is too coarse for a shorter range.
_SHORT_S = 600


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a range.

    Attributes:
        num_requests: Approximate number of requests; `num_by_model` is the number per model.
        values: Values found in the range, most frequent first, keyed by plural: models, tenants,
            prompts, slo_classes, services.
    """

    num_requests: float
    num_by_model: Mapping[str, float]
    values: Mapping[str, list[str]]

    def num_of(self, selection: Selection) -> float:
        """Return the approximate number of requests of the selected model."""
        if selection.model:
            return self.num_by_model.get(selection.model, 0.0)
        return self.num_requests


def contents_later(window: Window) -> Callable[[], Contents]:
    """Start reading the contents of a range."""
    if window.duration_s < _SHORT_S:
        found = reading.rows_later(reading.SHARED / "range_contents.sql", range_of(window))
    else:
        # Whole minutes, so that a live page queries once per minute.
        ends = (ms // 60_000 * 60_000 for ms in (window.from_ms, window.to_ms))
        whole = replace(window, from_ms=next(ends), to_ms=next(ends))
        found = reading.minute_rows_later(reading.SHARED / "range_contents_1m.sql", range_of(whole))

    def contents() -> Contents:
        row = found()[0]
        return Contents(
            num_requests=float(row["num_requests"]),
            num_by_model=row["num_by_model"],
            values={n: [v for v in row[n] if v] for n in row if not n.startswith("num_")},
        )

    return contents


def num_requests(selection: Selection, window: Window) -> float:
    """Return the approximate number of requests in a window, which decides how it is read.

    Raises:
        StoreError: If the store is unreachable or refuses the query.
    """
    return contents_later(window)().num_of(selection)


def newest_later(selection: Selection, window: Window) -> Callable[[], int | None]:
    """Start reading when the newest request of a window arrived; None without requests."""
    parameters = {**range_of(window), **selection.filters()}
    found = reading.rows_later(reading.SHARED / "newest_in_range.sql", parameters)
    return lambda: found()[0]["newest_ms"]


def range_of(window: Window) -> dict[str, str | int]:
    """Return the query parameters of a window."""
    return {"from_ms": window.from_ms, "to_ms": window.to_ms}
