"""Split a text into words, numbers and signs."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass


def _one_of(*categories: str, also: str = "", but: str = "") -> str:
    """Return an expression for a character of Unicode categories.

    A class with characters beyond the first 65,536 is searched range by range, at each place of a
    text. So these are only looked for where there is one.
    """
    found = [c for c in map(chr, range(0x20000)) if unicodedata.category(c) in categories]
    low = re.escape("".join(c for c in found if c < "\U00010000" and c not in but))
    high = re.escape("".join(c for c in found if c >= "\U00010000"))
    return rf"[{also}{low}]|(?=[\U00010000-\U0010ffff])[{high}]"


# A vowel of Hindi or Thai is a mark; those that only choose how an emoji looks say nothing.
_EMOJI_STYLES = "".join(map(chr, range(0xFE00, 0xFE10)))
_LETTER = _one_of("Mn", "Mc", "Me", also=r"\w", but=_EMOJI_STYLES)
_WORD = rf"(?:{_LETTER})+(?:'(?:{_LETTER})+)*"
# Signs that are no punctuation: currencies, comparisons, emoji; the others where they bind what
# they say something of: "C#", "-5", "3 * 4", "!=", ".5".
_SIGN = (
    rf"{_one_of('Sc', 'Sm', 'So', also='%')}|\^|#(?=\w)|(?<=\w)#|(?<![\w.)\]])-(?=\.?\d)"
    r"|!(?==)|(?<![\w.])\.(?=\d)|(?<=[\d)])\s?[-*/]\s?(?=[\d(])"
)
# A word, a number or a sign.
TOKEN = re.compile(rf"\d+(?:[.,:/-]\d+)*|{_WORD}|{_SIGN}")
_SUPERSCRIPT = re.compile("[²³¹⁰⁴-⁹]+")
# Apostrophes, and hyphens, dashes and minus signs, which many texts use for one another.
_PLAIN = str.maketrans("’‐‒–−", "'----")
_HALF_OF_DAY = re.compile(r"\b([ap])\.\s?m\b\.?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Word:
    """A word, number or sign, as it is and in lower case, and where it starts."""

    text: str
    low: str
    start: int


def normalise(text: str) -> str:
    """Return a text in which signs that mean the same are the same."""
    # NFKC makes "2³" the number 23.
    text = unicodedata.normalize("NFKC", _SUPERSCRIPT.sub(r"^\g<0>", text))
    return _HALF_OF_DAY.sub(r"\1m", text.translate(_PLAIN))


def split_words(text: str) -> list[Word]:
    """Return the words, numbers and signs of a normalised text."""
    found = [(match[0].strip(), match.start()) for match in TOKEN.finditer(text)]
    return [Word(word, word.lower(), start) for word, start in found]
