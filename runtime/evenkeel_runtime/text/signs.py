"""Find the signs of a text that are no punctuation: `!ok` is not `ok`, nor `-rf` `rf`.

Commands, JSON and code say with signs what prose says with words. What only sets prose apart
(sentence punctuation, quotation marks, dashes, Markdown's emphasis, lists and asides) is no sign.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from evenkeel_runtime.text.words import TOKEN, normalise

# Takes the place of layout: neither a letter, nor white space, nor punctuation.
_DROPPED = "\ue000"
# Punctuation and quotation marks up to the next white space; all that is not ASCII is layout.
_END = r"(?=(?:[.,;:?!\"'`*)]|[^\w\s\x00-\x7f]){0,8}(?:\s|$))"
_LAYOUT = re.compile(
    "|".join(
        (
            "[\"'`]",
            rf"(?<=[^\s(\[{{])[.?!;:]{_END}",
            # French has a space before these; a shell has one after "!".
            r"(?<=\w\s)[;:?](?=\s|$)|(?<=\w\s)!(?=[^\S\n]{0,8}(?:\n|$))",
            # "(1,)" is not "(1)".
            r",(?![)\]}])",
            r"(?<=[\"'`]):",
            # In Chinese, for instance, without white space.
            r"(?<=[^\W\x00-\x7f])[.;:?!()]|[.;:?!()](?=[^\W\x00-\x7f])",
            # A hyphen, or a dash; not "-rf", nor "--".
            r"(?<=\w)-(?=\w)|(?<!\S)-(?=\s)",
            # An item of a list.
            r"(?:(?<![^\n])|(?<=\s\s))\*(?=\s)",
        )
    )
)
_SIGN = r"[!-/:-@\[-`{-~]"
_PIECE = re.compile(rf"({TOKEN.pattern})|(?={_SIGN})(?:{_LAYOUT.pattern}|({_SIGN}))")
# "**Yes**", "## Returns", "1) Returns": each may stand for the other.
_EMPHASIS = re.compile(
    r"(?<![\w*])(\*{1,3})(?=[\w\"'(])([^*\n]{0,300}?)(?<=[\w.,;:?!\"'%])\1(?![\w*])"
)
# But "# rm x" is a comment. And "---", a line across the page.
_HEADING = re.compile(r"^(?:#{2,6}|#(?=\s+[^\W_a-z]))(?=\s)", re.MULTILINE)
_RULER = re.compile(r"^[ \t]{0,3}([-*_])\1{2,9}(?=[ \t]{0,3}$)", re.MULTILINE)
_NUMBERED = re.compile(r"^(\s{0,8}\d{1,3})\)(?=\s)", re.MULTILINE)
# "Within 30 days (of delivery)"; not "(a - b) * c", "(a or b) and c", "f(x)".
_ASIDE = re.compile(
    rf"(?<![^\s\"'{_DROPPED}])(?<![-*/]\s)\((?=\w)(?![^()]{{0,300}}\b(?i:and|or|not)\b)"
    rf"((?:[\w,.;:\"'%]|\s(?!-\s)|(?<=\w)-(?=\w)){{0,300}})(?<![,;:])\)"
    rf"(?!\s?[-*/]|[^\s.,;:?!\"'{_DROPPED}])"
)
# Prose has these, too: "e.g.", "and/or", "(see below)".
_OF_PROSE = frozenset(".,;:?/()")


@dataclass(frozen=True, slots=True)
class Pieces:
    """A text without what only sets it apart.

    Attributes:
        words: Its words and numbers, and the signs that `words.py` takes for words, in lower case.
        signs: Its other signs, each after the number of words before it.
    """

    words: tuple[str, ...]
    signs: tuple[tuple[int, str], ...]

    @property
    def of_code(self) -> tuple[str, ...]:
        """The other signs that prose has not."""
        return tuple(sign for _, sign in self.signs if sign not in _OF_PROSE)


def find_pieces(text: str) -> Pieces:
    """Return the words and signs of a text."""
    words: list[str] = []
    signs: list[tuple[int, str]] = []
    for word, sign in _PIECE.findall(_drop_layout(normalise(text)).casefold()):
        if word:
            words.append(word.strip())
        elif sign:
            signs.append((len(words), sign))
    if not words:
        # "..." is not "???".
        signs = [(0, "".join(normalise(text).split()))]
    return Pieces(tuple(words), tuple(signs))


def _drop_layout(text: str) -> str:
    text = _RULER.sub(_DROPPED, text)
    if "*" in text:
        text = _EMPHASIS.sub(rf"{_DROPPED}\2{_DROPPED}", text)
    if "#" in text:
        text = _HEADING.sub(_DROPPED, text)
    if ")" in text:
        text = _NUMBERED.sub(rf"\1{_DROPPED}", text)
        text = _ASIDE.sub(rf"{_DROPPED}\1{_DROPPED}", text)
    return text
