"""A chart in a card; dragging over it makes the page's time range that stretch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from dashboard.page import move_range
from dashboard.selection import parse_time_ms

_CONFIG = {"displayModeBar": False, "displaylogo": False}
_SHORTEST_MS = 5_000


OnPoint = Callable[[Mapping[str, Any]], None]


def zoomable(
    figure: go.Figure, name: str, title: str, meaning: str, on_point: OnPoint | None = None
) -> None:
    """Draw a chart in a card; see `chart`."""
    with st.container(border=True, key=f"card-{name}", gap="xxsmall"):
        st.html(f'<div class="ek-title">{escape(title)}<small>{escape(meaning)}</small></div>')
        chart(figure, name, f"{title}: {meaning}", on_point)


def chart(figure: go.Figure, name: str, alt: str, on_point: OnPoint | None = None) -> None:
    """Draw a chart whose horizontal box selection becomes the page's range.

    With `on_point` it is clicked instead of dragged over: that is given the point, as Plotly
    describes it.
    """
    key = f"chart-{name}"

    def choose() -> None:
        event = st.session_state[key]
        chosen = selected_ms(event)
        if chosen is not None:
            move_range(*chosen)
            return
        points = event.get("selection", {}).get("points", [])
        if points and on_point is not None:
            on_point(points[0])

    if on_point is not None:
        # Streamlit takes no clicks from a figure that is dragged over to select.
        figure.update_layout(clickmode="event+select", dragmode="pan")
        figure.update_xaxes(fixedrange=True)
        figure.update_yaxes(fixedrange=True)
    st.plotly_chart(
        figure,
        key=key,
        theme=None,
        config=_CONFIG,
        on_select=choose,
        selection_mode="box" if on_point is None else "points",
        alt=alt,
    )


def selected_ms(event: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return begin and end of a box selection; None without one, or when it is too short."""
    boxes = event.get("selection", {}).get("box", [])
    if not boxes:
        return None
    times = sorted(t for t in (parse_time_ms(str(x)[:23]) for x in boxes[0]["x"]) if t is not None)
    if len(times) < 2 or times[-1] - times[0] < _SHORTEST_MS:
        return None
    return times[0], times[-1]
