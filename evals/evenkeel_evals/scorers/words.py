"""Texts as scorers compare them: normalised, and split into words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

# They choose how a character is drawn, not which one it is.
_VARIATION_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# Not in a number, and no sign of one.
_PUNCTUATION = re.compile(r"(?!(?<=\d)[.,:](?=\d))(?!-\d)[^\w\s%$€£+]")
# Thai, Lao, Burmese, Khmer, kana, bopomofo and Han are written without spaces.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3031-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)


def normalise(text: str) -> str:
    """Return text in NFKC and lower case, without punctuation and with whitespace collapsed.

    Signs and decimal points in numbers are kept: 1.5 is not 15, and −3 is not 3. So are combining
    marks, which are vowels in many scripts, and all of a text that is nothing but symbols.
    """
    folded = _fold(text)
    kept = _PUNCTUATION.sub(_keep_mark, folded)
    words = [_without_leading_marks(word) for word in kept.split()]
    return " ".join(word for word in words if word) or folded


def split_words(text: str) -> list[str]:
    """Return a text's normalised words; in scripts without spaces, each character is one."""
    return _UNSPACED.sub(r" \1 ", normalise(text)).split()


def finder(phrase: str) -> Callable[[str], bool]:
    """Return a function that says whether a text contains the words of a phrase, in this order.

    A phrase of symbols only is found anywhere in a text.
    """
    folded = _fold(phrase)
    if folded and re.search(r"\w", folded) is None:
        return lambda text: folded in _fold(text)
    wanted = _between_spaces(phrase)
    return lambda text: wanted in _between_spaces(text)


def _fold(text: str) -> str:
    """Return text in NFKC and lower case, with whitespace collapsed."""
    composed = unicodedata.normalize("NFKC", _VARIATION_SELECTORS.sub("", text))
    folded = unicodedata.normalize("NFKC", composed.casefold())
    return " ".join(folded.replace("−", "-").split())


def _between_spaces(text: str) -> str:
    return f" {' '.join(split_words(text))} "


def _keep_mark(match: re.Match[str]) -> str:
    return match[0] if _is_mark(match[0]) else " "


def _without_leading_marks(word: str) -> str:
    """Return a word without marks that belong to no letter: NFKC turns ´ into a space and one."""
    start = 0
    while start < len(word) and _is_mark(word[start]):
        start += 1
    return word[start:]


def _is_mark(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character) in ("Mn", "Mc")
