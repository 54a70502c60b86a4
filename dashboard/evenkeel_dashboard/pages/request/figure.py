"""The charts of one request: phases, tokens, gaps and neighbours over one time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.svg_chart import Chart, Series, round_ticks
from evenkeel_dashboard.pages.request.model import RequestPhase, phases
from evenkeel_dashboard.pages.request.token_figure import gap_chart, token_chart
from evenkeel_dashboard.pages.request.token_model import (
    CacheUse,
    Emission,
    in_words,
    summary,
    thinned,
)

Row = Mapping[str, Any]
Part = tuple[float, float]

_PHASE_PX = 24
_LANE_PX = 17
_NUM_TICKS = 8


@dataclass(frozen=True, slots=True)
class Timeline:
    """One of the stacked charts.

    Attributes:
        name: Identifies the chart on the page.
        title: Shown above the chart.
        alt: Description for screen readers.
        chart: The chart itself.
    """

    name: str
    title: str
    alt: str
    chart: Chart


def timelines(
    row: Row,
    series: Sequence[Emission],
    caches: Sequence[CacheUse],
    neighbours: Sequence[Row],
    colours: Palette,
    part: Part | None = None,
) -> list[Timeline]:
    """Return the waterfall of a request, its token timeline and its neighbours' lanes.

    `part` is the period to show, in seconds since arrival; None shows the whole request.
    """
    found = phases(row)
    end_s = row["e2e_s"] or (series[-1].time_s if series else 1.0)
    shown_s = part or (-0.01 * end_s, 1.02 * end_s)
    lasts_s = shown_s[1] - shown_s[0]
    drawn = []
    if found:
        words = ", ".join(f"{phase.name} {formats.seconds(phase.duration_s)}" for phase in found)
        alt = f"Waterfall of the request: {words}"
        drawn.append(Timeline("phases", "phases", alt, _waterfall(found, colours)))
    if series or caches:
        emitted = thinned(_within(series, part))
        said = [summary(row, series), *(use.words for use in caches)]
        chart = token_chart(emitted, series, caches, lasts_s, colours)
        alt = in_words(row, series, caches)
        drawn.append(Timeline("tokens", f"tokens: {'; '.join(said)}", alt, chart))
        if series:
            title = "pause before each chunk"
            drawn.append(Timeline("gaps", title, title, gap_chart(emitted, lasts_s, colours)))
    if neighbours:
        title = "concurrent requests, largest prompt first"
        drawn.append(Timeline("lanes", title, title, _lanes(neighbours, colours)))
    if drawn:
        _share_axis([each.chart for each in drawn], shown_s)
    if row["ttft_s"] is not None:
        for each in drawn:
            # Named only if there is a legend.
            name = f"TTFT {formats.seconds(row['ttft_s'])}" if each.chart.has_key else ""
            _mark_first_token(each.chart, row["ttft_s"], name, colours)
    return drawn


def _within(series: Sequence[Emission], part: Part | None) -> list[Emission]:
    return [t for t in series if part is None or part[0] <= t.time_s <= part[1]]


def _waterfall(found: Sequence[RequestPhase], colours: Palette) -> Chart:
    chart = _empty(len(found), _PHASE_PX)
    for number, phase in enumerate(found):
        words = f"{phase.name} {formats.seconds(phase.duration_s)}"
        lane = _lane(phase, len(found) - 1 - number, words, colours)
        chart.series.append(lane)
    names = [f"{phase.name} {formats.seconds(phase.duration_s)}" for phase in found]
    chart.y_ticks = list(enumerate(reversed(names)))
    chart.has_key = True
    return chart


def _lanes(neighbours: Sequence[Row], colours: Palette) -> Chart:
    chart = _empty(len(neighbours), _LANE_PX)
    last = len(neighbours) - 1
    for number, neighbour in enumerate(neighbours):
        for phase in phases(neighbour, neighbour["offset_s"]):
            whose = f"{neighbour['request_id']}, {neighbour['tenant'] or 'no tenant'}"
            words = f"{phase.name} {formats.seconds(phase.duration_s)}: {whose}"
            opacity = 0.95 if phase.name == "prefill" else 0.35
            chart.series.append(_lane(phase, last - number, words, colours, opacity))
    names = [f"{formats.count(n['prefilled_tokens'])} tok" for n in neighbours]
    chart.y_ticks = list(enumerate(reversed(names)))
    return chart


def _empty(num_lanes: int, lane_px: int) -> Chart:
    return Chart(
        0.0,
        1.0,
        [],
        bottom=-0.5,
        top=num_lanes - 0.5,
        height=lane_px * num_lanes,
        has_key=False,
        has_lines=False,
    )


def _lane(
    phase: RequestPhase, place: int, words: str, colours: Palette, opacity: float = 1.0
) -> Series:
    path = f"M{phase.start_s:.6g} {place}H{phase.end_s:.6g}"
    colour = getattr(colours, phase.name)
    return Series(phase.name, colour, path, "lane", 0.7, title=words, opacity=opacity)


def _share_axis(charts: Sequence[Chart], part: Part) -> None:
    """Return the charts on one time axis in seconds since arrival, labelled under the last one."""
    for chart in charts:
        chart.x_is, chart.left, chart.right = "since", *part
    words_ch = max(chart.label_ch() for chart in charts)
    for chart in charts:
        chart.least_ch = words_ch
    charts[-1].x_ticks = round_ticks(*part, "s", _NUM_TICKS)


def _mark_first_token(chart: Chart, ttft_s: float, name: str, colours: Palette) -> None:
    path = f"M{ttft_s:.6g} {chart.bottom:.5g}V{chart.top:.5g}"
    chart.series.append(Series(name, colours.text, path, "mark", 1.2, "1 4"))
