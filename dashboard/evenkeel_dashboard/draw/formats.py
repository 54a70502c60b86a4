"""Formats numbers, units and times for people: the only place that does.

Numbers have up to three significant digits and no trailing zeros; a difference has a sign, and the
minus sign is a real one. Times are in the reader's zone (`zones`), and name it. A missing value is
"no data".
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from itertools import pairwise

from evenkeel.engines import reported
from evenkeel_dashboard.draw.zones import current_zone_name, in_zone, now_in_zone, zone_name

NO_DATA = "no data"
NOT_REPORTED = reported.NOT_REPORTED
NO_PRICE = "no price"
_INFINITY = "∞"
# A day and month alone name the nearest such day.
_YEAR_FROM = timedelta(days=180)
_UNITS = ((1e3, "k"), (1e6, "M"), (1e9, "G"))


def seconds(value: float | None) -> str:
    """Return a duration with up to three digits: 812 µs, 41.3 ms, 2.31 s, 95 s, 12 min."""
    if value is None or math.isnan(value):
        return NO_DATA
    if value < 0:
        return f"−{seconds(-value)}"
    if math.isinf(value):
        return _INFINITY
    # Times are in nanoseconds: less is what sums of fractions leave.
    if value < 0.5e-9:
        return "0 ms"
    if value < 0.0009995:
        return f"{three_digits(value * 1e6)} µs"
    if value < 0.9995:
        return f"{three_digits(value * 1e3)} ms"
    if value < 119.5:
        return f"{three_digits(value)} s"
    if value < 7_200:
        return f"{three_digits(value / 60)} min"
    size, unit = (3_600, "h") if value < 172_800 else (86_400, "d")
    return f"{three_digits(value / size)} {unit}"


def signed_seconds(value: float | None) -> str:
    """Return a difference of durations with its sign: +1.2 s, −35 ms."""
    if value is None or math.isnan(value):
        return NO_DATA
    return seconds(value) if value < 0 else f"+{seconds(value)}" if value else "±0 ms"


def age(value_s: float | None) -> str:
    """Return an age in whole units: 8 s, 12 min, 5 h, 3 d."""
    if value_s is None or math.isnan(value_s):
        return NO_DATA
    if math.isinf(value_s):
        return seconds(value_s)
    for size, unit, last in ((1, "s", 120), (60, "min", 7_200), (3_600, "h", 172_800)):
        if value_s < last:
            return f"{max(0.0, value_s) // size:.0f} {unit}"
    return f"{value_s // 86_400:.0f} d"


def count(value: float | None) -> str:
    """Return a count, grouped up to 99,999, then as k, M, G."""
    if value is None or math.isnan(value):
        return NO_DATA
    if math.isinf(value):
        return three_digits(value)
    if abs(value) < 99_999.5:
        return f"{value:,.0f}".replace("-", "−")
    # Three digits round up to the next unit: 999,500 is 1 M, not 1,000 k.
    size, suffix = next((u for u in _UNITS if abs(value) < 999.5 * u[0]), _UNITS[-1])
    return f"{three_digits(value / size)} {suffix}"


def rate(value: float | None) -> str:
    """Return a rate per second, with three digits."""
    if value is None or math.isnan(value):
        return NO_DATA
    return f"{three_digits(value)}/s" if value < 9_999.5 else f"{count(value)}/s"


def percent(value: float | None) -> str:
    """Return a fraction as percent: 0.0421 → 4.21%; enough nines near 100%, two digits below 1%."""
    if value is None or math.isnan(value):
        return NO_DATA
    if 0 < value < 5e-7:
        return "<0.0001%"
    if 0.99 <= value < 1.0:
        digits = min(max(2, math.ceil(-math.log10(1 - value))), 6)
        text = f"{math.floor(value * 100 * 10 ** (digits - 1)) / 10 ** (digits - 1):.{digits - 1}f}"
        return f"{text.rstrip('0').rstrip('.')}%"
    return f"{_percent_digits(value)}%"


def percent_of_target(value: float | None, target: float) -> str:
    """Return a share as percent, with enough digits not to look like a target that it misses.

    98.996% of 99%; <99% if more than seven digits would be needed.
    """
    text, aim = percent(value), percent(target)
    if value is None or not value < target or text != aim:
        return text
    tried = (f"{_digits(value * 100, num)}%" for num in range(4, 8))
    return next((more for more in tried if more != aim), f"<{aim}")


def signed_percent(value: float | None) -> str:
    """Return a relative difference as percent with its sign: +4.2%, −0.5%."""
    return _signed(value, "%")


def points(value: float | None) -> str:
    """Return a difference of two shares in percentage points: 0.9 − 0.75 is +15 pp."""
    return _signed(value, " pp")


def _signed(value: float | None, unit: str) -> str:
    if value is None or math.isnan(value):
        return NO_DATA
    sign = "−" if value < 0 else "+"
    return f"{sign}{_percent_digits(abs(value))}{unit}" if value else f"±0{unit}"


def _percent_digits(value: float) -> str:
    return _digits(value * 100, 2 if abs(value) < 0.01 else 3)


def money(value: float | None, currency: str) -> str:
    """Return an amount with its currency: 0.0042 USD, 4.2 USD, 4,213 USD, 1.2 M USD."""
    if value is None or math.isnan(value):
        return NO_DATA
    amount = three_digits(value) if abs(value) < 9_999.5 else count(value).replace("-", "−")
    return f"{amount} {currency}".strip()


def kilowatt_hours(value: float | None) -> str:
    """Return an energy: 0.0042 kWh, 4,032 kWh, 1.23 M kWh."""
    if value is None or math.isnan(value):
        return NO_DATA
    return f"{three_digits(value) if abs(value) < 9_999.5 else count(value)} kWh"


def factor(value: float | None) -> str:
    """Return a burn rate or ratio: 14.4×, 1×."""
    if value is None or math.isnan(value):
        return NO_DATA
    return f"{three_digits(value)}×"


def change(now: float | None, before: float | None) -> str | None:
    """Return a value's change from before: ▲ 12%, ▲ 3.1×; None if it cannot be compared."""
    if now is None or before is None or math.isnan(now) or math.isnan(before) or before <= 0:
        return None
    ratio = now / before
    if not math.isfinite(ratio * 100):
        return None
    if ratio >= 2:
        return f"▲ {three_digits(ratio)}×"
    percent_change = round((ratio - 1) * 100)
    if percent_change == 0:
        return "±0%"
    return f"{'▲' if percent_change > 0 else '▼'} {abs(percent_change)}%"


def three_digits(value: float) -> str:
    """Return a number to three significant digits, without exponent or trailing zeros.

    0.0421, 4.2, 421, 4,213.
    """
    return _digits(value, 3)


def two_digits(value: float) -> str:
    """Return a number to two significant digits: a probability."""
    return _digits(value, 2)


def exact(value: float) -> str:
    """Return a number with all its digits, grouped: 2,471.66341."""
    if isinstance(value, float) and not math.isfinite(value):
        return three_digits(value)
    return f"{value:,}".replace("-", "−")


def _digits(value: float, num: int) -> str:
    if math.isnan(value):
        return NO_DATA
    if math.isinf(value):
        return _INFINITY if value > 0 else f"−{_INFINITY}"
    if value == 0:
        return "0"
    exponent = int(f"{value:.{num - 1}e}".partition("e")[2])
    text = f"{value:,.{max(0, num - 1 - exponent)}f}".replace("-", "−")
    return text.rstrip("0").rstrip(".") if "." in text else text


def clock_ms(unix_ms: int) -> str:
    """Return Unix milliseconds as a time of day with its zone, to the second."""
    moment = in_zone(unix_ms)
    return f"{moment:%H:%M:%S} {zone_name(moment)}"


def short_clock_ms(unix_ms: int) -> str:
    """Return Unix milliseconds as a time of day, for a column whose header names the zone.

    Of another day than today, it has the day.
    """
    moment = in_zone(unix_ms)
    is_today = moment.date() == now_in_zone().date()
    return f"{moment:%H:%M:%S}{_other_offset(moment)}" if is_today else short_moment_ms(unix_ms)


def moment_ms(unix_ms: int) -> str:
    """Return Unix milliseconds as a date and time with its zone, to the second."""
    moment = in_zone(unix_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S} {zone_name(moment)}"


def short_moment_ms(unix_ms: int) -> str:
    """Return Unix milliseconds as a day and time, for a column whose header names the zone."""
    moment = in_zone(unix_ms)
    return f"{_day(moment)} {moment:%H:%M:%S}{_other_offset(moment)}"


def short_minute_ms(unix_ms: int) -> str:
    """Return Unix milliseconds as a day and minute, for times known only to the minute."""
    moment = in_zone(unix_ms)
    return f"{_day(moment)} {moment:%H:%M}{_other_offset(moment)}"


def range_ms(from_ms: int, to_ms: int) -> str:
    """Return a range in Unix milliseconds with its zone, or both if the clocks changed in it."""
    begin, end = in_zone(from_ms), in_zone(to_ms)
    first, last = _day(begin), _day(end)
    if first == last:
        last = ""
    elif begin.year == end.year:
        # The end's year is that of both.
        first = f"{begin:%d %b}"
    before = "" if begin.utcoffset() == end.utcoffset() else f" {zone_name(begin)}"
    ended = f"{last} {end:%H:%M:%S}".strip()
    return f"{first} {begin:%H:%M:%S}{before} – {ended} {zone_name(end)}"


def _day(moment: datetime) -> str:
    """Return the day of a time, with the year where it could be taken for one of this year."""
    is_far = abs(moment - now_in_zone()) > _YEAR_FROM
    return f"{moment:%d %b %Y}" if is_far else f"{moment:%d %b}"


def _other_offset(moment: datetime) -> str:
    """Return the zone of a time from before a change of clocks: the header names that of today."""
    is_same = moment.utcoffset() == now_in_zone().utcoffset()
    return "" if is_same else f" {zone_name(moment)}"


def zoned(header: str) -> str:
    """Return a header that names the zone of its column's times: arrived (UTC)."""
    return f"{header} ({current_zone_name()})"


def span_of(duration_s: float) -> str:
    """Return the length of a range in words: 15 min, 6 h, 30 d, 2 min 15 s."""
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    for size, unit in units[:-1]:
        if duration_s >= size and (duration_s / size).is_integer():
            return f"{duration_s / size:.0f} {unit}"
    if math.isfinite(duration_s) and duration_s >= 120:
        for (size, unit), (part, small) in pairwise(units):
            if duration_s >= size:
                rest = duration_s % size // part
                return f"{duration_s // size:.0f} {unit}" + (f" {rest:.0f} {small}" if rest else "")
    return seconds(duration_s)


def number(value: float | None) -> str:
    """Return a number without a unit, with up to three digits."""
    return NO_DATA if value is None else three_digits(value)
