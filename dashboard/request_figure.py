"""The figure of one request: phases, bursts, gaps and neighbours over one time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard import wording
from dashboard.appearance import Palette
from dashboard.figures import font
from dashboard.request_model import Phase, Token, phases, thinned

Row = Mapping[str, Any]

_PHASE_ROW_PX = 96
_TOKEN_ROW_PX = 120
_LANE_PX = 17
_MARGIN_PX = 74
_ON_COLOUR = "#0D131A"
_SPACING_PX = 34


def request_figure(
    row: Row, series: Sequence[Token], neighbours: Sequence[Row], colours: Palette
) -> go.Figure:
    """Return the waterfall of a request above its token timeline and its neighbours' lanes."""
    heights = [_PHASE_ROW_PX]
    titles = ["phases"]
    if series:
        heights += [_TOKEN_ROW_PX, _TOKEN_ROW_PX]
        titles += ["tokens an emission", "gap before each emission, ms"]
    if neighbours:
        heights.append(max(_LANE_PX * len(neighbours) + 10, 60))
        titles.append("others in flight: those in prefill meanwhile first, by tokens to prefill")
    total_px = sum(heights) + _MARGIN_PX + _SPACING_PX * (len(heights) - 1)
    figure = make_subplots(
        rows=len(heights),
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=_SPACING_PX / (total_px - _MARGIN_PX) if len(heights) > 1 else 0,
        subplot_titles=titles,
    )
    _add_phases(figure, phases(row), colours)
    if series:
        _add_tokens(figure, thinned(series), colours)
    if neighbours:
        _add_lanes(figure, neighbours, len(heights), colours)
    end_s = row["e2e_s"] or (series[-1].time_s if series else 1.0)
    _finish(figure, end_s, len(heights), total_px, colours)
    if row["ttft_s"] is not None:
        _mark_first_token(figure, row["ttft_s"], colours)
    return figure


def _add_phases(figure: go.Figure, found: Sequence[Phase], colours: Palette) -> None:
    for phase in found:
        figure.add_bar(
            x=[phase.duration_s],
            base=[phase.start_s],
            y=[phase.name],
            orientation="h",
            marker={"color": getattr(colours, phase.name)},
            text=[f"{phase.name} {wording.seconds(phase.duration_s)}"],
            textposition="auto",
            insidetextanchor="start",
            textfont={"size": 12},
            # The phases' colours are light in both themes.
            insidetextfont={"color": _ON_COLOUR},
            hovertemplate=f"{phase.name}: {wording.seconds(phase.duration_s)}<extra></extra>",
            width=0.72,
            cliponaxis=False,
            row=1,
            col=1,
        )
    figure.update_yaxes(autorange="reversed", showticklabels=False, row=1, col=1)


def _add_tokens(figure: go.Figure, series: Sequence[Token], colours: Palette) -> None:
    """Draw emissions as stems of their size, and below them the gap that each ended."""
    _add_stems(figure, 2, [(t.time_s, t.num_tokens) for t in series], colours.decode, "%{y} tokens")
    usual = [(t.time_s, t.gap_s * 1e3) for t in series if t.gap_s is not None and not t.is_stall]
    stalls = [(t.time_s, t.gap_s * 1e3) for t in series if t.gap_s is not None and t.is_stall]
    _add_stems(figure, 3, usual, colours.muted, "gap %{y:.3~g} ms")
    _add_stems(figure, 3, stalls, colours.error, "stall %{y:.3~g} ms")
    figure.update_yaxes(rangemode="tozero", nticks=4, row=2, col=1)
    figure.update_yaxes(rangemode="tozero", nticks=4, row=3, col=1)


def _add_stems(
    figure: go.Figure, row: int, points: Sequence[tuple[float, float]], colour: str, words: str
) -> None:
    if not points:
        return
    xs = [x for time_s, _ in points for x in (time_s, time_s, None)]
    ys = [y for _, value in points for y in (0, value, None)]
    figure.add_scatter(
        x=xs,
        y=ys,
        mode="lines",
        line={"color": colour, "width": 1.6},
        hoverinfo="skip",
        row=row,
        col=1,
    )
    figure.add_scatter(
        x=[time_s for time_s, _ in points],
        y=[value for _, value in points],
        mode="markers",
        marker={"color": colour, "size": 4},
        hovertemplate=f"{words} at %{{x:.3f}} s<extra></extra>",
        row=row,
        col=1,
    )


def _add_lanes(figure: go.Figure, neighbours: Sequence[Row], row: int, colours: Palette) -> None:
    names = [f"{wording.count(n['prefilled_tokens'])} tok" for n in neighbours]
    bars: dict[str, list[tuple[float, float, int]]] = {}
    for lane, neighbour in enumerate(neighbours):
        for phase in phases(neighbour, neighbour["offset_s"]):
            bars.setdefault(phase.name, []).append((phase.start_s, phase.duration_s, lane))
    for name, pieces in bars.items():
        figure.add_bar(
            x=[duration for _, duration, _ in pieces],
            base=[start for start, _, _ in pieces],
            y=[lane for _, _, lane in pieces],
            orientation="h",
            marker={"color": getattr(colours, name), "line": {"width": 0}},
            opacity=0.95 if name == "prefill" else 0.35,
            width=0.68,
            customdata=[
                (neighbours[lane]["request_id"], neighbours[lane]["tenant"] or "no tenant")
                for _, _, lane in pieces
            ],
            hovertemplate=f"{name} %{{x:.3f}} s<br>%{{customdata[0]}}<br>%{{customdata[1]}}"
            "<extra></extra>",
            row=row,
            col=1,
        )
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=names,
        tickfont={"size": 10},
        range=[len(names) - 0.4, -0.6],
        row=row,
        col=1,
    )


def _mark_first_token(figure: go.Figure, ttft_s: float, colours: Palette) -> None:
    figure.add_vline(x=ttft_s, line={"color": colours.text, "width": 1.2, "dash": "dot"})
    figure.add_annotation(
        x=ttft_s,
        y=1,
        xref="x",
        yref="paper",
        text=f"TTFT {wording.seconds(ttft_s)}",
        showarrow=False,
        xanchor="left" if ttft_s < 1e-9 else "center",
        yanchor="bottom",
        yshift=2,
        font={"size": 12, "color": colours.text},
        bgcolor=colours.card,
    )


def _finish(
    figure: go.Figure, end_s: float, num_rows: int, total_px: int, colours: Palette
) -> None:
    figure.update_layout(
        height=total_px,
        margin={"l": 8, "r": 12, "t": 34, "b": 40},
        barmode="overlay",
        showlegend=False,
        hovermode="closest",
        dragmode="zoom",
        font=font(colours),
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"bgcolor": colours.card, "font": {"color": colours.text}},
    )
    for title in figure.layout.annotations:
        title.update(x=0, xanchor="left", font={"size": 12, "color": colours.muted}, yshift=2)
    figure.update_xaxes(
        range=[-0.01 * end_s, end_s * 1.02],
        gridcolor=colours.line,
        zeroline=False,
        ticksuffix=" s",
        nticks=8,
    )
    figure.update_yaxes(gridcolor=colours.line, zeroline=False, fixedrange=True, automargin=True)
    figure.update_xaxes(title={"text": "since arrival", "font": {"size": 12}}, row=num_rows, col=1)
