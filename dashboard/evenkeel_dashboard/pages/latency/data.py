"""Reads the data of the latency page for one window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.contents import num_requests, range_of
from evenkeel_dashboard.frame.selection import Selection, slices, step_s
from evenkeel_dashboard.frame.series import fill_gaps
from evenkeel_dashboard.pages.latency.model import (
    DEFINITIONS,
    Picked,
    cohort_names,
    differs,
    one_in,
)

if TYPE_CHECKING:
    from evenkeel_dashboard.frame.reading import Parameters

_HERE = Path(__file__).parent
# Requests that a view reads individually; above that it reads one in n.
MAX_READ = 500_000
# Definitions are compared over the same requests; this many are enough.
MAX_COMPARED = 50_000
MAX_BEHIND = 20
# Heatmap steps are about twice as wide as those of the lines, so that cells are easy to click.
_HEAT_STEPS = 2
COLUMNS = ("p50_s", "p95_s", "p99_s")
# The rollup column of each measure.
_COLUMN_OF = {
    "ttft": "ttft_s",
    "tpot": "tpot_s",
    "itl": "itl_p99_s",
    "stall": "stall_s",
    "queue": "queue_s",
}
# Not in the minute rollup.
_ONLY_RAW = ("finish_reason",)


@dataclass(frozen=True, slots=True)
class LatencyView:
    """What to show: a measure, the tool that defines it, and the dimension to split by."""

    measure: str
    definition: str
    dimension: str

    @property
    def name(self) -> str:
        """A name for the URL."""
        return f"{self.measure}/{self.definition}/{self.dimension}"


@dataclass(frozen=True, slots=True)
class LatencyData:
    """One measure over a window.

    Attributes:
        cohorts: One row per cohort, largest first; "" is all requests.
        series: By cohort, one row per step, including empty steps.
        heat: Rows of bucket, bin and count.
        one_in: Sampling of the requests, one in n; always 1 for the rollup.
        is_rollup: Whether everything comes from the minute rollup.
        heat_step_s: Width of a step of the heatmap.
        window: The window as read; steps are longer if the rollup was used.
    """

    cohorts: list[dict[str, Any]]
    series: dict[str, pd.DataFrame]
    heat: list[dict[str, Any]]
    one_in: int
    is_rollup: bool
    heat_step_s: int
    window: Window


def read_latency(selection: Selection, window: Window, view: LatencyView) -> LatencyData:
    """Read one window.

    Raises:
        StoreError: If the store is unreachable or refuses a query.
    """
    stored = num_requests(selection, window)
    window = window.sized(stored)
    found = _read(selection, window, view, stored)
    if window.is_only_rolled(len(found.cohorts), stored):
        return _read(selection, window.rolled(), view, stored)
    return found


def _read(selection: Selection, window: Window, view: LatencyView, stored: float) -> LatencyData:
    share = one_in(stored, MAX_READ)
    parameters = _parameters(selection, window, view, share)
    is_rollup = (
        window.is_long
        and not differs(view.measure, view.definition)
        and view.dimension not in _ONLY_RAW
    )
    suffix = "_1m" if is_rollup else ""
    heat_step_s = max(60 if is_rollup else 1, step_s(window.duration_s * _HEAT_STEPS))

    def series_later(names: Sequence[str]) -> Callable[[], pd.DataFrame]:
        wanted: Parameters = {"step_s": window.step_s, "cohorts": tuple(names)}
        return reading.frame_later(_HERE / f"latency_series{suffix}.sql", {**parameters, **wanted})

    cohorts = reading.rows_later(_HERE / f"latency_cohorts{suffix}.sql", parameters)
    # With only one cohort, it is known before counting which ones are drawn.
    of_all = None if view.dimension else series_later([""])
    heat = reading.rows_later(
        _HERE / f"latency_heatmap{suffix}.sql", {**parameters, "step_s": heat_step_s}
    )
    names = cohort_names(cohorts())
    frame = (of_all or series_later(names))()
    return LatencyData(
        cohorts=cohorts(),
        series={name: _of_cohort(frame, name, window) for name in names},
        heat=heat(),
        one_in=1 if is_rollup else share,
        is_rollup=is_rollup,
        heat_step_s=heat_step_s,
        window=window,
    )


def definitions_later(
    selection: Selection, window: Window, view: LatencyView
) -> Callable[[], dict[str, dict[str, Any]]]:
    """Start reading percentiles under our definition and under each one that differs from it."""
    read_some = slices(num_requests(selection, window), window, MAX_COMPARED)
    parameters = {**range_of(window), **selection.filters(), **read_some}
    begun = {
        definition: reading.rows_later(
            _HERE / "latency_definitions.sql",
            {**parameters, "measure": view.measure, "definition": definition},
        )
        for definition in DEFINITIONS
        if definition == "ours" or differs(view.measure, definition)
    }
    return lambda: {name: rows[0] for name, found in begun.items() if (rows := found())}


def read_sources(selection: Selection, window: Window) -> list[str]:
    """Return who sent the requests of a window, most first."""
    rows = reading.rows(_HERE / "latency_sources.sql", {**range_of(window), **selection.filters()})
    return [str(row["source"]) for row in rows]


def read_behind(selection: Selection, view: LatencyView, picked: Picked) -> list[dict[str, Any]]:
    """Return the requests behind a point or bin, nearest to its value first."""
    window = Window(picked.from_ms, picked.to_ms, 1)
    return reading.rows(
        _HERE / "latency_behind.sql",
        {
            **_parameters(selection, window, view, 1),
            "low_s": picked.low_s,
            "high_s": picked.high_s,
            "near_s": picked.near_s,
            "cohort": picked.cohort,
            "limit": MAX_BEHIND,
        },
    )


def _parameters(selection: Selection, window: Window, view: LatencyView, share: int) -> Parameters:
    return {
        **range_of(window),
        **selection.filters(),
        "measure": view.measure,
        "column": _COLUMN_OF.get(view.measure, "e2e_s"),
        "definition": view.definition,
        "dimension": view.dimension,
        "one_in": share,
    }


def _of_cohort(frame: pd.DataFrame, cohort: str, window: Window) -> pd.DataFrame:
    chosen = frame if frame.empty else frame[frame["cohort"] == cohort]
    return fill_gaps(chosen, COLUMNS, window)
