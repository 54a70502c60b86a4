"""Draws a request's whole trace: its waterfall, the views of the call, and a span's details."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.escaping import escape, visible
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.page import colours, selection
from evenkeel_dashboard.pages.request.span_kinds import ATTRIBUTES, kind_of
from evenkeel_dashboard.pages.request.trace_axis import axis_of, remark
from evenkeel_dashboard.pages.request.trace_calls import CallView, gap_words, views_of
from evenkeel_dashboard.pages.request.trace_tree import Trace, build_trace
from evenkeel_dashboard.pages.request.waterfall import MAX_WORDS, lay_out, shown_data, summary

_HERE = Path(__file__).parent
_SCRIPT = Path(__file__).parents[2] / "draw" / "assets" / "trace.js"
# More spans than this are not shown, which the page says.
MAX_SPANS = 20_000
MAX_REQUESTS = 2_000
# How far from the request its trace is looked for.
AROUND_MS = 6 * 3_600_000
_draws = st.components.v2.component(
    "evenkeel_trace", js=_SCRIPT.read_text(encoding="utf-8"), isolate_styles=False
)

Row = dict[str, Any]


class TraceReading:
    """The spans and requests of one trace, being read.

    Args:
        trace_id: The trace.
        at_ms: A moment near it, Unix milliseconds.
    """

    def __init__(self, trace_id: str, at_ms: int) -> None:
        self.trace_id = trace_id
        self.window: dict[str, reading.Value] = {
            "trace_id": trace_id,
            "from_ms": at_ms - AROUND_MS,
            "to_ms": at_ms + AROUND_MS,
        }
        self._spans = reading.rows_later(
            _HERE / "request_spans.sql", {**self.window, "names": ATTRIBUTES, "limit": MAX_SPANS}
        )
        self._requests = reading.rows_later(
            _HERE / "request_calls.sql", {**self.window, "limit": MAX_REQUESTS}
        )

    def trace(self) -> Trace:
        """Wait for the spans, and return the trace."""
        return build_trace(self._spans())

    def requests(self) -> list[Row]:
        """Wait for the requests, and return their rows."""
        return self._requests()

    def span(self, span_id: str) -> list[Row]:
        """Return everything that was received of a span; several rows if its id repeats."""
        return reading.rows(_HERE / "request_span.sql", {**self.window, "span_id": span_id})


def show_trace(read: TraceReading, own_span_id: str, address: dict[str, str]) -> None:
    """Draw the trace as a waterfall.

    Args:
        read: The trace, being read.
        own_span_id: The span of the page's request; "" if the page shows a trace alone.
        address: The page's own parameters, which links to spans keep.
    """
    trace, requests = read.trace(), read.requests()
    with st.container(border=True, key="card-trace", gap="xsmall"):
        st.html(
            f'<div class="ek-title">Trace<small>{escape(summary(trace, requests))}</small></div>'
        )
        if not trace.roots:
            st.caption(
                "None of its spans is stored: they are past the retention, or were not sent."
            )
            return
        nodes, counted = trace.nodes(), {row["span_id"] for row in requests}
        axis = axis_of(nodes, counted)
        views = views_of(nodes, own_span_id, counted)
        if shown := _views(views):
            st.html(shown)
        for said in filter(None, (*trace.remarks, remark(nodes, axis))):
            st.html(f'<div class="ek-remark" data-remark>{escape(said)}</div>')
        chosen = _chosen_span()
        marked = {chosen or own_span_id} - {""}
        before, after = _address(address)
        rows = lay_out(trace, requests)
        _draws(
            key="trace-waterfall",
            data=shown_data(axis, rows, colours(), marked, {"before": before, "after": after}),
        )
    if chosen:
        _show_span(read.span(chosen), chosen)


def _chosen_span() -> str:
    return str(st.query_params.get("span", "")).strip().lower()


def _address(address: dict[str, str]) -> tuple[str, str]:
    """Return a link to a span's details, split around the span's id."""
    mark = "SPAN"
    before, _, after = markup.page_link(
        "request", {**address, **selection().to_params(), "span": mark}
    ).rpartition(mark)
    return before, after


def _views(views: Sequence[CallView]) -> str:
    """Return the times of one call by those who traced it, and the time between them."""
    if len(views) < 2:
        return ""
    parts = "".join(
        f"<span><b>{escape(view.who)}</b> {formats.seconds(view.node.duration_ns / 1e9)} "
        f"<small>{escape(view.node.service)}{', counted' if view.is_counted else ''}</small></span>"
        for view in views
    )
    gaps = gap_words(views)
    between = f"<span><b>between</b> {escape(', '.join(gaps))}</span>" if gaps else ""
    return f'<div class="ek-call-views" data-views>{parts}{between}</div>'


def _show_span(found: Sequence[Row], span_id: str) -> None:
    with st.container(border=True, key="card-span"):
        if not found:
            st.html(markup.hint("No such span", f"The trace has no span {span_id!r}."))
            return
        if len(found) > 1:
            st.caption(f"{len(found)} spans were received with this id.")
        for span in found:
            kind = kind_of(span["name"], span["attributes"])
            name = escape(visible(span["name"], MAX_WORDS))
            st.html(
                f'<div class="ek-title">{name}<small>{escape(kind.value)} · '
                f"{escape(span['service'])} · {formats.seconds(span['duration_ns'] / 1e9)} · from "
                f"{formats.moment_ms(span['time_ns'] // 1_000_000)}</small></div>"
            )
            if span["status_code"] == "Error":
                said = span["status_message"] or span["attributes"].get("error.type") or "error"
                st.html(markup.badge(said, "bad"))
            st.html(
                markup.facts(
                    [
                        ("span", span["span_id"]),
                        ("parent", span["parent_span_id"] or "–"),
                        ("kind", span["kind"]),
                        ("scope", f"{span['scope']} {span['scope_version']}".strip() or "–"),
                    ]
                )
            )
            for title, content in _contents(span):
                st.html(f'<div class="ek-label">{title}</div>')
                st.code(json.dumps(content, indent=1, sort_keys=True), language="json")


def _cut(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name: visible(text) for name, text in attributes.items()}


def _contents(span: Row) -> list[tuple[str, object]]:
    events = [
        {
            "name": name,
            "after": formats.signed_seconds((time_ns - span["time_ns"]) / 1e9),
            **_cut(attributes),
        }
        for name, time_ns, attributes in zip(
            span["event_names"], span["event_times_ns"], span["event_attributes"], strict=True
        )
    ]
    found = [
        ("attributes", _cut(span["attributes"])),
        ("resource", _cut(span["resource_attributes"])),
        ("events", events),
        ("linked traces", list(span["link_trace_ids"])),
    ]
    return [(title, content) for title, content in found if content]
