"""The charts of one request: phases, bursts, gaps and neighbours over one time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard import wording
from dashboard.appearance import Palette
from dashboard.request_model import Phase, Token, phases, thinned
from dashboard.svg_chart import Chart, Series, bars, round_ticks

Row = Mapping[str, Any]
Part = tuple[float, float]

_PHASE_PX = 24
_TOKENS_PX = 96
_LANE_PX = 17
_STEM_PX = 1.6
_NUM_TICKS, _NUM_COUNTS = 8, 4


@dataclass(frozen=True, slots=True)
class Timeline:
    """One of the charts that stand below each other, and what it is of."""

    name: str
    title: str
    chart: Chart


def timelines(
    row: Row,
    series: Sequence[Token],
    neighbours: Sequence[Row],
    colours: Palette,
    part: Part | None = None,
) -> list[Timeline]:
    """Return the waterfall of a request, its token timeline and its neighbours' lanes.

    `part` is the stretch to show, in seconds since arrival; None shows all of the request.
    """
    found, emitted = phases(row), thinned(_within(series, part))
    drawn = [Timeline("phases", "phases", _waterfall(found, colours))]
    if series:
        sizes = [(t.time_s, float(t.num_tokens)) for t in emitted]
        chart = _stems("tokens", {"at once": (colours.decode, sizes)})
        most = max((t.num_tokens for t in emitted), default=1)
        chart.y_ticks = [(n, f"{n}") for n in range(0, most + 1, -(-most // _NUM_COUNTS))]
        drawn.append(Timeline("tokens", "tokens an emission", chart))
        gaps = [(t.is_stall, (t.time_s, t.gap_s * 1e3)) for t in emitted if t.gap_s is not None]
        usual = [point for is_stall, point in gaps if not is_stall]
        stalls = [point for is_stall, point in gaps if is_stall]
        chart = _stems("ms", {"gap": (colours.muted, usual), "stall": (colours.error, stalls)})
        drawn.append(Timeline("gaps", "gap before each emission", chart))
    if neighbours:
        title = "others in flight: those in prefill meanwhile first, by tokens to prefill"
        drawn.append(Timeline("lanes", title, _lanes(neighbours, colours)))
    end_s = row["e2e_s"] or (series[-1].time_s if series else 1.0)
    _share_axis([each.chart for each in drawn], part or (-0.01 * end_s, 1.02 * end_s))
    if row["ttft_s"] is not None:
        # It is named once, above the first.
        for i, each in enumerate(drawn):
            name = "" if i else f"TTFT {wording.seconds(row['ttft_s'])}"
            _mark_first_token(each.chart, row["ttft_s"], name, colours)
    return drawn


def _within(series: Sequence[Token], part: Part | None) -> list[Token]:
    return [t for t in series if part is None or part[0] <= t.time_s <= part[1]]


def _waterfall(found: Sequence[Phase], colours: Palette) -> Chart:
    chart = _empty(len(found), _PHASE_PX)
    for number, phase in enumerate(found):
        words = f"{phase.name} {wording.seconds(phase.duration_s)}"
        lane = _lane(phase, len(found) - 1 - number, words, colours)
        chart.series.append(lane)
    names = [f"{phase.name} {wording.seconds(phase.duration_s)}" for phase in found]
    chart.y_ticks = list(enumerate(reversed(names)))
    chart.has_key = True
    return chart


def _lanes(neighbours: Sequence[Row], colours: Palette) -> Chart:
    chart = _empty(len(neighbours), _LANE_PX)
    last = len(neighbours) - 1
    for number, neighbour in enumerate(neighbours):
        for phase in phases(neighbour, neighbour["offset_s"]):
            whose = f"{neighbour['request_id']}, {neighbour['tenant'] or 'no tenant'}"
            words = f"{phase.name} {wording.seconds(phase.duration_s)}: {whose}"
            opacity = 0.95 if phase.name == "prefill" else 0.35
            chart.series.append(_lane(phase, last - number, words, colours, opacity))
    names = [f"{wording.count(n['prefilled_tokens'])} tok" for n in neighbours]
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


def _lane(phase: Phase, place: int, words: str, colours: Palette, opacity: float = 1.0) -> Series:
    path = f"M{phase.start_s:.6g} {place}H{phase.end_s:.6g}"
    colour = getattr(colours, phase.name)
    return Series(phase.name, colour, path, "lane", 0.7, title=words, opacity=opacity)


def _stems(unit: str, kinds: Mapping[str, tuple[str, list[tuple[float, float]]]]) -> Chart:
    """Return a thin bar a point; of each kind its colour and its points."""
    tops = [y for _, points in kinds.values() for _, y in points]
    chart = Chart(0.0, 1.0, [], unit=unit, top=1.1 * max(tops, default=0.0), height=_TOKENS_PX)
    for name, (colour, points) in kinds.items():
        if points:
            stretches = [(x, 0.0, y) for x, y in points]
            chart.series.append(bars(name, colour, stretches, _STEM_PX, "stem"))
    return chart


def _share_axis(charts: Sequence[Chart], part: Part) -> None:
    """Give charts one time axis in seconds since arrival, its words under the last of them."""
    for chart in charts:
        chart.x_is, chart.left, chart.right = "since", *part
    words_ch = max(chart.label_ch() for chart in charts)
    for chart in charts:
        chart.least_ch = words_ch
    charts[-1].x_ticks = round_ticks(*part, "s", _NUM_TICKS)


def _mark_first_token(chart: Chart, ttft_s: float, name: str, colours: Palette) -> None:
    path = f"M{ttft_s:.6g} {chart.bottom:.5g}V{chart.top:.5g}"
    chart.series.append(Series(name, colours.text, path, "mark", 1.2, "1 4"))
