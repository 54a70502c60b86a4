"""Formats numbers for people: with a unit, and "no data" if there is no value."""

from __future__ import annotations

import math

from evenkeel.times import to_datetime

NO_DATA = "no data"


def seconds(value: float | None) -> str:
    """Return a duration with three digits: 812 µs, 41.3 ms, 2.31 s, 95 s, 12 min."""
    if value is None or math.isnan(value):
        return NO_DATA
    if value < 0:
        return f"−{seconds(-value)}"
    if value == 0:
        return "0 ms"
    if value < 0.0009995:
        return f"{three_digits(value * 1e6)} µs"
    if value < 0.9995:
        return f"{three_digits(value * 1e3)} ms"
    if value < 119.5:
        return f"{three_digits(value)} s"
    return f"{value / 60:.0f} min" if value < 7_200 else f"{value / 3_600:.1f} h"


def count(value: float | None) -> str:
    """Return a count, grouped up to 99,999, then as k, M, G."""
    if value is None or math.isnan(value):
        return NO_DATA
    if abs(value) < 99_999.5:
        return f"{value:,.0f}"
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{three_digits(value / size)} {suffix}"
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return a rate per second, with three digits."""
    if value is None or math.isnan(value):
        return NO_DATA
    return f"{three_digits(value)}/s" if value < 9_999.5 else f"{count(value)}/s"


def percent(value: float | None) -> str:
    """Return a fraction as percent: 0.0421 → 4.21 %; enough nines near 100 %."""
    if value is None or math.isnan(value):
        return NO_DATA
    if 0.99 <= value < 1.0:
        digits = min(max(2, math.ceil(-math.log10(1 - value))), 6)
        text = f"{math.floor(value * 100 * 10 ** (digits - 1)) / 10 ** (digits - 1):.{digits - 1}f}"
        return f"{text.rstrip('0').rstrip('.')} %"
    return f"{three_digits(value * 100)} %"


def signed_percent(value: float | None) -> str:
    """Return a difference of fractions as percent with its sign: +4.2 %, −0.5 %."""
    if value is None or math.isnan(value):
        return NO_DATA
    sign = "−" if value < 0 else "+"
    return f"{sign}{three_digits(abs(value) * 100)} %" if value else "±0 %"


def factor(value: float | None) -> str:
    """Return a burn rate or ratio: 14.4×."""
    if value is None or math.isnan(value):
        return NO_DATA
    return f"{three_digits(value)}×"


def change(now: float | None, before: float | None) -> str | None:
    """Return a value's change from before: ▲ 12 %, ▲ 3.1×; None if it cannot be compared."""
    if now is None or before is None or math.isnan(now) or math.isnan(before) or before <= 0:
        return None
    ratio = now / before
    if ratio >= 2:
        return f"▲ {three_digits(ratio)}×"
    percent_change = round((ratio - 1) * 100)
    if percent_change == 0:
        return "± 0 %"
    return f"{'▲' if percent_change > 0 else '▼'} {abs(percent_change)} %"


def three_digits(value: float) -> str:
    """Return a number to three significant digits without an exponent: 0.0421, 4.21, 421, 4,213."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    rounded = round(value, digits)
    digits = max(0, 2 - math.floor(math.log10(abs(rounded)))) if rounded else digits
    return f"{rounded:,.{digits}f}"


def clock_ms(unix_ms: int) -> str:
    """Return Unix milliseconds as a time of day in UTC, to the second."""
    return f"{to_datetime(unix_ms * 10**6):%H:%M:%S} UTC"


def moment_ms(unix_ms: int) -> str:
    """Return Unix milliseconds as a date and time in UTC, to the second."""
    return f"{to_datetime(unix_ms * 10**6):%Y-%m-%d %H:%M:%S} UTC"


def short_moment_ms(unix_ms: int) -> str:
    """Return Unix milliseconds as a day and time in UTC, for a column whose header says UTC."""
    return f"{to_datetime(unix_ms * 10**6):%d %b %H:%M:%S}"


def short_minute_ms(unix_ms: int) -> str:
    """Return Unix milliseconds as a day and minute in UTC, for times known only to the minute."""
    return f"{to_datetime(unix_ms * 10**6):%d %b %H:%M}"


def span_of(duration_s: float) -> str:
    """Return the length of a range in words: 15 min, 6 h, 30 d."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if duration_s >= size and (duration_s / size).is_integer():
            return f"{duration_s / size:.0f} {unit}"
    return seconds(duration_s)


def number(value: float | None) -> str:
    """Return a number without a unit, with three digits."""
    return NO_DATA if value is None else three_digits(value)
