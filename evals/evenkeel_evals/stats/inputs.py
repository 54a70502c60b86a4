"""Input checks shared by the statistics, for uniform error messages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenkeel.errors import ConfigurationError

Floats = NDArray[np.float64]
Interval = tuple[float | None, float | None]

# Beyond this, doubles lose integer precision; no experiment gets there.
MAX_COUNT = 10**12


def check_number(name: str, value: Any) -> float:
    """Return `value` as a finite float.

    Raises:
        ConfigurationError: If it is not a number, not finite, or a boolean.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise ConfigurationError(f"{name} is {value!r:.60}, expected a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ConfigurationError(f"{name} is {value!r:.60}, expected a finite number")
    return number


def check_positive(name: str, value: Any) -> float:
    """Return `value` as a float above zero.

    Raises:
        ConfigurationError: If it is not.
    """
    number = check_number(name, value)
    if number <= 0:
        raise ConfigurationError(f"{name} is {value!r:.60}, expected a number above 0")
    return number


def check_not_negative(name: str, value: Any) -> float:
    """Return `value` as a float of at least zero.

    Raises:
        ConfigurationError: If it is not.
    """
    number = check_number(name, value)
    if number < 0:
        raise ConfigurationError(f"{name} is {value!r:.60}, expected 0 or more")
    return number


def check_fraction(name: str, value: Any) -> float:
    """Return `value` as a float strictly between 0 and 1.

    Raises:
        ConfigurationError: If it is not.
    """
    number = check_number(name, value)
    if not 0 < number < 1:
        raise ConfigurationError(f"{name} is {value!r:.60}, expected a fraction between 0 and 1")
    return number


def check_count(name: str, value: Any, at_least: int = 0) -> int:
    """Return `value` as an integer of at least `at_least`.

    Raises:
        ConfigurationError: If it is not a whole number, or is too small or absurdly large.
    """
    number = check_number(name, value)
    if number != math.floor(number):
        raise ConfigurationError(f"{name} is {value!r:.60}, expected a whole number")
    if not at_least <= number <= MAX_COUNT:
        raise ConfigurationError(f"{name} is {value!r:.60}, expected {at_least} to {MAX_COUNT:.0e}")
    return int(number)


def check_list(name: str, values: Any, at_least: int = 1) -> Sequence[Any]:
    """Return `values` as a sequence with at least `at_least` members.

    Raises:
        ConfigurationError: If it is not a list, or is too short.
    """
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        raise ConfigurationError(f"{name} is {values!r:.60}, expected a list")
    if len(values) < at_least:
        raise ConfigurationError(f"{name} has {len(values)} values, expected at least {at_least}")
    return values


def check_numbers(name: str, values: Any, at_least: int = 1) -> Floats:
    """Return `values` as an array of finite floats.

    Raises:
        ConfigurationError: If it is too short, or a member is not a finite number.
    """
    members = check_list(name, values, at_least)
    return np.array([check_number(f"{name}[{i}]", v) for i, v in enumerate(members)], dtype=float)


def check_pairs(
    name_x: str, x: Any, name_y: str, y: Any, at_least: int = 1
) -> tuple[Floats, Floats]:
    """Return `a` and `b` as two arrays of the same length.

    Raises:
        ConfigurationError: If their lengths differ, or either is not a list of numbers.
    """
    first, second = check_numbers(name_x, x, at_least), check_numbers(name_y, y, at_least)
    if len(first) != len(second):
        raise ConfigurationError(
            f"{name_x} has {len(first)} values and {name_y} {len(second)}, expected pairs"
        )
    return first, second


def snap(values: Floats, scale: float) -> Floats:
    """Round off subtraction error, so that equal differences are ties.

    0.3 − 0.2 and 0.2 − 0.1 differ in the last bit, but their ranks must not. Differences are
    rounded to 12 significant digits of `scale`, the largest number they were computed from.
    """
    if scale == 0 or not math.isfinite(scale):
        return values
    digits = 12 - math.ceil(math.log10(scale))
    if digits > 300:
        return values
    return np.round(values, digits) + 0.0
