"""Texts as scorers compare them: normalised, and split into words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

# They choose how a character is drawn, not which one it is.
_VARIATION_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# NFKC writes 1½ as 11⁄2.
_FRACTIONS = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞↉])")
# Thai, Lao, Burmese, Khmer, kana, bopomofo and Han are written without spaces.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3031-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED_CHARACTER = re.compile(f"([{_UNSPACED}])")
_LETTER_BEFORE = rf"(?<=[^\W\d_])(?<![^\W{_UNSPACED}].)"
# Not in a number, no sign of one, and not the end of a name such as C#.
_PUNCTUATION = re.compile(
    rf"(?!(?<=\d)[.,:](?=\d))(?!-\d)(?!{_LETTER_BEFORE}#(?![^\W{_UNSPACED}]))[^\w\s%$€£+]"
)
# With the same space on both sides, and a number, a bracket or a single letter on one of them:
# *x* is emphasis, and AC/DC no fraction.
_OPERATOR = re.compile(
    rf"(?:(?<=[\d)])|{_LETTER_BEFORE})( ?)([*/+·])\1(?=[\w(])"
    r"|(?<=[\w)])( ?)([*/+·])\3(?=[\d(]|[^\W\d_]\b)"
)
_OPERATORS = str.maketrans("*·×⋅/÷", "∗∗∗∗∕∕")
_SPELLED = (("−", "-"), ("⁄", "/"), ("!=", "≠"), ("<=", "≤"), (">=", "≥"), ("->", "→"))
_QUOTE = re.compile(r"^(?:[^\S\n]*>)+(?!=)", re.MULTILINE)
# Symbols that Markdown uses as punctuation, and marks of ownership.
_NEVER_COUNTS = "|~®™©"


def normalise(text: str) -> str:
    """Return text in NFKC and lower case, without punctuation and with whitespace collapsed.

    Signs and decimal points in numbers are kept: 1.5 is not 15, and −3 is not 3. So are combining
    marks, which are vowels in many scripts, symbols, which are no punctuation (a < b is not a > b),
    and all of a text that has no words.
    """
    return _normalise(text, lambda _: True)


def split_words(text: str) -> list[str]:
    """Return a text's normalised words; in scripts without spaces, each character is one."""
    return _split(_normalise(text, lambda _: False))


def matcher(reference: str) -> Callable[[str], bool]:
    """Return a function that says whether a text is the reference, both normalised.

    A symbol counts only if the reference has one of its kind: of mathematics, a currency, an arrow,
    or an emoji or shape.
    """
    read = _reader(reference)
    wanted = read(reference)
    return lambda text: read(text) == wanted


def finder(phrase: str) -> Callable[[str], bool]:
    """Return a function that says whether a text contains the words of a phrase, in this order.

    Symbols count as in `matcher`. A phrase of symbols only is found anywhere in a text.
    """
    folded = _collapse(_fold(phrase))
    if folded and not _has_words(folded):
        return lambda text: folded in _collapse(_fold(text))
    read = _reader(phrase)

    def between_spaces(text: str) -> str:
        return f" {' '.join(_split(read(text)))} "

    wanted = between_spaces(phrase)
    return lambda text: wanted in between_spaces(text)


def _reader(reference: str) -> Callable[[str], str]:
    """Return a function that normalises texts to be compared with a reference."""
    kinds = {_kind(character) for character in _mark_operators(_fold(reference))} - {None}
    has_quotes = _QUOTE.search(reference) is not None

    def read(text: str) -> str:
        unquoted = text if has_quotes else _QUOTE.sub("", text)
        return _normalise(unquoted, lambda kind: kind in kinds)

    return read


def _normalise(text: str, counts: Callable[[str], bool]) -> str:
    """Return text normalised, with the symbols of the kinds that count."""
    folded = _fold(text)
    if not _has_words(folded):
        return _collapse(folded)

    def replace(match: re.Match[str]) -> str:
        if _is_mark(match[0]):
            return match[0]
        kind = _kind(match[0])
        return f" {match[0]} " if kind and counts(kind) else " "

    bare = _PUNCTUATION.sub(replace, _mark_operators(folded))
    words = [_without_leading_marks(word) for word in bare.split()]
    return " ".join(word for word in words if word)


def _split(normalised: str) -> list[str]:
    return _UNSPACED_CHARACTER.sub(r" \1 ", normalised).split()


def _has_words(text: str) -> bool:
    return re.search(r"\w", text) is not None


def _collapse(text: str) -> str:
    return " ".join(text.split())


def _fold(text: str) -> str:
    """Return text in NFKC and lower case, and with one spelling of each sign."""
    spaced = _FRACTIONS.sub(" ", _VARIATION_SELECTORS.sub("", text))
    # NFKC would make it a part of the word.
    folded = "™".join(
        unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", part).casefold())
        for part in spaced.split("™")
    )
    for spelled, sign in _SPELLED:
        folded = folded.replace(spelled, sign)
    return folded


def _mark_operators(folded: str) -> str:
    """Return a folded text whose signs of arithmetic are no punctuation."""
    spaced = re.sub(r"[^\S\n]+", " ", folded)
    marked = _OPERATOR.sub(lambda match: f" {match[0].strip().translate(_OPERATORS)} ", spaced)
    return marked.replace("×", "∗").replace("⋅", "∗").replace("÷", "∕")


def _without_leading_marks(word: str) -> str:
    """Return a word without marks that belong to no letter: NFKC turns ´ into a space and one."""
    start = 0
    while start < len(word) and _is_mark(word[start]):
        start += 1
    return word[start:]


def _is_mark(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character) in ("Mn", "Mc")


def _kind(character: str) -> str | None:
    """Return what kind of symbol a character is; None if it is none."""
    category = unicodedata.category(character)
    if category not in ("Sc", "Sm", "So") or character in _NEVER_COUNTS:
        return None
    if "ARROW" in unicodedata.name(character, ""):
        return "arrow"
    # Older symbols, such as °, are no emoji: each is a kind of its own.
    return character if category == "So" and character < "\u2190" else category
