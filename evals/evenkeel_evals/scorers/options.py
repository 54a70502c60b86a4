"""Readers of scorers' options: a value of the wrong type is refused when a dataset is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from evenkeel.errors import ConfigurationError


def read_flag(name: str, options: Mapping[str, Any], option: str, default: bool) -> bool:
    """Return a boolean option.

    Raises:
        ConfigurationError: If it is neither.
    """
    value = options.get(option, default)
    if not isinstance(value, bool):
        raise _wrong(name, f"option {option!r}", value, "true or false")
    return value


def read_number(name: str, options: Mapping[str, Any], option: str) -> float:
    """Return an option that is a finite number of 0 or more; 0 without it.

    Raises:
        ConfigurationError: If it is not one.
    """
    return check_number(name, f"option {option!r}", options.get(option, 0.0))


def read_threshold(name: str, options: Mapping[str, Any], default: float) -> float:
    """Return the option `threshold`: the lowest value that counts as right.

    Raises:
        ConfigurationError: If it is not a number from 0 to 1.
    """
    value = options.get("threshold", default)
    if _as_number(value) is None or not 0 <= value <= 1:
        raise _wrong(name, "option 'threshold'", value, "0 to 1")
    return float(value)


def read_strings(name: str, options: Mapping[str, Any], option: str) -> list[str]:
    """Return an option that is a list of texts; empty if it is not given.

    Raises:
        ConfigurationError: If it is not such a list.
    """
    value = options.get(option, [])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _wrong(name, f"option {option!r}", value, "a list of strings")
    return value


def check_number(name: str, what: str, value: Any) -> float:
    """Return a value that is a finite number of 0 or more.

    Raises:
        ConfigurationError: If it is not one.
    """
    number = _as_number(value)
    if number is None or number < 0:
        raise _wrong(name, what, value, "a number of 0 or more")
    return number


def _as_number(value: Any) -> float | None:
    """Return a finite number; None for anything else, such as a boolean or a huge integer."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _wrong(name: str, what: str, value: Any, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{what} of scorer {name!r} is {value!r:.40}, expected {expected}")
