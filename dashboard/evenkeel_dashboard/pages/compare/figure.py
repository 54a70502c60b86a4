"""Draws the compare page's chart: the cumulative latency distribution of two cohorts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evenkeel_dashboard.draw import formats, svg_chart
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.svg_chart import Chart
from evenkeel_dashboard.pages.compare.model import curve, quantile

_LEAST_S = 1e-6
_HEIGHT = 250


def distributions(sides: Sequence[tuple[str, Sequence[float]]], colours: Palette) -> Chart:
    """Return a chart with one curve per side on a logarithmic axis; values must be sorted."""
    left, right = _reach([ordered for _, ordered in sides]) or (-3.0, 1.0)
    steps = (1, 3) if right - left < 4 else (1,)
    ticks = [math.log10(step * 10.0**decade) for decade in range(-6, 4) for step in steps]
    chart = Chart(
        left=left,
        right=right,
        x_ticks=[(tick, formats.seconds(10**tick)) for tick in ticks if left <= tick <= right],
        x_is="duration",
        unit="%",
        top=101.0,
        height=_HEIGHT,
    )
    styles = ((colours.categories[0], ""), (colours.categories[1], "7 4"))
    for (name, ordered), (colour, dash) in zip(sides, styles, strict=True):
        values, parts = curve([max(v, _LEAST_S) for v in ordered])
        points = [(math.log10(v), part * 100) for v, part in zip(values, parts, strict=True)]
        chart.series += svg_chart.line(name, colour, points, 2.4, dash)
    return chart


def _reach(samples: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """Return start and end of the axis as powers of ten; a few outliers are cut off."""
    found = [ordered for ordered in samples if ordered]
    if not found:
        return None
    low = min(quantile(ordered, 0.005) or 0.0 for ordered in found)
    high = max(ordered[-1] for ordered in found)
    return math.log10(max(low, _LEAST_S) * 0.8), math.log10(max(high, _LEAST_S) * 1.1)
