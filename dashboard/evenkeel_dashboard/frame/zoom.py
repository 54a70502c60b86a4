"""Draws a chart in a card; dragging over it sets the page's time range."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.svg_chart import Chart
from evenkeel_dashboard.frame.fields import set_param
from evenkeel_dashboard.frame.page import move_range

_ASSETS = Path(__file__).parents[1] / "draw" / "assets"
_SHORTEST_MS = 5_000
# Milliseconds, up to 30 years: what a session or request can last.
_PART = re.compile(r"(-?[0-9]{1,12})~(-?[0-9]{1,12})")
# The charts' script is sent once per page, not with each refresh; a chart only queues itself.
_asks = st.components.v2.component(
    "evenkeel_chart",
    # Streamlit would take a single line for a file name.
    js="export default (c) => {\n(globalThis.ekCharts ??= []).push(c)\n}",
    isolate_styles=False,
)
_acts = st.components.v2.component(
    "evenkeel_charts", js=(_ASSETS / "chart.js").read_text(encoding="utf-8"), isolate_styles=False
)
_follows = st.components.v2.component(
    "evenkeel_links", js=(_ASSETS / "links.js").read_text(encoding="utf-8"), isolate_styles=False
)

OnPoint = Callable[[Mapping[str, Any]], None]
OnRange = Callable[[int, int], None]


def scripts() -> None:
    """Send the scripts of charts and links, once per page and outside `refreshing`."""
    _acts(key="charts-script")
    _follows(key="links-script")


def zoomable(
    drawn: Chart, name: str, title: str, meaning: str, on_point: OnPoint | None = None
) -> None:
    """Draw a chart in a card; see `chart`."""
    with st.container(border=True, key=f"card-{name}", gap="xxsmall"):
        st.html(f'<div class="ek-title">{escape(title)}<small>{escape(meaning)}</small></div>')
        chart(drawn, name, f"{title}: {meaning}", on_point)


def chart(
    drawn: Chart,
    name: str,
    alt: str,
    on_point: OnPoint | None = None,
    on_range: OnRange = move_range,
) -> None:
    """Draw a chart; dragging over it sets the page's range, or calls `on_range`.

    `on_point` makes it clickable and receives the point: `at_ms` (the start of its step), `name`,
    `value`, and `middle` (of a cell, in units of the y axis).
    """
    key = f"chart-{name}"

    def choose() -> None:
        sent = st.session_state[key]
        shortest_ms = _SHORTEST_MS if on_range is move_range else 1
        chosen = selected_ms(sent.get("range"), shortest_ms)
        if chosen is not None:
            on_range(*chosen)

    def pick() -> None:
        point = st.session_state[key].get("point")
        if point and on_point is not None:
            on_point(point)

    _asks(
        key=key,
        data={"html": drawn.markup(alt), "picks": on_point is not None},
        on_range_change=choose,
        on_point_change=pick,
    )


def show_part(from_ms: int, to_ms: int) -> None:
    """Keep the part of a timeline in the URL, in milliseconds since its start."""
    set_param("part", f"{from_ms}~{to_ms}")


def part_shown() -> tuple[float, float] | None:
    """Return the part of the timeline in the URL, in seconds since its start; None for all."""
    return read_part(st.query_params.get("part", ""))


def read_part(text: str) -> tuple[float, float] | None:
    """Return start and end of a part such as 1200~3400, in seconds; None if it is not one."""
    found = _PART.fullmatch(text)
    if found is None or int(found[1]) >= int(found[2]):
        return None
    return int(found[1]) / 1000, int(found[2]) / 1000


def selected_ms(ends: object, shortest_ms: int = _SHORTEST_MS) -> tuple[int, int] | None:
    """Return start and end of the dragged range; None if there is none or it is too short."""
    if not (isinstance(ends, list) and len(ends) == 2 and all(type(e) is int for e in ends)):
        return None
    begin, end = ends
    return (begin, end) if end - begin >= shortest_ms else None
