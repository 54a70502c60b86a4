"""Draws what control changed, and times with a queue before and after it was allowed to act."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.charts import time_ms
from evenkeel_dashboard.draw.control import control
from evenkeel_dashboard.draw.markup import Cell, moment_cell
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.contents import range_of
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.pages.engine.data import EngineData
from evenkeel_dashboard.pages.engine.model import QUEUE_FROM
from evenkeel_dashboard.pages.engine.outcomes import (
    find_acting,
    num_words,
    side_by_side,
)

_HERE = Path(__file__).parent


def show_actions(data: EngineData, selection: Selection, window: Window) -> None:
    """Draw what control changed, and how its acting compares with its watching."""
    with st.container(border=True, key="card-actions"):
        st.html(
            '<div class="ek-title">Control actions<small>what control changed, newest first; '
            "burn rate before, and one window after</small></div>"
        )
        if not data.actions:
            st.caption("None in this range.")
            return
        rows = []
        for action in data.actions:
            said = control(action)
            rows.append(
                [
                    moment_cell(action["time_ms"]),
                    Cell(said.lever),
                    Cell(said.change),
                    Cell(said.burn, is_number=True),
                    Cell(html=markup.badge(said.effect, said.level)),
                    Cell(said.reason or "–", wraps=True),
                ]
            )
        headers = (formats.zoned("when"), "lever", "change", "burn", "effect", "why")
        st.html(markup.table(headers, rows, "Control actions"))
        _show_effect(data, selection, window)


def _show_effect(data: EngineData, selection: Selection, window: Window) -> None:
    """Draw time to first token under a queue, with control watching and acting side by side."""
    acting = find_acting(data.actions)
    busy_s = [
        time_ms(row["bucket"]) // 1000
        for row in data.rows
        if (row["num_waiting"] or 0.0) >= QUEUE_FROM
    ]
    if acting is None or not busy_s:
        return
    switched_ms, until_ms = acting
    ends = range_of(window)
    parameters: reading.Parameters = {
        **(ends if until_ms is None else ends | {"to_ms": until_ms}),
        "model": selection.model,
        "step_s": window.step_s,
        "busy_s": tuple(busy_s),
        "switched_ms": switched_ms,
    }
    found = side_by_side(reading.rows(_HERE / "control_effect.sql", parameters))
    if not found:
        return
    until = "" if until_ms is None else f" to {formats.clock_ms(until_ms)}"
    st.html(
        '<div class="ek-title" style="margin-top:.6rem">Watching and acting<small>time to first '
        "token while requests queued, before control was allowed to act and while it was, from "
        f"{formats.clock_ms(switched_ms)}{until}; two times, not a randomised comparison"
        "</small></div>"
    )
    rows = [
        [
            Cell(one.slo_class),
            Cell(num_words(one.watching), is_number=True),
            Cell(formats.seconds(one.watching["p50_s"]), is_number=True),
            Cell(formats.seconds(one.watching["p95_s"]), is_number=True),
            Cell(num_words(one.acting), is_number=True),
            Cell(formats.seconds(one.acting["p50_s"]), is_number=True),
            Cell(formats.seconds(one.acting["p95_s"]), is_number=True),
            Cell(one.words, level=one.level),
        ]
        for one in found
    ]
    headers = (
        "SLO class",
        "watching: requests",
        "TTFT p50",
        "TTFT p95",
        "acting: requests",
        "TTFT p50",
        "TTFT p95",
        "p95",
    )
    st.html(markup.table(headers, rows, "Control watching and acting"))
