"""Reads what the engine page shows: step records where there are some, else vLLM's metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from dashboard import reading
from dashboard.engine_model import COLUMNS, STATE_NAMES, state_rows, waiting_rows
from dashboard.health_data import range_of
from dashboard.selection import Selection, Window
from dashboard.series import fill_gaps
from evenkeel.errors import StoreError

_UNKNOWN_TABLE = "Code: 60."


@dataclass(frozen=True, slots=True)
class EngineData:
    """What engines did over a window.

    Attributes:
        source: "steps", "metrics", or "" where nothing is known.
        rows: One row a step of time, of `COLUMNS`; steps without anything are absent.
        series: The same as a frame, gaps included.
        waiting: Rows of bucket, reason and number.
        positions: Drafted and accepted tokens by position, from the requests.
        actions: What controllers did.
    """

    source: str
    rows: list[dict[str, Any]]
    series: pd.DataFrame
    waiting: list[dict[str, Any]]
    positions: dict[str, Any]
    actions: list[dict[str, Any]]


def read_engine(selection: Selection, window: Window) -> EngineData:
    """Read one window.

    Raises:
        StoreError: If the store is gone or refuses a query.
    """
    parameters = {**range_of(window), "model": selection.model, "step_s": window.step_s}
    source, rows = "steps", _rows_if_known("engine_steps_series", parameters)
    waiting = _rows_if_known("engine_steps_waiting", parameters) if rows else []
    if not rows:
        names = (*STATE_NAMES, *(f"{name}_total" for name in STATE_NAMES))
        state = reading.rows("engine_state_series", {**parameters, "names": names})
        source, rows, waiting = "metrics", state_rows(state, window.step_s), waiting_rows(state)
    positions = reading.rows("acceptance_positions", {**range_of(window), **selection.filters()})[0]
    return EngineData(
        source=source if rows else "",
        rows=rows,
        series=fill_gaps(pd.DataFrame(rows), COLUMNS, window),
        waiting=waiting,
        positions=positions,
        actions=reading.rows("control_steps", range_of(window)),
    )


def _rows_if_known(name: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a query; [] where the collector is older than its table."""
    try:
        return reading.rows(name, parameters)
    except StoreError as error:
        if _UNKNOWN_TABLE in str(error):
            return []
        raise


def waiting_frame(waiting: list[dict[str, Any]], window: Window) -> tuple[pd.DataFrame, list[str]]:
    """Return waiting requests with a column a reason, and the reasons, the most frequent first."""
    if not waiting:
        return fill_gaps(pd.DataFrame(), [], window), []
    wide = pd.DataFrame(waiting).pivot_table(
        index="bucket", columns="reason", values="num_waiting", aggfunc="sum"
    )
    reasons = [str(reason) for reason in wide.sum().sort_values(ascending=False).index]
    return fill_gaps(wide.reset_index(), reasons, window), reasons
