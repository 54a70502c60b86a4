"""The chart of one session: the critical path, and below it turns, tools and agents."""

from __future__ import annotations

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.svg_chart import Chart, Series, round_ticks
from evenkeel_dashboard.pages.sessions.ledger_bar import TOOLS, cause_words, colour_of_cause
from evenkeel_dashboard.pages.sessions.timeline import Mark, SessionTimeline, lanes
from evenkeel_dashboard.sessions.ledger import TOOL_PREFIX
from evenkeel_dashboard.sessions.work import WorkKind

_LANE_PX = 24
_NUM_TICKS = 8
_BESIDE = 0.3
_KINDS = {kind.value for kind in WorkKind}
_KIND_WORDS = {WorkKind.REQUEST: "turn", WorkKind.TOOL: "tool", WorkKind.AGENT: "agent"}


def timeline_chart(found: SessionTimeline, shown_s: tuple[float, float], colours: Palette) -> Chart:
    """Return the chart of a period of a session, in seconds since it began."""
    rows = lanes(found, shown_s)
    last = len(rows) - 1
    chart = Chart(
        *shown_s,
        round_ticks(*shown_s, "s", _NUM_TICKS),
        bottom=-0.5,
        top=len(rows) - 0.5,
        height=_LANE_PX * len(rows),
        has_key=True,
        has_lines=False,
        x_is="since",
        least_ch=13,
    )
    for number, lane in enumerate(rows):
        for mark in lane.marks:
            chart.series.append(_bar(mark, last - number, colours))
    chart.y_ticks = [(last - number, lane.name) for number, lane in enumerate(rows)]
    return chart


def _bar(mark: Mark, place: int, colours: Palette) -> Series:
    path = f"M{mark.start_s:.6g} {place}H{mark.end_s:.6g}"
    if mark.cause in _KINDS:
        colour, name = colour_of_kind(WorkKind(mark.cause), colours), ""
    else:
        cause = TOOLS if mark.cause.startswith(TOOL_PREFIX) else mark.cause
        colour, name = colour_of_cause(cause, colours), cause_words(cause)
    opacity = 1.0 if mark.is_critical else _BESIDE
    return Series(name, colour, path, "lane", 0.7, title=mark_words(mark), opacity=opacity)


def colour_of_kind(kind: WorkKind, colours: Palette) -> str:
    """Return the colour of a kind of step."""
    return {
        WorkKind.REQUEST: colours.decode,
        WorkKind.TOOL: colours.shed,
        WorkKind.AGENT: colours.muted,
    }[kind]


def mark_words(mark: Mark) -> str:
    """Return what a bar stands for, for its tooltip."""
    length = formats.seconds(mark.end_s - mark.start_s)
    if mark.cause not in _KINDS:
        named = f": {mark.name}" if mark.name and not mark.cause.startswith(TOOL_PREFIX) else ""
        times = f", {mark.num_steps:,} times" if mark.num_steps > 1 else ""
        return f"{cause_words(mark.cause)}{named}, {length}{times}"
    kind = _KIND_WORDS[WorkKind(mark.cause)]
    if mark.num_steps > 1:
        return f"{mark.num_steps:,} {kind}s within {length}"
    return f"{kind} {mark.name}, {length}{', failed' if mark.is_failed else ''}"
