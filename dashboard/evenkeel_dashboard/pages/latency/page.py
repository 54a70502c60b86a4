"""How long do requests take, for whom, by whose definition, and which ones are slow?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import streamlit as st

from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.charts import add_objective
from evenkeel_dashboard.draw.escaping import escape, visible
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.draw.measures import MEASURES
from evenkeel_dashboard.draw.request_rows import request_cells, request_headers
from evenkeel_dashboard.draw.slo_tiles import drawn_limits
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.contents import newest_later, range_of
from evenkeel_dashboard.frame.fields import pick, set_param
from evenkeel_dashboard.frame.page import (
    as_of,
    colours,
    now_ms,
    refreshing,
    selection,
    selection_bar,
)
from evenkeel_dashboard.frame.scrolling import scroll_here
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.frame.zoom import chart, zoomable
from evenkeel_dashboard.pages.latency.data import (
    LatencyData,
    LatencyView,
    definitions_later,
    read_behind,
    read_latency,
    read_sources,
)
from evenkeel_dashboard.pages.latency.figures import (
    add_threshold,
    cohort_lines,
    heat_key,
    heatmap,
    mark_cell,
    mark_point,
    percentile_lines,
)
from evenkeel_dashboard.pages.latency.model import (
    DEFINITIONS,
    DIMENSIONS,
    NOTHING_ABOVE_S,
    PERCENTILES,
    Picked,
    bin_middle,
    bin_of,
    bin_values,
    differs,
    heat,
    is_value,
    meaning,
    missing_words,
    picked_of,
    step_shown,
)

SHOWN = ("p50", "p95", "p99")
_LOOK_FOR = (
    "See when the lines cross the dashed objective, split them by tenant or prompt to see who is "
    "affected, and click a point or a cell to list its requests."
)
_FILTER_OF = {"model": "model", "tenant": "tenant", "slo_class": "slo_class", "prompt": "prompt"}


def show() -> None:
    """Draw the page."""
    selection = selection_bar()
    st.html(markup.lead(_LOOK_FOR))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        measure = pick("measure", "measure", MEASURES, 110)
        dimension = pick("by", "by", DIMENSIONS, 150)
        definition = pick("definition", "as defined by", DEFINITIONS, 170)
        percentile = pick("percentile", "percentile", PERCENTILES, 100) if dimension else "p95"
    view = LatencyView(measure, definition, dimension)
    refreshing(partial(_body, selection, view, percentile), selection.refresh_s())


def _body(selection: Selection, view: LatencyView, percentile: str) -> None:
    window = selection.window(now_ms())
    slos = reading.rows_later(reading.SHARED / "slo_now.sql", range_of(window))
    definitions = definitions_later(selection, window, view)
    newest = newest_later(selection, window)
    data = read_latency(selection, window, view)
    window = data.window
    end_ms = None if selection.is_fixed else window.to_ms
    st.html(f'<div class="ek-asof">{as_of(newest(), end_ms)}{_source_words(data)}</div>')
    if not data.cohorts:
        st.html(
            markup.hint(
                "No request in this range has this value",
                f"{MEASURES[view.measure]}, {meaning(view.measure, view.definition)}. "
                + missing_words(read_sources(selection, window), view.measure),
            )
        )
        return
    _show_charts(data, slos, window, view, percentile)
    _show_picked(selection, view)
    left, right = st.columns([3, 2], gap="small")
    with left:
        _show_cohorts(data, selection, view)
    with right:
        _show_definitions(definitions, view)


def _source_words(data: LatencyData) -> str:
    if data.is_rollup:
        return " · from the minute rollup"
    return "" if data.one_in == 1 else f" · from 1 request in {data.one_in}"


def _show_charts(
    data: LatencyData, slos: reading.Rows, window: Window, view: LatencyView, percentile: str
) -> None:
    title = MEASURES[view.measure] + (f" {percentile}" if view.dimension else "")
    names = list(data.series)
    if view.dimension:
        figure, scale = cohort_lines(data.series, f"{percentile}_s", window, colours())
    else:
        figure, scale = percentile_lines(data.series[names[0]], view.measure, window, colours())
    grid = heat(data.heat)
    cells = heatmap(grid, data.heat_step_s, window, colours())
    if not differs(view.measure, view.definition):
        for limit_s, label in drawn_limits(slos(), view.measure, selection().filters()):
            add_objective(figure, limit_s, label, scale, colours())
            add_threshold(cells, limit_s, label, colours())
    picked = picked_of(st.query_params.get("picked", ""), view.name)
    if picked is not None:
        mark_point(figure, picked, scale, colours())
        mark_cell(cells, picked, colours())
    # The same minute stands at the same place in both charts.
    figure.least_ch = cells.least_ch = max(figure.label_ch(), cells.label_ch())
    zoomable(
        figure,
        "latency",
        title,
        f"{meaning(view.measure, view.definition)}; click a point to see its requests",
        partial(_pick_point, view, names if view.dimension else [], window, scale.factor),
    )
    with st.container(border=True, key="card-heatmap", gap="xxsmall"):
        every = f"{MEASURES[view.measure]} of every request"
        st.html(
            f'<div class="ek-title">{every}<small>requests by time and '
            "value; click a cell to list them</small></div>" + markup.key(heat_key(grid, colours()))
        )
        chart(
            cells,
            "heatmap",
            f"{every}, as a heatmap",
            partial(_pick_cell, view, data.heat_step_s, window),
        )


def _pick_point(
    view: LatencyView,
    cohorts: list[str],
    window: Window,
    factor: float,
    point: Mapping[str, Any],
) -> None:
    from_ms, to_ms = step_shown(int(point["at_ms"]), window.step_s, window)
    near_s = float(point["value"]) / factor
    # The chart has the name as it is shown.
    cohort = {visible(name): name for name in cohorts}.get(point["name"], "")
    picked = Picked(from_ms, to_ms, 0.0, NOTHING_ABOVE_S, near_s, cohort, view.name)
    set_param("picked", picked.to_param())


def _pick_cell(view: LatencyView, step_s: int, window: Window, point: Mapping[str, Any]) -> None:
    from_ms, to_ms = step_shown(int(point["at_ms"]), step_s, window)
    number = bin_of(10 ** float(point["middle"]))
    picked = Picked(from_ms, to_ms, *bin_values(number), bin_middle(number), view=view.name)
    set_param("picked", picked.to_param())


def _show_picked(selection: Selection, view: LatencyView) -> None:
    picked = picked_of(st.query_params.get("picked", ""), view.name)
    if picked is None:
        return
    rows = read_behind(selection, view, picked)
    name = MEASURES[view.measure]
    is_point = picked.high_s >= NOTHING_ABOVE_S
    what = (
        f"{name} near {formats.seconds(picked.near_s)}"
        if is_point
        else f"{name} from {formats.seconds(picked.low_s)} to {formats.seconds(picked.high_s)}"
    )
    whose = f", {picked.cohort}" if picked.cohort else ""
    when = f"{formats.moment_ms(picked.from_ms)} to {formats.clock_ms(picked.to_ms)}"
    with st.container(border=True, key="card-behind"):
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            total = rows[0]["num_found"] if rows else 0
            shown = f"the {len(rows)} nearest of {formats.count(total)}" if rows else "none"
            st.html(
                f'<div class="ek-title">Requests at this point: {what}{escape(whose)}'
                f"<small>{when}; {shown}</small></div>"
            )
            st.button("Close", on_click=set_param, args=("picked", None))
        scroll_here("behind", picked.to_param())
        if rows:
            cells = request_cells(rows, selection.to_params(), colours())
            st.html(markup.table(request_headers(), cells, "Requests at this point"))
        else:
            st.caption("They are past the store's retention, or the filters exclude them.")


def _show_cohorts(data: LatencyData, selection: Selection, view: LatencyView) -> None:
    with st.container(border=True, key="card-cohorts"):
        by = DIMENSIONS[view.dimension]
        num_all = data.cohorts[0]["num_cohorts"]
        some = f", the {len(data.cohorts)} with most requests of {num_all:,}"
        some = some if num_all > len(data.cohorts) else ""
        st.html(
            f'<div class="ek-title">By {by}<small>over the whole range{some}; '
            "click a name to filter</small></div>"
            if view.dimension
            else '<div class="ek-title">Over the whole range'
            '<small>choose "by" above to split it</small></div>'
        )
        others = dict(st.query_params)
        rows = []
        for row in data.cohorts:
            name = row["cohort"] or "all requests"
            column = _FILTER_OF.get(view.dimension)
            href = (
                markup.page_link("latency", others | {column: row["cohort"], "by": ""})
                if column and is_value(row["cohort"])
                else ""
            )
            rows.append(
                [
                    Cell(name, href=href),
                    Cell(formats.count(row["num_requests"]), is_number=True),
                    *(Cell(formats.seconds(row[f"{p}_s"]), is_number=True) for p in SHOWN),
                ]
            )
        headers = (by, "requests", *SHOWN)
        st.html(markup.table(headers, rows, f"Latency by {by}", is_short=True))


def _show_definitions(
    definitions: Callable[[], dict[str, dict[str, Any]]], view: LatencyView
) -> None:
    with st.container(border=True, key="card-definitions"):
        st.html(
            '<div class="ek-title">The same requests, as other tools count'
            "<small>tools define these metrics differently; sampled if there are very many requests"
            "</small></div>"
        )
        found = definitions()
        if len(found) < 2:
            st.caption(markup.plain(f"They all agree on {MEASURES[view.measure]}."))
            return
        rows = [
            [
                Cell(DEFINITIONS[name]),
                *(Cell(formats.seconds(row[f"{p}_s"]), is_number=True) for p in SHOWN),
                Cell(meaning(view.measure, name), wraps=True),
            ]
            for name, row in found.items()
        ]
        st.html(markup.table(("as defined by", *SHOWN, "what it is"), rows, "Definitions"))
