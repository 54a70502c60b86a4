"""Draws tables of engines: how evenly they take their steps, and their latency histograms."""

from __future__ import annotations

import streamlit as st

from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.markup import Cell, moment_cell
from evenkeel_dashboard.draw.request_rows import short_id
from evenkeel_dashboard.pages.engine.data import EngineData
from evenkeel_dashboard.pages.engine.metrics import histogram_rows
from evenkeel_dashboard.pages.engine.outcomes import STRAGGLER_FACTOR, against_others


def show_steps(data: EngineData) -> None:
    """Draw each engine's mean step time, its spread, and its stragglers, the slowest first."""
    if not data.spread:
        return
    with st.container(border=True, key="card-steps-spread"):
        st.html(
            '<div class="ek-title">Step time by engine<small>a straggler is a step of more than '
            f"{STRAGGLER_FACTOR}× the median for its batch size and prompt tokens</small></div>"
        )
        slowness = against_others(data.spread)
        rows = [
            [
                Cell(f"{short_id(row['instance'])}, engine {row['engine']}", title=row["instance"]),
                Cell(formats.count(row["num_steps_sum"]), is_number=True),
                Cell(formats.seconds(row["mean_s"]), is_number=True),
                Cell(f"± {formats.seconds(row['spread_s'])}", is_number=True),
                Cell(formats.count(row["num_stragglers"]), is_number=True),
                Cell(formats.seconds(row["straggled_s"]), is_number=True),
                Cell(formats.seconds(row["worst_s"]), is_number=True),
                moment_cell(row["worst_ms"]),
                Cell(words, level="warning" if words.startswith("slower") else ""),
            ]
            for row, words in zip(data.spread, slowness, strict=True)
        ]
        headers = (
            "engine",
            "steps",
            "mean",
            "spread",
            "stragglers",
            "time lost to them",
            "longest",
            formats.zoned("when"),
            "against the others",
        )
        st.html(markup.table(headers, rows, "Step time by engine"))


def show_histograms(data: EngineData) -> None:
    """Draw a table of percentiles; nothing with step records, whose requests say more."""
    if not data.engines:
        return
    with st.container(border=True, key="card-histograms"):
        st.html(
            '<div class="ek-title">Latency, as the engines count it<small>from their histograms, '
            "interpolated within a bucket, ≤ in the first one; the Latency page reads single "
            "requests</small></div>"
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
