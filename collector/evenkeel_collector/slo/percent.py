"""Shares and targets as percent, in alerts, reports and on the terminal."""

from __future__ import annotations

from fractions import Fraction


def percent(value: float | None, digits: int) -> str:
    """Return a share as percent with this many decimals; below 1, it is not rounded to 100%."""
    if value is None:
        return "no data"
    text = f"{value:.{digits}%}"
    return f"{1 - 0.1 ** (digits + 2):.{digits}%}" if value < 1 <= float(text[:-1]) / 100 else text


def exact_percent(ratio: Fraction | float) -> str:
    """Return a target, or a part of a budget, as percent with all its digits: 99.95%."""
    return f"{float(ratio * 100):.10g}%"
