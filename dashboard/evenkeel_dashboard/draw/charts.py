"""Draws time series as charts."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from evenkeel.times import unix_ns
from evenkeel_dashboard.draw import svg_chart
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.svg_chart import Chart
from evenkeel_dashboard.draw.window import Window

if TYPE_CHECKING:
    import pandas as pd

# Headroom above the largest value.
_ROOM = 1.05


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a chart: a column of the frame, with its name and colour."""

    column: str
    name: str
    colour: str
    width: float = 2.0


@dataclass(frozen=True, slots=True)
class Scale:
    """The unit of an axis, and the factor that converts base units to it."""

    unit: str
    factor: float


@dataclass(frozen=True, slots=True)
class ShadedPeriod:
    """A period to mark, such as a firing alert; its label is in the legend."""

    start: datetime
    end: datetime
    label: str
    is_urgent: bool = True


SECONDS = Scale("s", 1.0)
MILLISECONDS = Scale("ms", 1e3)


def scale_of(frame: pd.DataFrame, columns: Sequence[str], *, is_stacked: bool = False) -> Scale:
    """Return milliseconds if the largest value, or stack, is below a second, else seconds."""
    values = frame[list(columns)]
    largest = (values.sum(axis=1) if is_stacked else values.max(axis=1)).max()
    return SECONDS if largest >= 1.0 else MILLISECONDS


def time_chart(window: Window, step_s: float, begin_ms: int, unit: str = "") -> Chart:
    """Return an empty chart over a window; one unit of x is one step, and 0 is `begin_ms`."""
    step_ms = round(step_s * 1000)
    return Chart(
        left=(window.from_ms - begin_ms) / step_ms,
        right=(window.to_ms - begin_ms) / step_ms,
        x_ticks=svg_chart.time_ticks(window.from_ms, window.to_ms, begin_ms, step_ms),
        unit=unit,
        begin_ms=begin_ms,
        step_ms=step_ms,
    )


def lines(frame: pd.DataFrame, series: Sequence[Line], scale: Scale, window: Window) -> Chart:
    """Return a line chart; missing values leave gaps."""
    chart, places = _over_time(frame, scale, window)
    values = [(frame[line.column].to_numpy(dtype=float) * scale.factor).tolist() for line in series]
    for line, column in zip(series, values, strict=True):
        points = zip(places, column, strict=True)
        chart.series += svg_chart.line(line.name, line.colour, points, line.width)
    present = [v for column in values for v in column if v == v]
    chart.top = max(present, default=0.0) * _ROOM
    chart.bottom = min(0.0, min(present, default=0.0) * _ROOM)
    return chart


def stacked_bars(
    frame: pd.DataFrame, series: Sequence[Line], scale: Scale, window: Window
) -> Chart:
    """Return one bar per step, stacked in the order of the series; missing values have no bar."""
    chart, places = _over_time(frame, scale, window)
    base = np.zeros(len(frame))
    for line in series:
        values = frame[line.column].to_numpy(dtype=float) * scale.factor
        top = base + np.nan_to_num(values)
        stretches = zip(places, base.tolist(), top.tolist(), values.tolist(), strict=True)
        drawn = ((x + 0.5, low, high) for x, low, high, value in stretches if value == value)
        chart.series.append(svg_chart.bars(line.name, line.colour, drawn))
        base = top
    chart.top = float(base.max(initial=0.0)) * _ROOM
    return chart


def sparkline(values: Sequence[float | None], threshold: float | None, colours: Palette) -> str:
    """Return an inline SVG sparkline: dashed threshold, values above it in the "bad" colour."""
    present = [v for v in values if v is not None]
    if len(present) < 2:
        return ""
    top = max(max(present), threshold or 0.0, 1e-12) * 1.05
    step = 100 / (len(values) - 1)

    def y(value: float) -> float:
        return 23 - 22 * max(value, 0.0) / top

    points = [f"{i * step:.2f},{y(v):.2f}" for i, v in enumerate(values) if v is not None]
    is_over = threshold is not None and present[-1] > threshold
    colour = colours.bad if is_over else colours.accent
    dashes = (
        f'<line x1="0" x2="100" y1="{y(threshold):.2f}" y2="{y(threshold):.2f}" '
        f'stroke="{colours.muted}" stroke-dasharray="2 2" stroke-width="0.7" '
        'vector-effect="non-scaling-stroke"/>'
        if threshold is not None
        else ""
    )
    drawing = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 24" preserveAspectRatio="none">'
        f'{dashes}<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" '
        'stroke-width="1.6" vector-effect="non-scaling-stroke"/></svg>'
    )
    # Streamlit strips inline SVG from HTML, but keeps images.
    data = base64.b64encode(drawing.encode()).decode()
    return f'<img class="ek-spark" alt="" src="data:image/svg+xml;base64,{data}">'


def add_objective(
    chart: Chart, threshold_s: float, name: str, scale: Scale, colours: Palette
) -> None:
    """Return the chart with an objective as a dashed line across the range, named in the legend."""
    height = threshold_s * scale.factor
    path = f"M{chart.left:.5g} {height:.5g}H{chart.right:.5g}"
    chart.series.append(svg_chart.Series(name, colours.bad, path, "mark", 1.2, "6 4"))
    chart.top = max(chart.top, height * _ROOM)


def add_periods(chart: Chart, periods: Sequence[ShadedPeriod], colours: Palette) -> None:
    """Mark periods of the chart, such as those in which an alert fired, and name them.

    Urgent ones are shaded, others have a strip along the top: told apart without their colours.
    """
    named = set()
    for period in periods:
        start, end = (
            (time_ms(time) - chart.begin_ms) / chart.step_ms for time in (period.start, period.end)
        )
        colour = colours.bad if period.is_urgent else colours.warning
        (chart.periods if period.is_urgent else chart.strips).append((start, end, colour))
        if period.label not in named:
            named.add(period.label)
            kind = "shade" if period.is_urgent else "strip"
            chart.series.append(svg_chart.Series(period.label, colour, "", kind, opacity=0.3))


def time_ms(time: datetime) -> int:
    """Return a time in Unix milliseconds; a time without a zone is UTC."""
    return unix_ns(time) // 10**6


def _over_time(frame: pd.DataFrame, scale: Scale, window: Window) -> tuple[Chart, list[float]]:
    """Return an empty chart, and the x positions of the frame's rows."""
    times = frame["bucket"].to_numpy(dtype="datetime64[ms]").astype("int64")
    begin_ms = int(times[0]) if len(times) else window.from_ms
    chart = time_chart(window, window.step_s, begin_ms, scale.unit)
    return chart, ((times - begin_ms) / chart.step_ms).tolist()
