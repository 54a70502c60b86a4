"""HTML of the error-budget calendar."""

from __future__ import annotations

from collections.abc import Sequence

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.pages.slo.model import Day

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# A day above its even share is worth a look; a quarter of the budget in one day, a discussion.
_MUCH_RATIO = 0.25


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
