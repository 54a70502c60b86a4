"""Charts one request's tokens: emissions, drafts, stalls and caches on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.svg_chart import Chart, Point, Series, bars
from evenkeel_dashboard.pages.request.token_model import CacheUse, Emission, can_stall, knows_drafts

_TOKENS_PX, _GAPS_PX = 104, 64
_LANE_PX, _LANES_GAP_PX = 17, 6
_LEAST_STEM_PX, _MOST_STEM_PX = 1.6, 7.0
_PLOT_PX = 900
_COUNT_PX = 20


def token_chart(
    shown: Sequence[Emission],
    series: Sequence[Emission],
    caches: Sequence[CacheUse],
    lasts_s: float,
    colours: Palette,
) -> Chart:
    """Return a chart of the shown emissions: tokens upwards by origin, rejected drafts downwards.

    Lanes above them show what each cache provided, and the stalls of the whole series, which also
    shade the plot. `lasts_s` is the time span of the axis.
    """
    knows = knows_drafts(series)
    most = max((token.num_tokens for token in shown), default=1) or 1
    rejected = max((token.rejected for token in shown if knows), default=0)
    unit = (most + rejected) / _TOKENS_PX
    lanes = [use.name for use in caches] + (["stalls"] if can_stall(len(series)) else [])
    top = most + unit * (_LANES_GAP_PX + _LANE_PX * len(lanes))
    places = [top - unit * _LANE_PX * (number + 0.5) for number in range(len(lanes))]
    chart = Chart(0.0, 1.0, [], unit="tokens", bottom=0.0 - rejected, top=top, has_lines=False)
    chart.height = round((top + rejected) / unit)
    num_counts = max(1, int(most / unit / _COUNT_PX))
    chart.y_ticks = [
        *((n, f"{n}") for n in range(0, most + 1, -(-most // num_counts))),
        *([(-rejected, f"{rejected} rejected")] if rejected else []),
        *zip(places, lanes, strict=True),
    ]
    width = 0.62 * unit * _LANE_PX
    for use, place in zip(caches, places, strict=False):
        chart.series += _cache_lane(use, place, width, colours)
    stalls = [token for token in series if token.is_stall]
    for token in stalls:
        gap_s = token.gap_s or 0.0
        path = f"M{token.time_s - gap_s:.6g} {places[-1]:.5g}H{token.time_s:.6g}"
        words = f"stall of {formats.seconds(gap_s)}"
        chart.series.append(Series("stall", colours.error, path, "lane", width, title=words))
        chart.periods.append((token.time_s - gap_s, token.time_s, colours.error))
    chart.series += _emissions(shown, knows, stem_px(shown, lasts_s), colours)
    chart.has_key = True
    return chart


def gap_chart(shown: Sequence[Emission], lasts_s: float, colours: Palette) -> Chart:
    """Return a chart of the pause before each chunk, with stalls in their own colour."""
    gaps = [(t.is_stall, (t.time_s, t.gap_s * 1e3)) for t in shown if t.gap_s is not None]
    width = stem_px(shown, lasts_s)
    chart = Chart(0.0, 1.0, [], unit="ms", top=1.1 * max((y for _, (_, y) in gaps), default=0.0))
    chart.height = _GAPS_PX
    for name, colour, wanted in (("gap", colours.muted, False), ("stall", colours.error, True)):
        points = [point for is_stall, point in gaps if is_stall is wanted]
        if points:
            chart.series.append(_stems(name, colour, [(x, 0.0, y) for x, y in points], width))
    return chart


def stem_px(shown: Sequence[Emission], lasts_s: float) -> float:
    """Return the width of an emission in pixels, from the usual distance to its neighbours."""
    steps_s = [later.time_s - earlier.time_s for earlier, later in pairwise(shown)]
    if not steps_s or lasts_s <= 0:
        return _MOST_STEM_PX
    free_px = 0.6 * median(steps_s) / lasts_s * _PLOT_PX
    return min(_MOST_STEM_PX, max(_LEAST_STEM_PX, free_px))


def _emissions(
    shown: Sequence[Emission], knows: bool, width: float, colours: Palette
) -> list[Series]:
    """Return the stems of the emissions; if drafts are known, 0 for emissions without one."""
    if not knows:
        stems = [(t.time_s, 0.0, float(t.num_tokens)) for t in shown]
        return [_stems("tokens", colours.decode, stems, width)] if stems else []
    own = [(t.time_s, 0.0, float(t.num_tokens - t.from_drafts)) for t in shown]
    kept = [(t.time_s, float(t.num_tokens - t.from_drafts), float(t.num_tokens)) for t in shown]
    lost = [(t.time_s, 0.0 - t.rejected, 0.0) for t in shown]
    return [
        _stems("the model's own", colours.decode, own, width),
        _stems("accepted drafts", colours.shed, kept, width),
        _stems("rejected drafts", colours.ok, lost, width),
    ]


def _stems(
    name: str, colour: str, stems: Sequence[tuple[float, float, float]], width: float
) -> Series:
    return bars(name, colour, stems, width, "stem")


def _cache_lane(use: CacheUse, place: float, width: float, colours: Palette) -> list[Series]:
    """Return a lane that spans the cache's part in the request, filled to the share it provided."""

    def part(begin: Point, end: Point, opacity: float, name: str) -> Series:
        path = f"M{begin[0]:.6g} {begin[1]:.5g}H{end[0]:.6g}"
        kind = "lane" if end[0] > begin[0] else "mark"
        return Series(name, colours.prefill, path, kind, width, title=use.words, opacity=opacity)

    found_s = use.start_s + use.share * (use.end_s - use.start_s)
    lanes = [part((use.start_s, place), (use.end_s, place), 0.3, "")]
    if use.share > 0:
        lanes.append(part((use.start_s, place), (found_s, place), 1.0, "from a cache"))
    return lanes
