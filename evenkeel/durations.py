"""Durations as people write them: 90s, 1.5h, 30d."""

from __future__ import annotations

import re
from fractions import Fraction

from evenkeel.errors import ConfigurationError

_SECONDS_OF_UNIT = {
    "w": Fraction(604_800),
    "d": Fraction(86_400),
    "h": Fraction(3600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 1000),
}
_PROMETHEUS_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_PATTERN = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|[smhdw])", re.ASCII)


def parse_duration_s(text: str) -> Fraction:
    """Return the exact number of seconds in a duration such as 90s, 1.5h or 30d.

    Raises:
        ConfigurationError: If it is not a positive number followed by ms, s, m, h, d or w.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None or not Fraction(match[1]):
        raise ConfigurationError(f"{text!r} is not a duration; expected one such as 90s, 5m or 30d")
    return Fraction(match[1]) * _SECONDS_OF_UNIT[match[2]]


def format_duration(seconds: float | Fraction) -> str:
    """Format a duration for people in up to two units: `30d`, `8m38s`, `90s`, `0.42s`."""
    value = float(seconds)
    if abs(value) < 120:
        return f"{float(f'{value:.3g}'):g}s" if value % 60 or not value else "1m"
    left, parts = round(abs(value)), ""
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_SECONDS_OF_UNIT[unit]))
        if parts:
            # The second unit is the next smaller one: finer ones would only distract.
            parts += f"{count}{unit}" if count else ""
            break
        parts += f"{count}{unit}" if count else ""
    return "-" + parts if value < 0 else parts


def prometheus_duration(seconds: Fraction) -> str:
    """Format a duration for Prometheus in one unit: 5m, 36h, 90s, 250ms.

    Raises:
        ConfigurationError: If it is not a whole number of milliseconds.
    """
    milliseconds = seconds * 1000
    for unit, length in _PROMETHEUS_UNITS:
        if milliseconds and milliseconds % length == 0:
            return f"{milliseconds // length}{unit}"
    raise ConfigurationError(f"a window of {float(seconds):g} s is not in whole milliseconds")


def measured_duration(seconds: float) -> str:
    """Format a measured duration with up to three digits: `812 µs`, `41.3 ms`, `2.31 s`."""
    for size, unit, last in ((1e6, "µs", 0.0009995), (1e3, "ms", 0.9995)):
        if abs(seconds) < last:
            return f"{float(f'{seconds * size:.3g}'):g} {unit}"
    return f"{float(f'{seconds:.3g}'):g} s"
