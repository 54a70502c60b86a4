"""Draws the latency page's charts: percentiles or cohorts over time, and the heatmap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.charts import Line, lines, scale_of, time_chart, time_ms
from evenkeel_dashboard.draw.svg_chart import HEIGHT, Chart, Series
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.pages.latency.model import (
    BINS_A_DECADE,
    NOTHING_ABOVE_S,
    Heat,
    Picked,
    axis_ticks_s,
)

if TYPE_CHECKING:
    from evenkeel_dashboard.draw.charts import Scale

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
    frames: Mapping[str, pd.DataFrame], column: str, window: Window, colours: Palette
) -> tuple[Chart, Scale]:
    """Return a chart with one line per cohort: a column of its frame; there is one at least."""
    series = [
        Line(str(i), name, colours.categories[i % len(colours.categories)])
        for i, name in enumerate(frames)
    ]
    values = {str(i): frame[column] for i, frame in enumerate(frames.values())}
    frame = pd.DataFrame({"bucket": next(iter(frames.values()))["bucket"], **values})
    scale = scale_of(frame, list(values))
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
    chart.y_ticks = [(math.log10(tick), formats.seconds(tick)) for tick in ticks]
    chart.bottom = min(grid.bins, default=0) / BINS_A_DECADE
    chart.top = (max(grid.bins, default=0) + 1) / BINS_A_DECADE
    chart.height = HEIGHT + 60
    return chart


def heat_key(grid: Heat, colours: Palette) -> list[tuple[str, str]]:
    """Return the heatmap's legend: numbers of requests in a cell, and their colours."""
    most = max((n for row in grid.counts for n in row if n), default=0.0)
    if not most:
        return []
    counts = sorted({max(1, round(most * part)) for part in (0.0, 0.25, 1.0)})
    return [
        (f"{formats.count(n)} request{'' if n == 1 else 's'}", _shade_of(n, most, colours))
        for n in counts
    ]


def add_threshold(chart: Chart, threshold_s: float, name: str, colours: Palette) -> None:
    """Draw an objective's limit as a dashed line across the heatmap, if it is in its range."""
    height = math.log10(threshold_s)
    if chart.bottom <= height <= chart.top:
        path = f"M{chart.left:.5g} {height:.5g}H{chart.right:.5g}"
        chart.series.append(Series(name, colours.bad, path, "mark", 1.2, "6 4"))


def mark_point(chart: Chart, picked: Picked, scale: Scale, colours: Palette) -> None:
    """Mark the picked point's time, and its value if a single point was picked."""
    x = (picked.from_ms - chart.begin_ms) / chart.step_ms
    if not chart.left <= x <= chart.right:
        return
    line = f"M{x:.5g} {chart.bottom:.5g}V{chart.top:.5g}"
    chart.series.append(Series("picked", colours.text, line, "mark", 1.2, "2 3"))
    height = picked.near_s * scale.factor
    if picked.high_s >= NOTHING_ABOVE_S and height <= chart.top:
        chart.series.append(Series("", colours.text, f"M{x:.5g} {height:.5g}h0", "mark", 9.0))


def mark_cell(chart: Chart, picked: Picked, colours: Palette) -> None:
    """Frame the picked cell of the heatmap, or mark the picked point's time."""
    left, right = (
        max(chart.left, min(chart.right, (ms - chart.begin_ms) / chart.step_ms))
        for ms in (picked.from_ms, picked.to_ms)
    )
    if left >= right:
        return
    low, high = chart.bottom, chart.top
    if picked.low_s < picked.high_s < NOTHING_ABOVE_S:
        low = math.log10(picked.low_s) if picked.low_s > 0 else chart.bottom
        high = math.log10(picked.high_s)
    path = f"M{left:.5g} {low:.5g}H{right:.5g}V{high:.5g}H{left:.5g}V{low:.5g}"
    chart.series.append(Series("picked", colours.text, path, "mark", 1.6))


def _shade_of(count: float, most: float, colours: Palette) -> str:
    shade = min(_NUM_SHADES - 1, int(_NUM_SHADES * math.sqrt(count / most)))
    return _shade(shade / (_NUM_SHADES - 1), colours)


def _shade(part: float, colours: Palette) -> str:
    """Return a colour interpolated on the palette's heat scale."""
    low, middle, high = colours.heat
    if part <= 0.5:
        return f"color-mix(in srgb, {middle} {part * 2:.0%}, {low})"
    return f"color-mix(in srgb, {high} {part * 2 - 1:.0%}, {middle})"
