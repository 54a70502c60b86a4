"""Draws engines' own latency histograms: percentiles over the range."""

from __future__ import annotations

import streamlit as st

from evenkeel_dashboard.draw import markup
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.pages.engine.data import EngineData
from evenkeel_dashboard.pages.engine.metrics import histogram_rows


def show_histograms(data: EngineData) -> None:
    """Draw a table of percentiles; nothing with step records, whose requests say more."""
    if not data.engines:
        return
    with st.container(border=True, key="card-histograms"):
        st.html(
            '<div class="ek-title">Latency, as the engines count it<small>from their histograms, '
            "interpolated within a bucket; the Latency page reads single requests</small></div>"
        )
        rows = [
            [
                Cell(row.engine),
                Cell(row.name),
                *(Cell(value, is_number=True) for value in row.values),
                Cell(row.num_observations, is_number=True),
                Cell(row.note or "–", wraps=True),
            ]
            for row in histogram_rows(data.histograms, data.engines)
        ]
        headers = ("engine", "what", "p50", "p95", "p99", "observations", "remark")
        st.html(markup.table(headers, rows, "Latency, as the engines count it"))
