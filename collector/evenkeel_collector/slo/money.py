"""What an alert on a budget in money says: amounts, and what they are for."""

from __future__ import annotations

from evenkeel.durations import format_duration
from evenkeel.slo.model import Slo


def money(amount: float, currency: str) -> str:
    """Return an amount with its currency: 1,234.50 EUR, 0.0042 EUR."""
    text = f"{amount:,.2f}" if abs(amount) >= 1 or not amount else f"{amount:.3g}"
    return f"{text} {currency}".strip()


def budget_text(slo: Slo, currency: str) -> str:
    """Return what a period may cost: 300.00 EUR per month."""
    budget = slo.indicator.budget
    assert budget is not None
    return f"{money(budget, currency)} per {_period(slo)}"


def current_period(slo: Slo) -> str:
    """Return the time that the budget covers now: in the last 30d, this month."""
    words = slo.current_period
    return words if words.startswith("this ") else f"in {words}"


def _period(slo: Slo) -> str:
    if slo.calendar is None:
        return format_duration(slo.scaled_period_s)
    return slo.calendar.words
