"""Reads what the engine page shows: step records where there are some, else vLLM's metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from dashboard import reading
from dashboard.contents import num_requests, range_of
from dashboard.engine_model import COLUMNS, STATE_NAMES, state_rows, waiting_rows
from dashboard.selection import Selection, Window, slices
from dashboard.series import fill_gaps
from evenkeel.errors import StoreError

MAX_TPOTS = 500
MAX_READ = 500_000
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
        sources: Drafted and accepted tokens by where the drafts came from, and by position.
        evictions: Prompt tokens that were evicted and computed again, a second, by step of time.
        tpots: TPOT of up to `MAX_TPOTS` requests of each model, drafted for and not.
    """

    source: str
    rows: list[dict[str, Any]]
    series: pd.DataFrame
    waiting: list[dict[str, Any]]
    positions: dict[str, Any]
    actions: list[dict[str, Any]]
    sources: list[dict[str, Any]]
    evictions: pd.DataFrame
    tpots: list[dict[str, Any]]


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
    num_stored = num_requests(selection, window)
    read_most = slices(num_stored, window, MAX_READ)
    filtered = {**range_of(window), **selection.filters(), **read_most}
    positions = reading.rows("acceptance_positions", filtered)[0]
    is_drafted = bool(positions["drafted_tokens"])
    sliced = {**range_of(window), "model": selection.model, **slices(num_stored, window)}
    sample = {**range_of(window), "model": selection.model, "limit": MAX_TPOTS, **read_most}
    return EngineData(
        source=source if rows else "",
        rows=rows,
        series=fill_gaps(pd.DataFrame(rows), COLUMNS, window),
        waiting=waiting,
        positions=positions,
        actions=reading.rows("control_steps", range_of(window)),
        sources=reading.rows("acceptance_sources", sliced) if is_drafted else [],
        evictions=_evictions(selection, window, sliced),
        tpots=reading.rows("speculation_sample", sample) if is_drafted else [],
    )


def _evictions(selection: Selection, window: Window, sliced: dict[str, Any]) -> pd.DataFrame:
    # Of each step, or of some of them, a slice is read: what it holds stands for the step.
    found = reading.frame("engine_evictions", {**sliced, "step_s": window.step_s})
    if not found.empty:
        read_s = min(window.step_s, sliced["slice_s"])
        found = found.assign(evicted_per_s=found["evicted_tokens"] / read_s)
    return fill_gaps(found, ("evicted_per_s",), window)


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
