r"""Decodes disguised text: percent-encoding, JSON escapes, character references, Unicode.

    ana%2540example.org  ->  ana%40example.org  ->  ana@example.org

One call of `unmask` removes one layer and tracks which bytes each decoded byte came from, so that
a secret found in a decoded layer is replaced in the text as sent, by whole escapes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from evenkeel.privacy.cpu_budget import CpuBudget

# RE2 without anchors, to search an encoded request. Only what can occur inside a secret: a `\n`
# before one, or a curly quote in prose, does not trigger a search.
DISGUISED = (
    r"%[0-9A-Fa-f]{2}"
    r"|\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|/)"
    r"|&(?:#[0-9xX]|commat;|quot;|apos;|[lg]t;)"
    r"|(?:\xc2\xa0|\xe2\x80[\x80-\x93\xaf])[0-9]"
    r"|(?:\xc2\xad|\xe2\x80[\x8b-\x8f])[0-9A-Za-z@.]"
    r"|\xef\xbc[\x90-\x99\xa0]"
)
_ESCAPE = re.compile(
    rb"%[0-9A-Fa-f]{2}"
    rb"|\\u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}"
    rb"|\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[\"'/\\bfnrt])"
    rb"|&(?:#(?:[0-9]{1,7}|[xX][0-9A-Fa-f]{1,6})|amp|quot|apos|lt|gt|nbsp|commat);"
    rb"|\xc2[\xa0\xad]"
    rb"|\xe2(?:\x80[\x80-\x93\xaf]|\x81[\x9f\xa0]|\x88\x92)"
    rb"|\xe3\x80\x80|\xef(?:\xbb\xbf|\xb9[\xa3\xab]|\xbc[\x81-\xbf]|\xbd[\x80-\x9e])"
)
_SHORT = {
    b"\\b": b"\b", b"\\f": b"\f", b"\\n": b"\n", b"\\r": b"\r", b"\\t": b"\t",
    b"&amp;": b"&", b"&quot;": b'"', b"&apos;": b"'", b"&lt;": b"<", b"&gt;": b">",
    b"&nbsp;": b" ", b"&commat;": b"@",
}  # fmt: skip
_HYPHENS = frozenset("\u2010\u2011\u2012\u2013\u2212\ufe63")
# Soft hyphen, zero-width space and joiners, directions, word joiner, byte order mark.
_INVISIBLE = frozenset("\xad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff")
_SPACES = frozenset("\xa0\u202f\u205f\u3000") | {chr(code) for code in range(0x2000, 0x200B)}
_MAX_LAYERS = 6
# A form body or query, in which + means a space.
_FORM = re.compile(rb"(?:\A|[?&\s\"'])[A-Za-z0-9_.\[\]-]{1,64}=[^&\s]{0,256}\+")
_ESCAPES_PER_UNIT = 8


@dataclass(frozen=True, slots=True)
class Unmasked:
    """A text with one layer of disguise removed.

    Attributes:
        text: The decoded text.
        before: (start, end) of each escape in the encoded text.
        after: (start, end) of what each decodes to.
    """

    text: bytes
    before: Sequence[tuple[int, int]]
    after: Sequence[tuple[int, int]]

    def widen(self, start: int, end: int) -> tuple[int, int]:
        """Return a span of the encoded text, widened to whole escapes."""
        index = bisect_right(self.before, start, key=_first) - 1
        if index >= 0 and start < self.before[index][1]:
            start = self.before[index][0]
        index = bisect_right(self.before, end - 1, key=_first) - 1
        if index >= 0 and end < self.before[index][1]:
            end = self.before[index][1]
        return start, end

    def locate(self, start: int, end: int) -> tuple[int, int]:
        """Return the position in the encoded text of a span of the decoded text."""
        return self._above(start), self._above(end - 1, is_last=True)

    def _above(self, offset: int, *, is_last: bool = False) -> int:
        """Return where a decoded byte starts in the encoded text, or its end if it is the last."""
        index = bisect_right(self.after, offset, key=_first) - 1
        if index < 0:
            return offset + is_last
        first, last = self.after[index]
        if first <= offset < last:
            return self.before[index][is_last]
        return self.before[index][1] + offset - last + is_last


def unmask(text: bytes, budget: CpuBudget) -> Unmasked | None:
    """Return a text with its outermost layer of disguise removed; None if it has none.

    Raises:
        OverBudgetError: If it takes too long.
    """
    if text.isascii() and not (b"%" in text or b"\\" in text or b"&" in text):
        return None
    budget.spend(len(text) >> 8)
    pieces: list[bytes] = []
    before: list[tuple[int, int]] = []
    after: list[tuple[int, int]] = []
    position = length = 0
    for match in _ESCAPE.finditer(text):
        start, end = match.span()
        meaning = _meaning(match[0])
        pieces += (text[position:start], meaning)
        length += start - position
        before.append((start, end))
        after.append((length, length + len(meaning)))
        length += len(meaning)
        position = end
        if not len(before) % _ESCAPES_PER_UNIT:
            budget.spend()
    if not before:
        return None
    pieces.append(text[position:])
    return Unmasked(b"".join(pieces), before, after)


class TextView(NamedTuple):
    """A text with some layers of disguise removed.

    Attributes:
        text: The decoded text.
        above: The layers removed, outermost first.
        below: The next layer, if any.
    """

    text: bytes
    above: tuple[Unmasked, ...]
    below: Unmasked | None

    def locate(self, start: int, end: int) -> tuple[int, int]:
        """Return a span's position in the text as sent, widened to whole escapes."""
        if self.below is not None:
            start, end = self.below.widen(start, end)
        for unmasked in reversed(self.above):
            start, end = unmasked.locate(start, end)
        return start, end


def views(text: bytes, budget: CpuBudget) -> Iterator[TextView]:
    """Yield the text itself and each decoded layer; forms both with and without spaces for `+`.

    Raises:
        OverBudgetError: If it takes too long.
    """
    yield from _views(text, (), budget, is_form=False)


def _views(
    text: bytes, above: tuple[Unmasked, ...], budget: CpuBudget, *, is_form: bool
) -> Iterator[TextView]:
    below = unmask(text, budget) if len(above) < _MAX_LAYERS else None
    yield TextView(text, above, below)
    if below is not None:
        yield from _views(below.text, (*above, below), budget, is_form=is_form)
    if not is_form and b"=" in text and b"+" in text and _FORM.search(text):
        # Byte for byte, so matches have the same position.
        yield from _views(text.replace(b"+", b" "), above, budget, is_form=True)


@lru_cache(4096)
def _meaning(escape: bytes) -> bytes:
    if escape in _SHORT:
        return _SHORT[escape]
    if escape[:1] == b"%":
        return bytes([int(escape[1:], 16)])
    if escape[:1] == b"\\":
        if escape[1:2] not in b"ux":
            return escape[1:]
        text = "".join(chr(int(part[1:], 16)) for part in escape.decode().split("\\")[1:])
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    if escape[:1] == b"&":
        digits = escape[2:-1].decode()
        code = int(digits[1:], 16) if digits[0] in "xX" else int(digits)
        return chr(code).encode("utf-8", "replace") if code <= 0x10FFFF else b"?"
    character = escape.decode("utf-8", "replace")
    if character in _SPACES:
        return b" "
    if character in _HYPHENS:
        return b"-"
    if character in _INVISIBLE:
        return b""
    if character == "\ufe6b":
        return b"@"
    # Full-width forms are in ASCII order.
    return bytes([ord(character) - 0xFEE0])


def _first(span: tuple[int, int]) -> int:
    return span[0]
