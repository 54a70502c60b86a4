"""Draws the latency page's charts: percentiles or cohorts over time, and the heatmap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from evenkeel_dashboard.draw import wording
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.figures import Line, lines, scale_of, time_chart, time_ms
from evenkeel_dashboard.draw.svg_chart import HEIGHT, Chart, Series
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.pages.latency.model import BINS_A_DECADE, Heat, axis_ticks_s

if TYPE_CHECKING:
    import pandas as pd

    from evenkeel_dashboard.draw.figures import Scale

_WIDTHS = (1.6, 2.0, 2.4)
_NUM_SHADES = 12
_CELL = 0.94


def percentile_lines(
    frame: pd.DataFrame, measure: str, window: Window, colours: Palette
) -> tuple[Chart, Scale]:
    """Return a chart of p50, p95 and p99 of all requests over time, and the scale of its axis."""
    series = [
        Line(f"{p}_s", p, colour, width)
        for p, colour, width in zip(
            ("p50", "p95", "p99"), colours.ramps[measure], _WIDTHS, strict=True
        )
    ]
    scale = scale_of(frame, [line.column for line in series])
    return lines(frame, series, scale, window), scale


def cohort_lines(
    frame: pd.DataFrame, names: list[str], window: Window, colours: Palette
) -> tuple[Chart, Scale]:
    """Return a chart with one line per cohort; the frame has one column named after each."""
    series = [
        Line(name, name, colours.categories[i % len(colours.categories)])
        for i, name in enumerate(names)
    ]
    scale = scale_of(frame, names)
    return lines(frame, series, scale, window), scale


def heatmap(grid: Heat, step_s: int, window: Window, colours: Palette) -> Chart:
    """Return the heatmap of latency over time; more requests are darker, or lighter in dark mode.

    Shades follow the square root of the count, so that one request is visible beside a thousand.
    The y axis is the decimal logarithm of seconds.
    """
    first = grid.steps[0] if grid.steps else None
    begin_ms = window.from_ms if first is None else time_ms(first)
    chart = time_chart(window, step_s, begin_ms)
    places = [(time_ms(step) - begin_ms) / chart.step_ms + 0.5 for step in grid.steps]
    most = max((n for row in grid.counts for n in row if n), default=1.0)
    shades: list[list[tuple[float, int, float]]] = [[] for _ in range(_NUM_SHADES)]
    for number, row in zip(grid.bins, grid.counts, strict=True):
        for place, n in zip(places, row, strict=True):
            if n:
                shade = min(_NUM_SHADES - 1, int(_NUM_SHADES * math.sqrt(n / most)))
                shades[shade].append((place, number, n))
    for shade, cells in enumerate(shades):
        if cells:
            path = "".join(
                f"M{x:.5g} {b / BINS_A_DECADE:.5g}V{(b + 1) / BINS_A_DECADE:.5g}"
                for x, b, _ in cells
            )
            counts = tuple(n for *_, n in cells)
            colour = _shade(shade / (_NUM_SHADES - 1), colours)
            chart.series.append(Series("", colour, path, "cell", _CELL, counts=counts))
    ticks = axis_ticks_s(grid.bins)
    chart.y_ticks = [(math.log10(tick), wording.seconds(tick)) for tick in ticks]
    chart.bottom = min(grid.bins, default=0) / BINS_A_DECADE
    chart.top = (max(grid.bins, default=0) + 1) / BINS_A_DECADE
    chart.height = HEIGHT + 60
    return chart


def _shade(part: float, colours: Palette) -> str:
    """Return a colour interpolated on the palette's heat scale."""
    low, middle, high = colours.heat
    if part <= 0.5:
        return f"color-mix(in srgb, {middle} {part * 2:.0%}, {low})"
    return f"color-mix(in srgb, {high} {part * 2 - 1:.0%}, {middle})"
