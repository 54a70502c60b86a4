"""Draws the alert timeline, one bar per firing."""

from __future__ import annotations

from collections.abc import Sequence

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.charts import time_chart
from evenkeel_dashboard.draw.svg_chart import Chart, Series
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.pages.alerts.model import Bar

_ROW = 34
_STEP_S = 60


def timeline_chart(bars: Sequence[Bar], window: Window, colours: Palette) -> Chart:
    """Return the timeline, one row per alert: thin is pending, thick firing, pale silenced."""
    chart = time_chart(window, _STEP_S, window.from_ms)
    names = sorted({bar.name for bar in bars}, reverse=True)
    styles = {"pending": (colours.warning, 0.28), "firing": (colours.bad, 0.62)}
    for bar in bars:
        begin, end = ((ms - chart.begin_ms) / chart.step_ms for ms in (bar.from_ms, bar.to_ms))
        colour, width = styles[bar.state]
        silenced = ", silenced" if bar.is_silenced else ""
        lasted = formats.seconds((bar.to_ms - bar.from_ms) / 1000)
        chart.series.append(
            Series(
                name=f"{bar.state}{silenced}",
                colour=colour,
                path=f"M{begin:.5g} {names.index(bar.name)}H{end:.5g}",
                kind="lane",
                width=width,
                title=f"{bar.name}: {bar.state} for {lasted}{silenced}",
                opacity=0.45 if bar.is_silenced else 1.0,
            )
        )
    chart.y_ticks = list(enumerate(names))
    chart.bottom, chart.top = -0.5, len(names) - 0.5
    chart.height = _ROW * max(1, len(names))
    chart.has_key = True
    return chart
