"""Renders charts as SVG on the server, so the browser loads and computes little.

The plot is drawn in the units of its data, y upwards, and stretched to fit. `assets/chart.js`
reads the numbers back from the SVG paths for the tooltip and the arrow keys. A missing value is a
gap in a line, or no bar; zero is a point on the axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.zones import in_zone, zone_key, zone_name

HEIGHT = 176
_NUM_Y, _NUM_X = 4, 6
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIME_STEPS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 14_400, 21_600,
    43_200, 86_400, 172_800, 432_000, 604_800,
)  # fmt: skip
_YEAR_S = 366 * 86_400
_BAR = 0.92
# Height of a strip, as a part of the plot's.
_STRIP = 0.03
# As near to the corner as this part of the width, a label would cover the zone's name.
_CORNER = 0.03

Point = tuple[float, float]
Tick = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Series:
    """One mark of a chart: everything drawn in one colour.

    Attributes:
        name: Shown in the legend and the tooltip.
        colour: CSS colour.
        path: SVG path data in the chart's units.
        kind: "line", "bar" (upright, from base to top), "stem" (a thin bar), "cell" (as bars, with
            counts), "lane" (horizontal; its tooltip is `title`), "mark" (no tooltip), or "shade"
            and "strip", of which only the legend is drawn.
        width: Stroke width: pixels for lines, stems and marks, axis units for the others.
        dash: SVG dash array; "" is a solid line.
        counts: Count of each cell, in the order of the path.
        title: Tooltip of a lane.
        opacity: 0-1.
    """

    name: str
    colour: str
    path: str
    kind: str = "line"
    width: float = 2.0
    dash: str = ""
    counts: tuple[float, ...] = ()
    title: str = ""
    opacity: float = 1.0


@dataclass(slots=True)
class Chart:
    """One chart, in the units of its axes.

    Attributes:
        left: Start of the x axis; `right` is its end.
        x_ticks: Labels of the x axis; `y_ticks` likewise, None for round numbers.
        unit: Unit of the values; "" for none.
        top: Top of the y axis; `bottom` is the other end.
        begin_ms: Unix milliseconds at x = 0; `step_ms` is the length of one unit.
        x_is: Meaning of x: "time" in steps from `begin_ms`, seconds "since" a request's arrival,
            or the decimal logarithm of a "duration" in seconds.
        series: Marks to draw, the first at the bottom.
        periods: Parts of the x axis to shade, and their colour.
        strips: Parts of the x axis to mark by a strip along the top, and their colour.
        height: Height of the plot, pixels.
        has_key: Whether to draw a legend above the plot; None draws it for several series.
        has_lines: Whether each label of the y axis has a grid line.
        least_ch: Minimum width of the y labels, in digits, so that the charts of a page align.
    """

    left: float
    right: float
    x_ticks: Sequence[Tick]
    unit: str = ""
    top: float = 0.0
    bottom: float = 0.0
    begin_ms: int = 0
    step_ms: int = 1000
    x_is: str = "time"
    y_ticks: Sequence[Tick] | None = None
    series: list[Series] = field(default_factory=list)
    periods: list[tuple[float, float, str]] = field(default_factory=list)
    strips: list[tuple[float, float, str]] = field(default_factory=list)
    height: int = HEIGHT
    has_key: bool | None = None
    has_lines: bool = True
    least_ch: int = 7

    def markup(self, alt: str) -> str:
        """Return the chart as HTML; `chart.js` makes it interactive and `alt` describes it."""
        top = self._end()
        ticks, label_ch = self._y_ticks(), max(self.label_ch(), self.least_ch)
        width, height = self.right - self.left, top - self.bottom
        lines = ticks if self.has_lines else []
        grid = "".join(f"M{_n(self.left)} {_n(y)}H{_n(self.right)}" for y, _ in lines)
        if self.bottom < 0 < top and self.unit:
            grid += f"M{_n(self.left)} 0H{_n(self.right)}"
        shades = "".join(
            f'<rect x="{_n(start)}" y="{_n(self.bottom)}" width="{_n(end - start)}" '
            f'height="{_n(height)}" fill="{colour}" opacity=".1"/>'
            for start, end, colour in self.periods
        ) + "".join(
            f'<rect x="{_n(start)}" y="{_n(top - _STRIP * height)}" width="{_n(end - start)}" '
            f'height="{_n(_STRIP * height)}" fill="{colour}" opacity=".8"/>'
            for start, end, colour in self.strips
        )
        drawn = "".join(_path(series) for series in self.series)
        y_words = _words("y", [((y - self.bottom) / height, words) for y, words in ticks])
        places = [((x - self.left) / width, words) for x, words in self.x_ticks]
        # In the corner is the zone's name.
        least = _CORNER if self.x_is == "time" else -math.inf
        x_words = _words("x", [each for each in places if each[0] >= least])
        return (
            f'<div class="ek-chart" tabindex="0" role="group" aria-label="{escape(alt)}" '
            f'data-unit="{escape(self.unit)}" data-begin="{self.begin_ms}" '
            f'data-step="{self.step_ms}" data-x="{self.x_is}" data-zone="{zone_key()}" '
            f'data-zone-name="{escape(self._zone_name())}" '
            f'data-left="{_n(self.left)}" data-right="{_n(self.right)}" '
            f'data-bottom="{_n(self.bottom)}" data-top="{_n(top)}" '
            f'style="--ek-h:{self.height}px;--ek-w:{label_ch}ch">{self._key()}'
            f'<div class="ek-plot"><svg role="img" aria-label="{escape(alt)}" '
            f'viewBox="{_n(self.left)} {_n(-top)} {_n(width)} {_n(height)}" '
            'preserveAspectRatio="none"><g transform="scale(1 -1)">'
            f'{shades}<path class="ek-lines" d="{grid}"/>{drawn}</g></svg>'
            f"{y_words}{x_words}{self._zone()}</div></div>"
        )

    def label_ch(self) -> int:
        """Return the width of the y labels, in digits."""
        return max((len(words) for _, words in self._y_ticks()), default=0)

    def _zone_name(self) -> str:
        if self.x_is != "time":
            return ""
        return zone_name(in_zone(round(self.begin_ms + self.right * self.step_ms)))

    def _zone(self) -> str:
        """Return the zone of the x labels, in the corner below the y labels."""
        if self.x_is != "time" or not self.x_ticks:
            return ""
        return f'<span class="ek-zone" aria-hidden="true">{escape(self._zone_name())}</span>'

    def _end(self) -> float:
        return self.top if self.top > self.bottom else self.bottom + 1.0

    def _y_ticks(self) -> Sequence[Tick]:
        if self.y_ticks is not None:
            return self.y_ticks
        return round_ticks(self.bottom, self._end(), self.unit, _NUM_Y)

    def _key(self) -> str:
        named = {s.name: s for s in self.series if s.name}
        if not (len(named) > 1 if self.has_key is None else self.has_key):
            return ""
        items = "".join(
            f'<span><i style="{_swatch(series)}"></i>{escape(name)}</span>'
            for name, series in named.items()
        )
        return f'<div class="ek-key" aria-hidden="true">{items}</div>'


def line(
    name: str, colour: str, points: Iterable[Point], width: float = 2.0, dash: str = ""
) -> list[Series]:
    """Return a line through points in order; an isolated point becomes a dot.

    A point whose y is NaN leaves a gap.
    """
    runs: list[list[Point]] = [[]]
    for x, y in points:
        if math.isnan(y):
            runs.append([])
        else:
            runs[-1].append((x, y))
    joined = "".join(_polyline(run) for run in runs)
    dots = "".join(f"M{_n(run[0][0])} {_n(run[0][1])}h0" for run in runs if len(run) == 1)
    drawn = [Series(name, colour, joined, "line", width, dash)]
    return drawn + ([Series("", colour, dots, "mark", 5.0)] if dots else [])


def bars(
    name: str,
    colour: str,
    stretches: Iterable[tuple[float, float, float]],
    width: float = _BAR,
    kind: str = "bar",
) -> Series:
    """Return vertical bars one unit wide, each given as (middle, base, top)."""
    path = "".join(f"M{_n(x)} {_n(base)}V{_n(top)}" for x, base, top in stretches)
    return Series(name, colour, path, kind, width)


def time_ticks(from_ms: int, to_ms: int, begin_ms: int, step_ms: int) -> list[Tick]:
    """Return labels at round times of the shown zone, on an axis whose 0 is `begin_ms`."""
    lasts_s = (to_ms - from_ms) / 1000
    months = 2_592_000 * math.ceil(lasts_s / 2_592_000 / _NUM_X)
    step_s = next((s for s in _TIME_STEPS_S if lasts_s / s <= _NUM_X), months)
    day = "%b %Y" if lasts_s > _YEAR_S else "%d %b"
    ticks = []
    offset_ms = _offset_ms(from_ms)
    first_ms = -(-(from_ms + offset_ms) // (step_s * 1000)) * step_s * 1000 - offset_ms
    # An hour more, for the tick that a change of clocks moves back into the range.
    for even_ms in range(first_ms, to_ms + 3_600_000, step_s * 1000):
        # Beyond a change of clocks, midnight is at another hour of UTC.
        at_ms = even_ms + (offset_ms - _offset_ms(even_ms) if step_s >= 86_400 else 0)
        if at_ms >= to_ms:
            break
        time = in_zone(at_ms)
        is_day = time.hour == time.minute == time.second == 0
        form = day if is_day else "%H:%M" if step_s >= 60 else "%H:%M:%S"
        ticks.append(((at_ms - begin_ms) / step_ms, f"{time:{form}}"))
    return ticks


def _offset_ms(at_ms: int) -> int:
    offset = in_zone(at_ms).utcoffset()
    return 0 if offset is None else round(offset.total_seconds() * 1000)


def round_ticks(low: float, high: float, unit: str, most: int) -> list[Tick]:
    """Return labels at round numbers of an axis, with the unit; at most `most` steps."""
    step = _round_step(high - low, most)
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    gap = "" if unit.startswith(("/", "%")) else " "
    suffix = f"{gap}{unit}" if unit else ""
    return [(n * step, f"{_tick(n * step)}{suffix}") for n in numbers]


def _round_step(span: float, most: int) -> float:
    size = 10.0 ** math.floor(math.log10(span / most))
    return next(size * step for step in _ROUND if size * step * most >= span * 0.999)


def _tick(value: float) -> str:
    text = formats.count(value) if abs(value) >= 99_999.5 else f"{value:,.6g}"
    return text.replace("-", "−")


def _polyline(run: Sequence[Point]) -> str:
    return "".join(f"{'L' if i else 'M'}{_n(x)} {_n(y)}" for i, (x, y) in enumerate(run))


def _path(series: Series) -> str:
    is_scaled = series.kind in ("bar", "cell", "lane")
    shape = "stroke ek-stem" if series.kind == "stem" else "stroke"
    said = {"line": "line", "bar": "bar", "stem": "bar", "cell": "cell"}.get(series.kind)
    attributes = f' data-kind="{said}" data-name="{escape(series.name)}"' if said else ""
    if series.counts:
        attributes += f' data-counts="{" ".join(_n(n) for n in series.counts)}"'
    if series.dash:
        attributes += f' stroke-dasharray="{series.dash}"'
    if series.opacity < 1:
        attributes += f' opacity="{series.opacity:g}"'
    title = f"<title>{escape(series.title)}</title>" if series.title else ""
    return (
        f'<path class="ek-{"scaled" if is_scaled else shape}"{attributes} '
        f'stroke="{series.colour}" stroke-width="{series.width:g}" d="{series.path}">{title}</path>'
    )


def _swatch(series: Series) -> str:
    if series.dash:
        return f"border-top:2px dashed {series.colour};height:0;border-radius:0"
    if series.kind == "line":
        return f"background:{series.colour};height:3px"
    if series.kind == "strip":
        return f"border:1px solid {series.colour};border-top-width:4px;box-sizing:border-box"
    return f"background:{series.colour};opacity:{series.opacity:g}"


def _words(axis: str, ticks: Iterable[Tick]) -> str:
    edge = "left" if axis == "x" else "bottom"
    spans = "".join(
        f'<span style="{edge}:{place:.2%}">{escape(words)}</span>' for place, words in ticks
    )
    return f'<div class="ek-{axis}s" aria-hidden="true">{spans}</div>'


def _n(value: float) -> str:
    """Return a number for a path, with enough digits for a pixel and for the tooltip."""
    return f"{value:.5g}"
