"""The compare page's figure: which part of the requests of two cohorts took at most how long."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard import wording
from dashboard.appearance import Palette
from dashboard.compare_model import curve, quantile
from dashboard.figures import font, legend


def distributions(sides: Sequence[tuple[str, Sequence[float]]], colours: Palette) -> go.Figure:
    """Return one curve a side over a logarithmic axis; values are in order."""
    figure = go.Figure()
    styles = ((colours.categories[0], "solid"), (colours.categories[1], "dash"))
    for (name, ordered), (colour, dash) in zip(sides, styles, strict=True):
        values, parts = curve([max(v, 1e-6) for v in ordered])
        figure.add_scatter(
            x=values,
            y=[part * 100 for part in parts],
            name=name,
            mode="lines",
            line={"color": colour, "width": 2.4, "dash": dash},
            text=[wording.seconds(v) for v in values],
            hovertemplate="%{y:.1f} % took up to %{text}",
        )
    figure.update_layout(
        height=300,
        margin={"l": 8, "r": 8, "t": 30, "b": 26},
        legend=legend(colours),
        font=font(colours),
        hovermode="closest",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"bgcolor": colours.card, "font": {"color": colours.text}},
        dragmode=False,
    )
    ticks = [step * 10.0**decade for decade in range(-4, 4) for step in (1, 3)]
    figure.update_xaxes(
        type="log",
        range=_reach([ordered for _, ordered in sides]),
        tickvals=ticks,
        ticktext=[wording.seconds(t).replace(".00", "").replace(".0", "") for t in ticks],
        gridcolor=colours.line,
        linecolor=colours.line,
    )
    figure.update_yaxes(
        range=[0, 101],
        ticksuffix=" %",
        gridcolor=colours.line,
        zeroline=False,
        nticks=5,
        automargin=True,
    )
    return figure


def _reach(samples: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """Return where the axis begins and ends, as powers of ten; a few stragglers are cut off."""
    found = [ordered for ordered in samples if ordered]
    if not found:
        return None
    low = min(quantile(ordered, 0.005) or 0.0 for ordered in found)
    high = max(ordered[-1] for ordered in found)
    return math.log10(max(low, 1e-6) * 0.8), math.log10(max(high, 1e-6) * 1.1)
