"""Where did one request's time go, and what delayed it?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel.errors import StoreError
from evenkeel.store import QUERIES
from evenkeel.why.explanation import id_tail
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.escaping import escape, exactly
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.draw.positions import Position, positions
from evenkeel_dashboard.draw.request_rows import (
    end_cell,
    prompt_words,
    request_cells,
    request_headers,
    request_href,
    short_id,
)
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.contents import range_of
from evenkeel_dashboard.frame.fields import set_param
from evenkeel_dashboard.frame.page import colours, now_ms, selection, show_store_error
from evenkeel_dashboard.frame.polling import awaited
from evenkeel_dashboard.frame.zoom import chart, part_shown, show_part
from evenkeel_dashboard.pages.request.details import canary_later, show_delays, show_facts
from evenkeel_dashboard.pages.request.figure import timelines
from evenkeel_dashboard.pages.request.logs import show_logs
from evenkeel_dashboard.pages.request.model import (
    explanation,
    ids_to_find,
    is_trace_id,
    near_time_ms,
    nothing_drawn_words,
)
from evenkeel_dashboard.pages.request.records import show_judgements
from evenkeel_dashboard.pages.request.token_model import (
    CacheUse,
    Emission,
    cache_uses,
    own_attributes,
    tokens,
)
from evenkeel_dashboard.pages.request.trace_view import TraceReading, show_trace
from evenkeel_dashboard.pages.request.why import show_ledger, show_why

_HERE = Path(__file__).parent
MAX_LANES = 24
MAX_NEIGHBOURS = 200
_SUGGESTED = 12
_LOOK_AGAIN_S = 5
_FIND_ONE = (
    "Paste the ID of a request or trace, or the last characters of one, to see where its time "
    "went. Or open one of the slowest requests below."
)
_LOOK_FOR = (
    "The first sentence says what delayed the request and what would have helped. Below: its whole "
    "trace, its timeline token by token, and the requests that ran at the same time."
)

Row = dict[str, Any]


def show() -> None:
    """Draw the page."""
    try:
        _show()
    except StoreError as error:
        show_store_error(error)


def _show() -> None:
    wanted = (st.query_params.get("request_id") or st.query_params.get("trace_id") or "").strip()
    _search_field(wanted)
    if not wanted:
        _show_suggestions()
        return
    near_ms = near_time_ms(st.query_params.get("at", "0"))
    say_unknown = partial(_say_unknown, wanted)
    found = awaited(
        partial(_find, wanted, near_ms), say_unknown, _LOOK_AGAIN_S, f"request {wanted}"
    )
    if found and "num_spans" in found[0]:
        _show_trace_alone(wanted, found[0])
    elif found:
        _show_request(found[0])


def _find(wanted: str, near_ms: int) -> list[Row]:
    """Return the request; without one, when the trace of that id took place."""
    for near in dict.fromkeys((near_ms, 0)):
        where = {"near_ms": near}
        for each in ids_to_find(wanted):
            if found := reading.rows(_HERE / "request.sql", {"id": each, **where}):
                return found
        if is_trace_id(wanted):
            trace_id = wanted.lower()
            if found := reading.rows(_HERE / "request_trace.sql", {"trace_id": trace_id, **where}):
                return found
    if tail := id_tail(wanted):
        for named in reading.rows(QUERIES / "request_by_tail.sql", {"tail": tail}):
            return reading.rows(_HERE / "request.sql", {"id": named["request_id"], "near_ms": 0})
    return []


def _own_address() -> dict[str, str]:
    """Return the parameters of this page's address that links within it keep."""
    names = ("request_id", "trace_id", "at")
    return {name: st.query_params[name] for name in names if name in st.query_params}


def _show_trace_alone(trace_id: str, span_times: Row) -> None:
    st.html(
        f'<div class="ek-row ek-request"><h2>{escape(trace_id)}</h2></div>'
        f'<div class="ek-asof">{_as_of()} · began '
        f"{formats.moment_ms(span_times['from_ms'])}</div>"
    )
    st.html(
        markup.remark(
            "No request of this trace is stored: it calls no model, or what its client traced is "
            "still waiting for the server's record.",
            "",
        )
    )
    read = TraceReading(trace_id.lower(), span_times["from_ms"])
    show_trace(read, "", _own_address())
    show_logs({"trace_id": trace_id.lower(), "time_ns": span_times["from_ms"] * 1_000_000})


def _as_of() -> str:
    return f"data as of {formats.clock_ms(now_ms())}"


def _say_unknown(wanted: str) -> None:
    st.html(f'<div class="ek-asof">{_as_of()}</div>')
    st.html(
        markup.hint(
            "No such request",
            f"Neither a request nor a trace {wanted!r} is stored. Requests are stored when they "
            "end: this page retries automatically. Or it is past the store's retention.",
        )
    )


def _search_field(wanted: str) -> None:
    def search() -> None:
        st.query_params.pop("trace_id", None)
        st.query_params.pop("at", None)
        st.query_params.pop("part", None)
        st.query_params.pop("span", None)
        st.query_params["request_id"] = st.session_state["id_field"].strip()

    st.session_state["id_field"] = wanted
    st.text_input(
        "request or trace ID, or the end of one",
        key="id_field",
        on_change=search,
        width=460,
        placeholder="chatcmpl-… or a trace ID",
    )


def _show_suggestions() -> None:
    st.html(markup.lead(_FIND_ONE))
    chosen = selection()
    window = chosen.window(now_ms())
    parameters = {
        **range_of(window),
        **chosen.filters(),
        "rank_by": "ttft",
        "limit": _SUGGESTED,
    }
    found = reading.rows(reading.SHARED / "slowest_requests.sql", parameters)
    if not found:
        st.html(f'<div class="ek-asof">{_as_of()}</div>')
        st.html(
            markup.hint(
                "No request selected",
                "Paste an id above, or open one from the Health page. "
                f"None arrived in the range, {formats.span_of(window.duration_s)}.",
            )
        )
        return
    with st.container(border=True, key="card-suggestions"):
        st.html(
            '<div class="ek-title">Slowest to their first token'
            f"<small>open one, or paste an ID above; {_as_of()}</small></div>"
        )
        _phase_key()
        st.html(
            markup.table(
                request_headers(),
                request_cells(found, chosen.to_params(), colours()),
                "Slowest requests",
            )
        )


def _phase_key() -> None:
    palette = colours()
    st.html(
        markup.key(
            [("queue", palette.queue), ("prefill", palette.prefill), ("decode", palette.decode)]
        )
    )


def _show_request(row: Row) -> None:
    neighbours_read = reading.rows_later(
        _HERE / "request_neighbours.sql",
        {
            "model": row["model"],
            "request_id": row["request_id"],
            "start_ns": row["time_ns"],
            "end_ns": row["time_ns"] + round((row["e2e_s"] or 0.0) * 1e9),
            "limit": MAX_NEIGHBOURS,
        },
    )
    at_ms = row["time_ns"] // 1_000_000
    trace = TraceReading(row["trace_id"], at_ms)
    attributes = own_attributes(row, trace.span(row["span_id"]))
    series, caches = tokens(row, attributes), cache_uses(row, attributes)
    neighbours = neighbours_read()
    canary = canary_later(row)
    st.html(markup.lead(_LOOK_FOR))
    end = end_cell(row)
    st.html(
        f'<div class="ek-row ek-request"><h2>{escape(row["request_id"])}</h2>'
        f'<button type="button" class="ek-copy" data-copy="{exactly(row["request_id"])}" '
        'title="copy the id" aria-label="copy the id"></button>'
        f"{markup.badge(end.text, end.level or 'good')}</div>"
        f'<div class="ek-asof">{_as_of()} · arrived '
        f"{formats.moment_ms(at_ms)}</div>"
    )
    show_why(row, explanation(row, series, neighbours))
    show_trace(trace, row["span_id"], _own_address())
    _show_timeline(row, series, caches, neighbours)
    show_delays(attributes)
    show_facts(row, attributes, canary)
    show_ledger(row, attributes)
    _show_speculation(positions(row))
    _show_neighbours(neighbours)
    show_logs(row)
    show_judgements(row)


def _show_timeline(
    row: Row, series: list[Emission], caches: list[CacheUse], neighbours: list[Row]
) -> None:
    with st.container(border=True, key="card-waterfall", gap="xsmall"):
        st.html(
            '<div class="ek-title">Timeline<small>seconds since arrival; drag to zoom</small></div>'
        )
        part = part_shown()
        drawn = timelines(row, series, caches, neighbours[:MAX_LANES], colours(), part)
        if not drawn or drawn[0].name == "lanes":
            st.caption(markup.plain(nothing_drawn_words(row)))
            return
        for each in drawn:
            st.html(f'<div class="ek-label">{escape(each.title)}</div>')
            chart(each.chart, f"request-{each.name}", each.alt, on_range=show_part)
        if part is not None:
            st.button(
                "show the whole request", type="tertiary", on_click=set_param, args=("part", None)
            )


def _show_speculation(found: list[Position]) -> None:
    if not found:
        return
    with st.container(border=True, key="card-speculation"):
        st.html(
            '<div class="ek-title">Speculation by draft position'
            "<small>a token counts only if all tokens before it were accepted</small></div>"
        )
        rows = [
            [
                Cell(str(p.number), is_number=True),
                Cell(formats.count(p.drafted), is_number=True),
                Cell(formats.count(p.accepted), is_number=True),
                Cell(formats.percent(p.rate), is_number=True),
                Cell(
                    html=markup.phase_bar(
                        [("accepted", colours().decode, float(p.accepted))],
                        float(found[0].drafted),
                        formats.count,
                    )
                ),
            ]
            for p in found
        ]
        headers = ("position", "drafted", "accepted", "rate", "of drafts at position 1")
        st.html(markup.table(headers, rows, "Drafted and accepted tokens by position"))


def _show_neighbours(neighbours: list[Row]) -> None:
    with st.container(border=True, key="card-neighbours"):
        total = neighbours[0]["num_neighbours"] if neighbours else 0
        st.html(
            '<div class="ek-title">Other requests in flight'
            f"<small>{formats.count(total)} of the same model, those in prefill first; "
            "long prompts crowd the batch</small></div>"
        )
        if not neighbours:
            st.caption("No other requests were running.")
            return
        params = selection().to_params()
        rows = [
            [
                Cell(short_id(n["request_id"]), href=request_href(n, params)),
                Cell(formats.signed_seconds(n["offset_s"]), is_number=True, sorts_as=n["offset_s"]),
                Cell(formats.count(n["input_tokens"]), is_number=True),
                Cell(formats.count(n["cached_tokens"]), is_number=True),
                Cell(formats.count(n["prefilled_tokens"]), is_number=True),
                Cell(formats.seconds(n["prefill_s"]), is_number=True),
                Cell(formats.count(n["output_tokens"]), is_number=True),
                Cell(formats.seconds(n["e2e_s"]), is_number=True),
                Cell(n["tenant"] or "–"),
                Cell(prompt_words(n)),
            ]
            for n in neighbours[:MAX_LANES]
        ]
        headers = (
            "request",
            "arrived",
            "input",
            "cached",
            "to prefill",
            "prefill",
            "output",
            "total",
            "tenant",
            "prompt",
        )
        st.html(markup.table(headers, rows, "Neighbours"))
