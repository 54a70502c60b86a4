"""Reads the data of the engine page: step records if there are any, else engines' own metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from evenkeel.engines.metric_query import (
    REFERENCE,
    mapped_metrics,
    metric_parameters,
    sender_parameters,
)
from evenkeel.errors import StoreError
from evenkeel_dashboard.draw.charts import time_ms
from evenkeel_dashboard.draw.wasted import WastedTokens, wasted_tokens
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.contents import num_requests, range_of
from evenkeel_dashboard.frame.selection import Selection, slices
from evenkeel_dashboard.frame.series import fill_gaps
from evenkeel_dashboard.pages.engine.metrics import (
    HISTOGRAMS,
    SERIES_MEASURES,
    engines_of,
    state_rows,
    waiting_rows,
)
from evenkeel_dashboard.pages.engine.model import COLUMNS

_HERE = Path(__file__).parent
MAX_READ = 500_000
_UNKNOWN_TABLE = "Code: 60."


@dataclass(frozen=True, slots=True)
class EngineData:
    """Engine activity over a window.

    Attributes:
        source: "steps", "metrics", or "" without data.
        engines: The engines whose metrics are shown; () with step records.
        others: Engines that also report metrics in this range and are not shown.
        histograms: Engines' own histograms: engine, measure, bounds and counts.
        rows: One row of `COLUMNS` per interval; empty intervals are absent.
        series: The same as a frame, including empty intervals.
        waiting: Rows of bucket, reason and count.
        positions: Drafted and accepted tokens by position, from the requests.
        actions: Actions of the controllers.
        sources: Drafted and accepted tokens by draft source and position.
        evictions: Prompt tokens evicted and recomputed per second, by interval.
        gains: Measured speed-up of speculation, per server and batch size.
        canaries: Answers regenerated without drafts, by result.
        spread: How evenly each engine's steps take their time, and their stragglers.
        wasted: Tokens computed for nothing, by cause.
    """

    source: str
    engines: list[str]
    others: list[str]
    histograms: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    series: pd.DataFrame
    waiting: list[dict[str, Any]]
    positions: dict[str, Any]
    actions: list[dict[str, Any]]
    sources: list[dict[str, Any]]
    evictions: pd.DataFrame
    gains: list[dict[str, Any]]
    canaries: list[dict[str, Any]]
    spread: list[dict[str, Any]]
    wasted: WastedTokens


def read_engine(selection: Selection, window: Window, engine: str = "") -> EngineData:
    """Read one window.

    Args:
        selection: The selected model.
        window: The range.
        engine: Only this engine; "" is every one, and with step records ours.

    Raises:
        StoreError: If the store is unreachable or refuses a query.
    """
    parameters = {**range_of(window), "model": selection.model, "step_s": window.step_s}
    # Start all queries that are always needed before waiting for the first.
    steps = reading.rows_later(_HERE / "engine_steps_series.sql", parameters)
    held_up = reading.rows_later(_HERE / "engine_steps_waiting.sql", parameters)
    actions = reading.rows_later(reading.SHARED / "control_steps.sql", range_of(window))
    num_stored = num_requests(selection, window)
    read_most = slices(num_stored, window, MAX_READ)
    positions_of = {**range_of(window), **selection.filters(), **read_most}
    positions_later = reading.rows_later(_HERE / "acceptance_positions.sql", positions_of)
    read_some = slices(num_stored, window)
    sliced = {**range_of(window), "model": selection.model, **read_some}
    evicted = reading.frame_later(
        _HERE / "engine_evictions.sql", {**sliced, "step_s": window.step_s}
    )
    spread = reading.rows_later(
        _HERE / "engine_step_spread.sql", {**range_of(window), "model": selection.model}
    )
    # The engine serves all tenants: the other filters do not apply.
    of_model = Selection(model=selection.model).filters()
    wasted = reading.rows_later(reading.SHARED / "wasted_tokens.sql", {**sliced, **of_model})
    is_ours = engine in ("", REFERENCE)
    source, rows = (
        "steps",
        [{**dict.fromkeys(COLUMNS), **row} for row in (_rows_if_known(steps) if is_ours else [])],
    )
    waiting = _rows_if_known(held_up)
    engines, others = [], []
    # The engine with step records has metrics too, but its steps say more.
    state, histograms = _read_metrics(parameters, engine, hidden=REFERENCE if rows else "")
    if rows:
        others = engines_of([*state, *histograms])
    else:
        source, rows, waiting = "metrics", state_rows(state), waiting_rows(state)
        engines = engines_of([*state, *histograms])
    positions = positions_later()[0]
    sources = canaries = gains = None
    if positions["drafted_tokens"]:
        canaries = reading.rows_later(_HERE / "canary_results.sql", range_of(window))
        gains = reading.rows_later(_HERE / "speculation_gain.sql", range_of(window))
        sources = reading.rows_later(_HERE / "acceptance_sources.sql", sliced)
    return EngineData(
        source=source if rows else "",
        engines=engines,
        others=others,
        histograms=histograms if engines else [],
        rows=rows,
        series=fill_gaps(pd.DataFrame(rows), COLUMNS, window),
        waiting=waiting,
        positions=positions,
        actions=actions(),
        sources=sources() if sources else [],
        evictions=evictions_per_s(evicted(), window, **read_some),
        gains=_rows_if_known(gains) if gains else [],
        canaries=canaries() if canaries else [],
        spread=_rows_if_known(spread),
        wasted=wasted_tokens(wasted()[0]),
    )


def _read_metrics(
    parameters: Mapping[str, Any], chosen: str, hidden: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of the engines' series and of their histograms.

    Args:
        parameters: Of the range and the model.
        chosen: Only this engine; "" is every one.
        hidden: Not this engine.
    """
    senders = sender_parameters()

    def is_shown(engine: str) -> bool:
        return engine != hidden and chosen in ("", engine)

    def rows_later(
        query: Path, measures: Iterable[str], more: Mapping[str, list[str]]
    ) -> reading.Rows:
        # Whose metrics have shared names is known when they are read.
        mapped = [
            m
            for m in mapped_metrics(measures)
            if is_shown(m.engine) or m.engine in senders["shared"]
        ]
        if not mapped:
            return list
        arrays = {**metric_parameters(mapped), **more}
        return reading.rows_later(
            query, {**parameters, **{key: tuple(values) for key, values in arrays.items()}}
        )

    series = rows_later(_HERE / "engine_state_series.sql", SERIES_MEASURES, {})
    histograms = rows_later(_HERE / "engine_histograms.sql", HISTOGRAMS, senders)
    return series(), [row for row in histograms() if is_shown(row["engine"])]


def evictions_per_s(
    found: pd.DataFrame, window: Window, period_s: int, slice_s: int
) -> pd.DataFrame:
    """Return evicted tokens per second and step, of the part of a step that was read.

    Args:
        found: Of the query `engine_evictions`.
        window: The range.
        period_s: Length of the periods of which the query reads a slice each.
        slice_s: Length of a slice.
    """

    def read_until(time_s: float) -> float:
        """Return the seconds in slices before a time."""
        num_periods, rest_s = divmod(time_s, period_s)
        return num_periods * slice_s + min(rest_s, slice_s)

    def read_s(bucket: pd.Timestamp) -> float:
        begin_ms = time_ms(bucket)
        begin_s = max(begin_ms, window.from_ms) / 1000
        return max(1.0, read_until(begin_s + window.covered_s(begin_ms)) - read_until(begin_s))

    if not found.empty:
        read = found["bucket"].map(read_s)
        found = found.assign(evicted_per_s=found["evicted_tokens"] / read)
    return fill_gaps(found, ("evicted_per_s",), window)


def _rows_if_known(later: reading.Rows) -> list[dict[str, Any]]:
    """Return the rows of a query; [] if the collector is too old to have its table."""
    try:
        return later()
    except StoreError as error:
        if _UNKNOWN_TABLE in str(error):
            return []
        raise


def waiting_frame(waiting: list[dict[str, Any]], window: Window) -> tuple[pd.DataFrame, list[str]]:
    """Return waiting requests with one column per reason, and the reasons, most frequent first."""
    if not waiting:
        return fill_gaps(pd.DataFrame(), [], window), []
    wide = pd.DataFrame(waiting).pivot_table(
        index="bucket", columns="reason", values="num_waiting", aggfunc="sum"
    )
    reasons = [str(reason) for reason in wide.sum().sort_values(ascending=False).index]
    return fill_gaps(wide.reset_index(), reasons, window), reasons
