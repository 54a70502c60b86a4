"""Reads the data of the cost page for one window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenkeel.prices.stored import ENGINE_SECONDS, PRICES_IN_FORCE
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.contents import num_requests, range_of
from evenkeel_dashboard.frame.selection import Selection, slices
from evenkeel_dashboard.frame.series import fill_gaps
from evenkeel_dashboard.pages.cost.model import (
    MAX_SERIES,
    CohortCost,
    cohort_costs,
    incomparable,
)

if TYPE_CHECKING:
    import pandas as pd

_HERE = Path(__file__).parent
_MINUTE_MS = 60_000
OTHERS = "all others"


@dataclass(frozen=True, slots=True)
class CostData:
    """The data of one window.

    Attributes:
        cohorts: Every cohort, most expensive first.
        incomparable: Why the range before is not compared; "" if it is.
        models: Rows of `cost_models`.
        prices: Rows of `prices_in_force`.
        engines: Rows of `engine_seconds`.
        compressed: Rows of `compressed_tokens`.
        drawn: The cohorts of the series, whose columns are named by place; `OTHERS` last if there
            are more.
        series: Cost by step and drawn cohort.
        window: The window as read: whole minutes, from the rollups.
    """

    cohorts: list[CohortCost]
    incomparable: str
    models: list[dict[str, Any]]
    prices: list[dict[str, Any]]
    engines: list[dict[str, Any]]
    compressed: list[dict[str, Any]]
    drawn: list[str]
    series: pd.DataFrame
    window: Window


def whole_minutes(window: Window) -> Window:
    """Return the window in whole minutes, because costs are kept by minute."""
    from_ms, to_ms = (
        ms // _MINUTE_MS * _MINUTE_MS for ms in (window.from_ms, window.to_ms + _MINUTE_MS - 1)
    )
    return replace(window, from_ms=from_ms, to_ms=to_ms, step_s=max(60, window.step_s))


def cost_later(selection: Selection, window: Window, dimension: str) -> Callable[[], CostData]:
    """Start reading one window.

    Raises:
        StoreError: If the store is unreachable or refuses a query, now or on return.
    """
    stored = num_requests(selection, window)
    window = whole_minutes(window.sized(stored))
    parameters = {**range_of(window), **selection.filters()}
    of_cohorts = {**parameters, "dimension": dimension}
    # Start all queries before waiting for the first.
    cohorts = reading.rows_later(_HERE / "cost_cohorts.sql", of_cohorts)
    models = reading.rows_later(_HERE / "cost_models.sql", parameters)
    prices = reading.rows_later(PRICES_IN_FORCE, {})
    engines = reading.rows_later(ENGINE_SECONDS, {**range_of(window), "model": selection.model})
    compressed = reading.rows_later(
        _HERE / "compressed_tokens.sql",
        {**parameters, **slices(stored, window)},
    )

    def read() -> CostData:
        is_stored = (selection.data_from_ms or 0) <= window.before().from_ms
        why = incomparable(cohorts(), is_stored)
        found = cohort_costs(cohorts(), is_comparable=not why)
        paying = [each.name for each in found if each.cost]
        named = paying[: MAX_SERIES if len(paying) <= MAX_SERIES else MAX_SERIES - 1]
        frame = reading.frame_later(
            _HERE / "cost_series.sql",
            {**of_cohorts, "step_s": window.step_s, "cohorts": tuple(named)},
        )()
        drawn = named + ([OTHERS] if len(paying) > len(named) else [])
        return CostData(
            cohorts=found,
            incomparable=why,
            models=models(),
            prices=prices(),
            engines=engines(),
            compressed=compressed(),
            drawn=drawn,
            series=by_cohort(frame, drawn, window),
            window=window,
        )

    return read


def by_cohort(frame: pd.DataFrame, drawn: list[str], window: Window) -> pd.DataFrame:
    """Return one column per drawn cohort, named by its place, and one row per step."""
    columns = [str(place) for place in range(len(drawn))]
    if not frame.empty:
        place_of = dict(zip(drawn, columns, strict=True))
        frame = (
            frame.assign(place=frame["cohort"].replace("", OTHERS).map(place_of))
            .pivot_table(index="bucket", columns="place", values="cost", aggfunc="sum")
            .reindex(columns=columns)
            .reset_index()
        )
    return fill_gaps(frame, columns, window)
