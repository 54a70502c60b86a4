"""Scorer by the last number of an answer, compared in decimal: as it is written, digit by digit."""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel_evals.scorers.base import Judge, Options, Score
from evenkeel_evals.scorers.options import read_number

# No-break spaces.
_JOINING = "\u00a0\u202f"
# A hyphen after a letter, digit or closing bracket joins: 3-5 ends with 5, COVID-19 with 19. Not
# after a letter of a script without spaces, Thai to Hangul; a minus sign joins after no letter.
_NUMBER = re.compile(
    "(?:(?<![^\\W_\u0e00-\u0eff\u1000-\u11ff\u1780-\u17ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff])"
    r"(?<![)\]%])[-+]|(?<![\d)\]%])−)?"
    # 1.234,5 and 1 234,5 with a space that joins have only one reading; 1,5 may be two numbers.
    rf"(?:[1-9]\d{{0,2}}(?:(?:\.\d{{3}})+,\d+|(?:[{_JOINING}]\d{{3}})+(?:[.,]\d+)?)(?![.,]?\d)"
    r"|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:[eE][-+−]?\d+)?"
)
# Allowed for computed fractions such as 0.30000000000000004; too little for a wrong integer.
_NOISE_RATIO, _NOISE = Decimal("1e-12"), Decimal("1e-9")
# Rounds to 28 digits, never to 0, and gives infinity instead of an error.
_CONTEXT = Context(prec=28, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_MAX_SHOWN = 40


def numeric(reference: Any, options: Options) -> Judge:
    """Judge whether the answer's last number is the reference, within `tolerance` or `relative`."""
    expected = _last_number(reference) if isinstance(reference, str) else _as_decimal(reference)
    if expected is None:
        raise ConfigurationError(
            f"scorer 'numeric' needs a number as reference, got {reference!r:.60}"
        )
    tolerance = Decimal(str(read_number("numeric", options, "tolerance")))
    relative = Decimal(str(read_number("numeric", options, "relative")))
    size = expected.copy_abs()
    noise = min(_CONTEXT.multiply(_NOISE_RATIO, size), _NOISE)
    allowed = max(tolerance, _CONTEXT.multiply(relative, size), noise)

    def judge(answer: str) -> Score:
        number = _last_number(answer)
        if number is None:
            return Score.of(False, "no number in the answer")
        distance = _CONTEXT.subtract(number, expected).copy_abs()
        return Score.of(distance <= allowed, f"found {number!s:.{_MAX_SHOWN}}")

    return judge


def _last_number(text: str) -> Decimal | None:
    """Return the last number of a text; None without one, or if its exponent is absurd."""
    found = _NUMBER.findall(text)
    try:
        return Decimal(_plain(found[-1])) if found else None
    except InvalidOperation:
        return None


def _plain(number: str) -> str:
    """Return a number without separators of thousands, and with a point before the decimals."""
    joined = re.sub(f"[{_JOINING}]", "", number).replace("−", "-")
    has_decimal_comma = joined != number.replace("−", "-") or "." in number.partition(",")[0]
    if not has_decimal_comma:
        return joined.replace(",", "")
    return joined.replace(".", "").replace(",", ".") if "," in joined else joined


def _as_decimal(value: Any) -> Decimal | None:
    """Return a number of JSON in decimal; None if it is none, or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
    return number if number.is_finite() else None
