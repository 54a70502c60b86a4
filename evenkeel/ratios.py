"""Ratios as people write them: 0.05, 1/20, 5%."""

from __future__ import annotations

import re
from fractions import Fraction

from evenkeel.errors import ConfigurationError

# A bounded text without a large exponent: Fraction would write 1e-999999999 out.
_RATIO = re.compile(r"[\d./]{1,40}([eE][+-]?\d{1,2})?%?", re.ASCII)


def parse_ratio(text: str) -> Fraction:
    """Return the exact ratio in a fraction or a percentage, such as 0.05 or 5%.

    Raises:
        ConfigurationError: If it is neither.
    """
    complaint = f"{text[:60]!r} is neither a fraction nor a percentage"
    if not _RATIO.fullmatch(text.strip()):
        raise ConfigurationError(complaint)
    number, percent, _ = text.strip().partition("%")
    try:
        return Fraction(number) / (100 if percent else 1)
    except (ValueError, ZeroDivisionError) as error:
        raise ConfigurationError(complaint) from error
