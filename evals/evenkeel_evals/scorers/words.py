"""Texts as scorers compare them: normalised, and split into words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

# They choose how a character is drawn, not which one it is.
_VARIATION_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# Not in a number, no sign of one, and not the end of a name such as C#.
_PUNCTUATION = re.compile(r"(?!(?<=\d)[.,:](?=\d))(?!-\d)(?!(?<=[^\W\d])#(?!\w))[^\w\s%$€£+]")
# Symbols that Markdown uses as punctuation.
_MARKDOWN = "|~"
# Thai, Lao, Burmese, Khmer, kana, bopomofo and Han are written without spaces.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3031-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)


def normalise(text: str) -> str:
    """Return text in NFKC and lower case, without punctuation and with whitespace collapsed.

    Signs and decimal points in numbers are kept: 1.5 is not 15, and −3 is not 3. So are combining
    marks, which are vowels in many scripts, symbols, which are no punctuation (a < b is not a > b),
    and all of a text that has no words.
    """
    return _normalise(text, keeps_symbols=True)


def split_words(text: str) -> list[str]:
    """Return a text's normalised words; in scripts without spaces, each character is one."""
    return _split(_normalise(text, keeps_symbols=False))


def matcher(reference: str) -> Callable[[str], bool]:
    """Return a function that says whether a text is the reference, both normalised.

    Symbols count if the reference has any: where it is "Paris", "Paris ✅" is right.
    """
    has_symbols = any(map(_is_symbol, _fold(reference)))
    wanted = _normalise(reference, keeps_symbols=has_symbols)
    return lambda text: _normalise(text, keeps_symbols=has_symbols) == wanted


def finder(phrase: str) -> Callable[[str], bool]:
    """Return a function that says whether a text contains the words of a phrase, in this order.

    Symbols between them count if the phrase has any. A phrase of symbols only is found anywhere in
    a text.
    """
    folded = _fold(phrase)
    if folded and not _has_words(folded):
        return lambda text: folded in _fold(text)
    has_symbols = any(map(_is_symbol, folded))

    def between_spaces(text: str) -> str:
        return f" {' '.join(_split(_normalise(text, keeps_symbols=has_symbols)))} "

    wanted = between_spaces(phrase)
    return lambda text: wanted in between_spaces(text)


def _normalise(text: str, *, keeps_symbols: bool) -> str:
    folded = _fold(text)
    if not _has_words(folded):
        return folded

    def replace(match: re.Match[str]) -> str:
        if _is_mark(match[0]):
            return match[0]
        return f" {match[0]} " if keeps_symbols and _is_symbol(match[0]) else " "

    words = [_without_leading_marks(word) for word in _PUNCTUATION.sub(replace, folded).split()]
    return " ".join(word for word in words if word)


def _split(normalised: str) -> list[str]:
    return _UNSPACED.sub(r" \1 ", normalised).split()


def _has_words(text: str) -> bool:
    return re.search(r"\w", text) is not None


def _fold(text: str) -> str:
    """Return text in NFKC and lower case, with whitespace collapsed."""
    composed = unicodedata.normalize("NFKC", _VARIATION_SELECTORS.sub("", text))
    folded = unicodedata.normalize("NFKC", composed.casefold())
    return " ".join(folded.replace("−", "-").split())


def _without_leading_marks(word: str) -> str:
    """Return a word without marks that belong to no letter: NFKC turns ´ into a space and one."""
    start = 0
    while start < len(word) and _is_mark(word[start]):
        start += 1
    return word[start:]


def _is_mark(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character) in ("Mn", "Mc")


def _is_symbol(character: str) -> bool:
    return unicodedata.category(character) in ("Sc", "Sm", "So") and character not in _MARKDOWN
