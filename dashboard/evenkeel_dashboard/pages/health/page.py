"""Is the service healthy, and if not, where does the time go?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import streamlit as st

from evenkeel.token_latency import zero_gap_note
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.changes import change_cells
from evenkeel_dashboard.draw.charts import (
    Line,
    Scale,
    add_objective,
    add_periods,
    lines,
    scale_of,
    stacked_bars,
)
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.request_rows import (
    RANKINGS,
    alert_cells,
    alert_headers,
    request_cells,
    request_headers,
)
from evenkeel_dashboard.draw.slo_tiles import drawn_limits, slo_tile, worst_slos
from evenkeel_dashboard.draw.tiles import StateSummary
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.contents import num_requests, range_of
from evenkeel_dashboard.frame.page import (
    as_of,
    choice,
    chosen_of,
    colours,
    now_ms,
    refreshing,
    selection_bar,
)
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.frame.series import firing_periods
from evenkeel_dashboard.frame.signing_in import identity
from evenkeel_dashboard.frame.zoom import chart, zoomable
from evenkeel_dashboard.pages.health.data import HealthData, health_later
from evenkeel_dashboard.pages.health.model import (
    Shown,
    headline_tiles,
    newest_words,
    range_words,
    verdict,
    worst_firing,
)

_HERE = Path(__file__).parent
PERCENTILES = ("p50", "p95", "p99")
MAX_SLOWEST = 15
TITLES = {
    "ttft": ("Time to first token", "arrival to first token, queue included"),
    "itl": ("Inter-token latency", "each request's p99 gap, percentiles across requests"),
    "tpot": ("Time per output token", "decode time over tokens after the first"),
}
Draw = Callable[[HealthData, Window], None]

_CHANGES_MS = 7 * 86_400_000
_LOOK_FOR = (
    "The banner says whether the service is healthy. If it is red, click it to see who used up "
    "the error budget, or click an alert's top cause to open a request that shows it."
)
STACKS = {"all": "whole request", "first": "to first token"}


@dataclass(frozen=True, slots=True)
class Below:
    """Data of the tables below the charts; `slowest` may cover only the last hour."""

    changes: reading.Rows
    actions: reading.Rows
    slowest: reading.Rows
    is_last_hour: bool


def show() -> None:
    """Draw the page."""
    selection = selection_bar()
    st.html(markup.lead(_LOOK_FOR))
    refreshing(partial(_body, selection), selection.refresh_s())


def _body(selection: Selection) -> None:
    window = selection.window(now_ms())
    begun, below = health_later(selection, window), _begin_below(selection, window)
    data = begun()
    window = data.window
    if not data.summary["num_requests"]:
        st.html(f'<div class="ek-asof">{as_of(None)}</div>')
        _show_empty(selection, window)
        show_slos(data, selection)
        # A service that is down has no requests, but alerts.
        if data.alerts:
            _show_alerts(data, selection)
        return
    st.html(markup.verdict_banner(_verdict(data, selection), _as_of(data, selection)))
    show_slos(data, selection)
    is_firing = any(row["state"] == "firing" for row in (*data.slos, *data.alerts))
    if is_firing:
        _show_alerts(data, selection)
    st.html(
        markup.number_tiles(
            headline_tiles(data.summary, data.previous),
            f"the {formats.span_of(window.duration_s)} before",
        )
    )
    st.html(f'<div class="ek-remark" data-wasted>{escape(data.wasted.words())}</div>')
    _show_charts(data, window, selection.filters())
    if not is_firing:
        _show_alerts(data, selection)
    _show_changes(below, selection)
    _show_slowest(below, selection)


def _begin_below(selection: Selection, window: Window) -> Below:
    """Start reading the data of the tables below the charts."""
    # To the minute, so that a live page queries once per minute.
    to_ms = window.to_ms // 60_000 * 60_000 + 60_000
    ranked = window.newest(num_requests(selection, window))
    parameters = {
        **range_of(ranked),
        **selection.filters(),
        "rank_by": chosen_of("rank", RANKINGS),
        "limit": MAX_SLOWEST,
    }
    return Below(
        changes=reading.minute_rows_later(
            _HERE / "changes.sql", {"from_ms": to_ms - _CHANGES_MS, "to_ms": to_ms}
        ),
        actions=reading.rows_later(reading.SHARED / "control_steps.sql", range_of(window)),
        slowest=reading.rows_later(reading.SHARED / "slowest_requests.sql", parameters),
        is_last_hour=ranked != window,
    )


def _verdict(data: HealthData, selection: Selection) -> StateSummary:
    end_ms = data.window.to_ms
    shown = Shown(
        range_words=range_words(data.window.duration_s, is_fixed=selection.is_fixed),
        now_ms=end_ms,
        is_past=selection.is_past(now_ms()),
        burned_ms=data.burned_ms,
    )
    found = verdict(data.slos, data.summary, data.previous, shown)
    slo = worst_firing(data.slos)
    if not slo:
        return found
    return replace(found, href=markup.page_link("slo", {"slo": slo, **selection.to_params()}))


def _as_of(data: HealthData, selection: Selection) -> str:
    return as_of(data.newest_ms, None if selection.is_fixed else data.window.to_ms)


def _show_empty(selection: Selection, window: Window) -> None:
    at_ms = now_ms()
    found = reading.rows(_HERE / "newest_request.sql", {"now_ms": at_ms})[0]
    newest_ms = found["newest_ms"]
    text = newest_words(newest_ms, found["ahead_ms"], at_ms)
    if not text:
        st.html(
            markup.hint(
                "No requests stored yet",
                "Serve a model, or simulate some requests:",
                "evenkeel simulate --incident long-prompts",
            )
        )
        return
    if any(selection.filters().values()):
        text += " The filters may exclude everything."
    st.html(markup.hint("No requests in this range", text))
    if any(selection.filters().values()):
        href = markup.page_link("", selection.unfiltered().to_params())
        st.html(f'<a class="ek-link" href="{href}" target="_self">Clear filters</a>')
    if newest_ms is None:
        return
    # It is the newest of all, whatever the filters.
    around = selection.unfiltered().narrowed(newest_ms - 3_540_000, newest_ms + 60_000)
    st.html(
        f'<a class="ek-link" href="{markup.page_link("", around.to_params())}" target="_self">'
        "Show the hour before that request</a>"
    )


def show_slos(data: HealthData, selection: Selection) -> None:
    """Draw the SLOs, or how to have some evaluated."""
    if not data.slos and identity().tenant:
        st.caption(f"No SLO is evaluated for tenant {markup.plain(identity().tenant or '')} alone.")
        return
    if not data.slos and selection.is_past(now_ms()):
        st.caption("No SLO was evaluated at the end of this range.")
        return
    if not data.slos:
        st.html(
            markup.remark(
                "No SLO is evaluated: write objectives in slos.yaml and start",
                "evenkeel collect --slos slos.yaml",
            )
        )
        return
    params = selection.to_params()
    shown, num_more = worst_slos(data.slos)
    tiles = [
        slo_tile(
            row,
            data.burns.get(row["slo"], []),
            markup.page_link("slo", {"slo": row["slo"], **params}),
        )
        for row in shown
    ]
    st.html(markup.slo_tiles(tiles, colours(), num_more=num_more))


def _show_charts(data: HealthData, window: Window, filters: Mapping[str, str]) -> None:
    ttft, itl, tpot = (partial(_percentiles, name, filters) for name in ("ttft", "itl", "tpot"))
    pairs: tuple[tuple[Draw, Draw], ...] = (
        (ttft, _phases),
        (itl, tpot),
        (_outcomes, _tokens),
    )
    for pair in pairs:
        for column, draw in zip(st.columns(2, gap="small"), pair, strict=True):
            with column:
                draw(data, window)


def _percentiles(
    measure: str, filters: Mapping[str, str], data: HealthData, window: Window
) -> None:
    title, meaning = TITLES[measure]
    palette = colours()
    column = "itl_p99" if measure == "itl" else measure
    series = [
        Line(f"{column}_{p}_s", p, colour, width)
        for p, colour, width in zip(
            PERCENTILES, palette.ramps[measure], (1.6, 2.0, 2.4), strict=True
        )
    ]
    columns = [line.column for line in series]
    if measure == "itl" and (note := zero_gap_note(*data.series[columns].min())):
        meaning += f"; {note}"
    scale = scale_of(data.series, columns)
    figure = lines(data.series, series, scale, window)
    for limit_s, label in drawn_limits(data.slos, measure, filters):
        add_objective(figure, limit_s, label, scale, palette)
    add_periods(figure, firing_periods(data.alerts, window), palette)
    zoomable(figure, measure, title, meaning)


def _phases(data: HealthData, window: Window) -> None:
    palette = colours()
    series = [
        Line("queue_mean_s", "queue", palette.queue),
        Line("prefill_mean_s", "prefill", palette.prefill),
        Line("decode_mean_s", "decode", palette.decode),
    ]
    with st.container(border=True, key="card-phases", gap="xxsmall"):
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            title, meaning = "Where the time goes", "mean time per request, by phase"
            st.html(f'<div class="ek-title">{title}<small>{meaning}</small></div>')
            shown = series[:2] if choice("stack", "phases", STACKS) == "first" else series
        scale = scale_of(data.series, [line.column for line in shown], is_stacked=True)
        chart(
            stacked_bars(data.series, shown, scale, window),
            "phases",
            f"{title}: {meaning}",
        )


def _tokens(data: HealthData, window: Window) -> None:
    palette = colours()
    series = [Line("output_tokens_per_s", "output tokens/s", palette.ramps["tokens"][1])]
    figure = lines(data.series, series, Scale("", 1.0), window)
    zoomable(figure, "tokens", "Throughput", "output tokens per second")


def _outcomes(data: HealthData, window: Window) -> None:
    palette = colours()
    series = [
        Line("errors_per_s", "error", palette.error),
        Line("aborted_per_s", "aborted", palette.aborted),
        Line("shed_per_s", "shed", palette.shed),
        Line("ok_per_s", "ok", palette.ok),
    ]
    figure = stacked_bars(data.series, series, Scale("/s", 1.0), window)
    zoomable(figure, "outcomes", "Requests by outcome", "requests per second, by outcome")


def _show_alerts(data: HealthData, selection: Selection) -> None:
    now = "at its end" if selection.is_past(now_ms()) else "now"
    num_all = data.alerts[0]["num_alerts"] if data.alerts else 0
    some = f"; {len(data.alerts)} of {num_all:,}" if num_all > len(data.alerts) else ""
    with st.container(border=True, key="card-alerts"):
        st.html(
            f'<div class="ek-title">Alerts<small>firing {now}, and in this range{some}'
            "</small></div>"
        )
        names = {alert["slo"] for alert in data.alerts if alert["state"] == "firing"}
        fired = [row["slo"] for row in data.slos if row["state"] == "firing"]
        if just_fired := [slo for slo in fired if slo not in names]:
            st.caption(
                f"Just fired: {markup.plain(', '.join(just_fired))}. The cause and examples "
                "follow within seconds."
            )
        elif not data.alerts:
            st.caption("No alerts in this range.")
        if not data.alerts:
            return
        end_ms = data.window.to_ms if selection.is_fixed else now_ms()
        params = selection.to_params()
        rows = [alert_cells(alert, end_ms, params) for alert in data.alerts]
        st.html(markup.table(alert_headers(), rows, "Alerts"))


def _show_changes(below: Below, selection: Selection) -> None:
    with st.container(border=True, key="card-changes"):
        st.html(
            '<div class="ek-title">What changed last<small>prompts, models and servers first seen '
            "in the week up to the range's end, control actions of the range</small></div>"
        )
        rows = change_cells(below.changes(), below.actions()[:5], selection.to_params())
        if not rows:
            st.caption("No new prompt version, model or server, and no control action.")
            return
        st.html(markup.table((formats.zoned("when"), "what", "from", "to", ""), rows, "Changes"))


def _show_slowest(below: Below, selection: Selection) -> None:
    with st.container(border=True, key="card-slowest"):
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            st.html(
                '<div class="ek-title">Slowest requests'
                "<small>open one to see where its time went</small></div>"
            )
            choice("rank", "rank by", RANKINGS)
        if below.is_last_hour:
            st.caption("Too many to rank them all: these are from the last hour of the range.")
        found = below.slowest()
        if not found:
            st.caption("None in this range.")
            return
        palette = colours()
        st.html(
            markup.key(
                [("queue", palette.queue), ("prefill", palette.prefill), ("decode", palette.decode)]
            )
        )
        st.html(
            markup.table(
                request_headers(),
                request_cells(found, selection.to_params(), palette),
                "Slowest requests",
            )
        )
