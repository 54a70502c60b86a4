"""The latency page's figures: percentiles or cohorts over time, and the heatmap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from dashboard import wording
from dashboard.appearance import Palette
from dashboard.figures import HEIGHT, MILLISECONDS, Line, finish, lines, scale_of, with_step
from dashboard.latency_model import BINS_A_DECADE, Heat, axis_ticks_s, bin_edges
from dashboard.selection import Window

if TYPE_CHECKING:
    import pandas as pd

    from dashboard.figures import Scale

_WIDTHS = (1.6, 2.0, 2.4)


def percentile_lines(
    frame: pd.DataFrame, measure: str, window: Window, colours: Palette
) -> tuple[go.Figure, Scale]:
    """Return p50, p95 and p99 of all requests over time, and the scale of the axis."""
    series = [
        Line(f"{p}_s", p, colour, width)
        for p, colour, width in zip(
            ("p50", "p95", "p99"), colours.ramps[measure], _WIDTHS, strict=True
        )
    ]
    scale = scale_of(frame, [line.column for line in series])
    return lines(frame, series, scale, window, colours), scale


def cohort_lines(
    frame: pd.DataFrame, names: list[str], window: Window, colours: Palette
) -> tuple[go.Figure, Scale]:
    """Return one line a cohort; the frame has one column of that name each."""
    series = [
        Line(name, name, colours.categories[i % len(colours.categories)])
        for i, name in enumerate(names)
    ]
    scale = scale_of(frame, names)
    return lines(frame, series, scale, window, colours), scale


def heatmap(grid: Heat, step_s: int, window: Window, colours: Palette) -> go.Figure:
    """Return how many requests had which latency when, darker (or lighter, at night) for more.

    The colours are those of the square root of the number: one request must be seen beside a
    thousand. Cells bear invisible points, which, unlike cells, can be clicked.
    """
    figure = go.Figure()
    times = [with_step(step, step_s / 2) for step in grid.steps]
    roots = [[None if n is None else n**0.5 for n in row] for row in grid.counts]
    figure.add_heatmap(
        x=times,
        y=list(grid.bins),
        z=roots,
        colorscale=[[0, colours.heat[0]], [0.5, colours.heat[1]], [1, colours.heat[2]]],
        showscale=False,
        hoverinfo="skip",
        xgap=1,
        ygap=1,
    )
    cells = [
        (time, b, n)
        for b, row in zip(grid.bins, grid.counts, strict=True)
        for time, n in zip(times, row, strict=True)
        if n
    ]
    figure.add_scatter(
        x=[time for time, _, _ in cells],
        y=[b for _, b, _ in cells],
        mode="markers",
        marker={"size": 9, "symbol": "square", "opacity": 0},
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}},
        text=[f"{wording.count(n)} in {_bin_words(b)}" for _, b, n in cells],
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
    finish(figure, MILLISECONDS, window, colours)
    figure.update_layout(height=HEIGHT + 40, hovermode="closest", margin={"t": 8})
    ticks = axis_ticks_s(grid.bins)
    figure.update_yaxes(
        tickvals=[BINS_A_DECADE * math.log10(tick) - 0.5 for tick in ticks],
        ticktext=[wording.seconds(tick) for tick in ticks],
        ticksuffix="",
        range=[min(grid.bins, default=0) - 0.5, max(grid.bins, default=0) + 0.5],
        showgrid=False,
        rangemode="normal",
    )
    return figure


def _bin_words(number: int) -> str:
    low, high = bin_edges(number)
    return f"{wording.seconds(low)} – {wording.seconds(high)}"
