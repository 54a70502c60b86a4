"""Draws how an SLO's error budget was spent over the period, and on which days."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from evenkeel.slo.model import Slo
from evenkeel.times import MINUTE_NS
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.charts import Line, Scale, lines
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.svg_chart import round_ticks
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.draw.zones import current_zone_name
from evenkeel_dashboard.frame.page import colours
from evenkeel_dashboard.frame.selection import step_s
from evenkeel_dashboard.frame.series import naive_utc
from evenkeel_dashboard.frame.zoom import zoomable
from evenkeel_dashboard.pages.slo.data import read_buckets
from evenkeel_dashboard.pages.slo.model import (
    DAY_MS,
    Bucket,
    Day,
    budget_line,
    burn_down,
    calendar,
    calendar_step_s,
    outside,
    partly_in,
    period_start_ms,
    whole_minutes,
    without,
)

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# A day above its even share is worth a look; a quarter of the budget in one day, a discussion.
_MUCH_RATIO = 0.25
_LOWEST = -100.0


def show_budget(
    slo: Slo, window: Window, spans_ms: Sequence[tuple[int, int]], *, is_past: bool
) -> None:
    """Draw the burn-down and the calendar of the period that ends with the window.

    Args:
        slo: The SLO.
        window: The page's range.
        spans_ms: The times that corrections leave out.
        is_past: Whether the range ended in the past.
    """
    to_ms = window.to_ms
    from_ms = period_start_ms(slo, to_ms)
    width_s = step_s((to_ms - from_ms) / 1000)
    has_calendar = to_ms - from_ms >= 2 * DAY_MS
    if has_calendar:
        width_s = calendar_step_s(width_s, from_ms, to_ms)
    if slo.calendar is None:
        # Whole buckets; a calendar period begins within one, but has no event from before.
        from_ms = from_ms // (width_s * 1000) * width_s * 1000
    period = Window(from_ms, to_ms, width_s)
    # A bucket may be hours wide; only its corrected minutes are excluded.
    whole, parts = partly_in(whole_minutes(spans_ms, from_ms, to_ms), width_s * 1000)
    found = outside(read_buckets(slo, from_ms, to_ms, width_s * 10**9), whole, width_s * 1000)
    corrected = [b for begin, end in parts for b in read_buckets(slo, begin, end, MINUTE_NS)]
    found = without(found, corrected, width_s * 1000)
    if not has_calendar:
        _burn_down(slo, found, period, is_past=is_past)
        return
    left, right = st.columns([3, 2], gap="small")
    with left:
        _burn_down(slo, found, period, is_past=is_past)
    with right, st.container(border=True, key="card-calendar"):
        st.html(
            '<div class="ek-title">Budget by day<small>of the whole budget, share spent '
            f"each day, {current_zone_name()}</small></div>"
        )
        st.html(calendar_grid(calendar(found, slo.target, from_ms, to_ms)))


def _burn_down(slo: Slo, found: Sequence[Bucket], period: Window, *, is_past: bool) -> None:
    left = burn_down(found, slo.target)
    points = budget_line(found, slo.target, period.step_s * 1000, period.from_ms, period.to_ms)
    frame = pd.DataFrame(
        {
            "bucket": [naive_utc(point.at_ms) for point in points],
            # On the floor where it is clipped, so that the line stays in the plot.
            "left": [None if p.left is None else max(p.left, _LOWEST / 100) for p in points],
            "even": [point.even for point in points],
        }
    )
    palette = colours()
    is_spent = bool(left) and left[-1] <= 0
    series = [
        Line("left", "budget left", palette.bad if is_spent else palette.accent, 2.4),
        Line("even", "spent evenly", palette.muted, 1.2),
    ]
    figure = lines(frame, series, Scale("%", 100.0), period)
    if left and min(left) * 100 < _LOWEST:
        # The floor's label says what lies below it.
        figure.bottom = _LOWEST
        ticks = round_ticks(_LOWEST, figure.top, "%", 4)
        lowest = f"−{formats.percent(-min(left))}"
        figure.y_ticks = [(_LOWEST, lowest), *(t for t in ticks if t[0] > _LOWEST)]
    words = state_words(slo, left, is_past=is_past)
    if found:
        bad, total = sum(b.bad for b in found), sum(b.total for b in found)
        words += f"; {formats.count(bad)} bad of {formats.count(total)}"
    zoomable(
        figure,
        "burn-down",
        "Error budget",
        words,
    )


def state_words(slo: Slo, left: Sequence[float], *, is_past: bool) -> str:
    """Return of which period the budget is, and what is left of it.

    Args:
        slo: The SLO.
        left: The share left after each bucket of the period.
        is_past: Whether the period ended in the past.
    """
    period, now = slo.current_period, " now"
    if is_past:
        period, now = f"{slo.period_words} up to the range's end", ""
    if not left:
        state = formats.NO_DATA
    elif left[-1] < 0:
        state = f"exhausted, {formats.factor(1 - left[-1])} spent"
    else:
        state = f"{formats.percent(left[-1])} left{now}"
    return f"of {period}: {state}"


def calendar_grid(days: Sequence[Day]) -> str:
    """Return the days by week, Monday first, each with the share of the budget it spent."""
    if not days:
        return ""
    even = 1 / len(days)
    head = "".join(f'<div class="ek-weekday" aria-hidden="true">{name}</div>' for name in _WEEKDAYS)
    blanks = "<div></div>" * days[0].day.weekday()
    cells = "".join(_cell(day, even) for day in days)
    return f'<div class="ek-calendar" role="list">{head}{blanks}{cells}</div>'


def _cell(day: Day, even_ratio: float) -> str:
    spent = "–" if day.spent_ratio is None else formats.percent(day.spent_ratio)
    words = (
        f"{day.day:%d %B}: no events"
        if day.spent_ratio is None
        else f"{day.day:%d %B}: {spent} of the budget spent, {formats.count(day.bad)} bad of "
        f"{formats.count(day.total)}"
    )
    return (
        f'<div class="ek-day ek-{_level(day, even_ratio)}" role="listitem" tabindex="0" '
        f'title="{escape(words)}" aria-label="{escape(words)}">'
        f"<small>{day.day:%-d}</small><b>{escape(spent)}</b></div>"
    )


def _level(day: Day, even_ratio: float) -> str:
    if day.spent_ratio is None:
        return "unknown"
    if day.spent_ratio > max(_MUCH_RATIO, even_ratio):
        return "bad"
    return "warning" if day.spent_ratio > even_ratio else "good"
