"""Plotly figures of time series: what is drawn, without where the numbers come from."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from dashboard.appearance import Palette
from dashboard.selection import Window

if TYPE_CHECKING:
    import pandas as pd

HEIGHT = 230


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a chart: a column of the frame, its name and colour."""

    column: str
    name: str
    colour: str
    width: float = 2.0


@dataclass(frozen=True, slots=True)
class Scale:
    """The unit of an axis and what a value in base units is multiplied by."""

    unit: str
    factor: float


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of time to shade, such as a firing alert."""

    start: datetime
    end: datetime
    label: str


SECONDS = Scale("s", 1.0)
MILLISECONDS = Scale("ms", 1e3)


def scale_of(frame: pd.DataFrame, columns: Sequence[str], *, is_stacked: bool = False) -> Scale:
    """Return milliseconds while the largest value, or stack, is below two seconds, else seconds."""
    values = frame[list(columns)]
    largest = (values.sum(axis=1) if is_stacked else values.max(axis=1)).max()
    return SECONDS if largest >= 2.0 else MILLISECONDS


def lines(
    frame: pd.DataFrame, series: Sequence[Line], scale: Scale, window: Window, colours: Palette
) -> go.Figure:
    """Return a line chart; missing values are gaps, never joined."""
    figure = go.Figure()
    for line in series:
        figure.add_scatter(
            x=frame["bucket"],
            y=frame[line.column] * scale.factor,
            name=line.name,
            mode="lines+markers",
            line={"color": line.colour, "width": line.width},
            marker={"size": _marker_sizes(frame[line.column]), "color": line.colour},
            connectgaps=False,
            hovertemplate=f"%{{y:.3~g}} {scale.unit}",
        )
    return finish(figure, scale, window, colours)


def stacked_bars(
    frame: pd.DataFrame, series: Sequence[Line], scale: Scale, window: Window, colours: Palette
) -> go.Figure:
    """Return bars stacked in the order of the series, one a step."""
    figure = go.Figure()
    for line in series:
        figure.add_bar(
            x=frame["bucket"],
            y=frame[line.column] * scale.factor,
            name=line.name,
            marker={"color": line.colour, "line": {"width": 0}},
            width=window.step_s * 1000 * 0.92,
            offset=0,
            hovertemplate=f"%{{y:.3~g}} {scale.unit}",
        )
    figure.update_layout(barmode="stack", bargap=0.08)
    return finish(figure, scale, window, colours)


def sparkline(values: Sequence[float | None], threshold: float | None, colours: Palette) -> str:
    """Return an inline SVG line; a threshold is dashed and what exceeds it is in the bad colour."""
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
    # Streamlit strips inline SVG from HTML; an image of it stays.
    data = base64.b64encode(drawing.encode()).decode()
    return f'<img class="ek-spark" alt="" src="data:image/svg+xml;base64,{data}">'


def add_objective(
    figure: go.Figure, threshold_s: float, name: str, scale: Scale, window: Window, colours: Palette
) -> None:
    """Draw an objective as a dashed line across the range, named in the legend."""
    figure.add_scatter(
        x=[_time(window.from_ms), _time(window.to_ms)],
        y=[threshold_s * scale.factor] * 2,
        name=name,
        mode="lines",
        line={"color": colours.bad, "width": 1.2, "dash": "dash"},
        hoverinfo="skip",
    )


def add_periods(figure: go.Figure, periods: Sequence[Period], colours: Palette) -> None:
    """Shade stretches of time, such as those in which an alert fired."""
    for period in periods:
        figure.add_vrect(
            x0=period.start,
            x1=period.end,
            fillcolor=colours.bad,
            opacity=0.10,
            line_width=0,
            layer="below",
        )


def _marker_sizes(column: pd.Series) -> list[int]:
    """Points with a gap on both sides would be invisible as a line: they get a marker."""
    missing = column.isna().to_numpy()
    last = len(missing) - 1
    return [
        5 if not gone and (i == 0 or missing[i - 1]) and (i == last or missing[i + 1]) else 0
        for i, gone in enumerate(missing)
    ]


def finish(figure: go.Figure, scale: Scale, window: Window, colours: Palette) -> go.Figure:
    """Give a figure of a time range its axes, type and behaviour, and return it."""
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 8, "r": 8, "t": 30, "b": 26},
        hovermode="x unified",
        dragmode="select",
        selectdirection="h",
        newselection={"line": {"color": colours.accent, "width": 1}},
        legend=legend(colours),
        font=font(colours),
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"bgcolor": colours.card, "font": {"color": colours.text}},
    )
    figure.update_xaxes(
        range=[_time(window.from_ms), _time(window.to_ms)],
        type="date",
        showgrid=False,
        linecolor=colours.line,
        ticks="outside",
        tickcolor=colours.line,
        ticklen=4,
        nticks=6,
        hoverformat="%d %b %H:%M:%S UTC",
    )
    figure.update_yaxes(
        rangemode="tozero",
        gridcolor=colours.line,
        zeroline=False,
        nticks=5,
        ticksuffix=f" {scale.unit}" if scale.unit else "",
        automargin=True,
    )
    return figure


def font(colours: Palette) -> Mapping[str, object]:
    """Return the type of all chart text: the page's own."""
    return {
        "family": '"Source Sans", "Source Sans Pro", sans-serif',
        "color": colours.muted,
        "size": 12,
    }


def legend(colours: Palette) -> Mapping[str, object]:
    """Return the legend's place and type: one row above the plot, at the left."""
    return {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": 1.0,
        "yanchor": "bottom",
        "font": {"size": 12, "color": colours.muted},
        "traceorder": "normal",
    }


def with_step(time: datetime, seconds: float) -> datetime:
    """Return a time moved on, as naive UTC, which is what Plotly prints as it is."""
    moved = time + timedelta(seconds=seconds)
    return moved.astimezone(UTC).replace(tzinfo=None) if moved.tzinfo else moved


def _time(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, tz=UTC).replace(tzinfo=None)
