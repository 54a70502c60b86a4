"""The alerts page's timeline: a bar a firing."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard import wording
from dashboard.alerts_model import Bar, local_time
from dashboard.appearance import Palette
from dashboard.figures import Scale, finish
from dashboard.selection import Window

_ROW = 34


def timeline_figure(bars: Sequence[Bar], window: Window, colours: Palette) -> go.Figure:
    """Return pending stretches thin, firing ones thick, silenced ones hatched; a row an alert."""
    figure = go.Figure()
    names = sorted({bar.name for bar in bars}, reverse=True)
    for state, colour, width in (
        ("pending", colours.warning, 0.28),
        ("firing", colours.bad, 0.62),
    ):
        shown = [bar for bar in bars if bar.state == state]
        if not shown:
            continue
        figure.add_bar(
            orientation="h",
            y=[bar.name for bar in shown],
            base=[local_time(bar.from_ms) for bar in shown],
            x=[bar.to_ms - bar.from_ms for bar in shown],
            width=width,
            name=state,
            marker={
                "color": colour,
                "line": {"width": 0},
                "pattern": {"shape": ["/" if bar.is_silenced else "" for bar in shown]},
            },
            text=[
                wording.seconds((bar.to_ms - bar.from_ms) / 1000)
                + (", silenced" if bar.is_silenced else "")
                for bar in shown
            ],
            textposition="none",
            hovertemplate=f"%{{y}}: {state} for %{{text}}<extra></extra>",
        )
    finish(figure, Scale("", 1.0), window, colours)
    figure.update_layout(
        barmode="overlay", height=70 + _ROW * max(1, len(names)), hovermode="closest"
    )
    figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=names, showgrid=False, nticks=None
    )
    return figure
