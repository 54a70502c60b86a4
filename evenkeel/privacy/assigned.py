"""Finds where the value of `password = …` ends, and tells a password from a placeholder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from evenkeel.privacy.account_numbers import DIGITS, WORD
from evenkeel.privacy.cpu_budget import CpuBudget

NOT_A_SECRET = frozenset(
    b"none null true false undefined required optional missing invalid changeme redacted hidden "
    b"empty string password secret".split()
)
MIN_BYTES = 5
CODE = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_]|\[|\$|->|::)")
# `secret=str(key)`; with a longer name, it may be a password with a bracket.
SHORT_CALL = re.compile(rb"[A-Za-z_]{1,4}\([A-Za-z_][\w.]*")
# Behind these, an expression is more frequent than a password without quotes. `?=` is Make's.
CODE_OPERATOR = re.compile(rb"(?:->|<-|\?:|(?:[+.]|\|\|?|\?\?)=|::=\s)\s{0,3}\Z")
ARROW = re.compile(rb"->\s{0,3}\Z")
# `value8`, `sha256Sum`, `SHA256_LEN`; with a digit within a word or behind `Word`, a password.
_NAME = (
    r"(?:[A-Za-z_]++(?![0-9])|[a-z_][A-Za-z_]*+(?:[0-9]{1,5}+(?![a-z0-9])[A-Za-z_]*+){1,2}+"
    r"|[A-Z_]++[0-9]{1,5}+(?:_[A-Z0-9_]*+)?+)"
)
_NUMBER = r"(?:0[xX][0-9A-Fa-f]++|[0-9]++(?:\.[0-9]++)?+)[uUlLfF]{0,3}+"
# A call, or names and numbers between operators: `length-1`, `size!=32`, `bytes+off`. Not a single
# number, except behind `+=` and its like.
EXPRESSION = re.compile(
    rf"{_NAME}[(\[=](?s:.*)|[*!~+-]{{0,2}}+(?:{_NAME}|0[xX][0-9A-Fa-f]++|(?:(?<=[+|.]=)|(?<=[+|.]=\s)){_NUMBER})"
    rf"(?:(?:[-+*/%^&|~<>?:.,;()\[\]{{}}\"'=]|!=)++(?:{_NAME}|{_NUMBER})?+)*+".encode()
)
COMPARISON = re.compile(rb"[!=]==?\s{0,3}\Z")
# `typeof secret === "function"`
TYPES = frozenset(
    b"bytes number boolean object function symbol bigint unknown array integer default".split()
)
# A code block and its language: ```python
CODE_BLOCK = re.compile(rb"[A-Za-z]{0,20}(?:[-+#][a-z+#]{0,20})?[0-9]?[ \t]*+\r?\n(?!\s*```)")
LINE_OF_A_BLOCK = re.compile(rb"\s*+([\w~+/!@#$%^&*-]++=*+)\s*+```")
PLACEHOLDER = re.compile(rb"\$[A-Za-z_({]|[#%]\{|%[a-z]|[.~]{0,2}/")
# Between quotes or tags, a symbol more often begins a password: a placeholder is the whole value.
ENCLOSED_PLACEHOLDER = re.compile(
    rb"\$[A-Za-z_]\w*|[$#%]?\{{1,2}[^{}]*\}{1,2}|\$\([^()]*\)|<[^<>]*>|%(?:\(\w+\))?[a-z]|[.~]{0,2}/[\w./-]*"
)
# Base64 keys may start with a slash like paths, but run longer without a dot or a dash.
BASE64_KEY = re.compile(rb"[A-Za-z0-9+/]{30,}={0,2}")
WEAK_NAME = re.compile(rb"(?i)(?:\A|[^a-z_-])token[^a-z0-9]{1,8}\Z")
MIN_WEAK_BYTES = 12
PLAIN_WORDS = re.compile(rb"[A-Za-z]+(?:-[a-z]+|[ ,;&|(){}]+[A-Za-z_.]*)*")
# Separators and quotes belong to a value without quotes unless something else begins after them:
# white space, the next field, a character reference. Escapes are left to the decoded layer.
BARE_VALUE = re.compile(
    rb"""[^\s"'`\\,;&<>(){}|](?:[^\s"'`\\,;&<>(){}|]++"""
    rb"""|(?:[,;|(){}]|&(?!(?:#\w{1,8}|amp|quot|apos|[lg]t|nbsp|commat);))++"""
    rb"""(?![\s"'`<>\\\]&]|\Z|[A-Za-z_][\w .\[\]%$-]{0,40}(?:=(?!=)|:))"""
    rb"""|["'`](?=[A-Za-z0-9])"""
    rb"""|\\(?![ux"'/\\bfnrt\s]|\Z))*+"""
)
OPENING_TAG = re.compile(rb"<([A-Za-z_][\w.:-]*+)(?:\s[^<>]*+)?>")
LINE_END = re.compile(rb"[\r\n]")
QUOTES = (b'"', b"'", b"`")
BACKSLASH = ord("\\")
# How a text goes on if the quote after a name ended a string: "password=" + password.
SEPARATORS = b",;:.+&|?)}]"
AFTER_A_STRING = b" \t" + SEPARATORS
AFTER_EMPTY = AFTER_A_STRING + b"""<>/\\"'`"""
# `password=""#comment`
COMMENT = re.compile(rb"""#[^"'`\r\n]*+(?:[\r\n]|\Z)""")
# The wiki's "secret: ''hard work''", "the secret is '''hard work'''"
BEFORE_EMPHASIS = re.compile(rb"[A-Za-z](?::|\sis:?)\s{1,3}\Z")
RUNS = {quote: re.compile(quote + b"++") for quote in QUOTES}
# Too long to be such an end, unless white space or a bracket interrupts it.
PLAIN_RUN = re.compile(rb"""[^\s"'\\,;&<>(){}|]{5}""")
# The part of a line in which the start of that string, or a tag, is searched.
NUM_BYTES_BEFORE = 1024
# In the rule's pattern, and a backslash before the quote behind the name.
MAX_SEPARATOR_BYTES = 11
MAX_OPERATOR_BYTES = 6
BYTES_PER_UNIT = 256


def find_assigned(
    text: bytes, start: int, end: int, budget: CpuBudget
) -> Iterator[tuple[int, int]]:
    """Yield the value that starts at `start` if it is a literal: quoted, or not a plain word.

    It ends at its closing quote or tag; if it has none, before white space or the next field.
    """
    # Weak names are frequent: most are told by the white space in or soon after their value.
    is_weak = WEAK_NAME.search(text, max(0, start - 16), start) is not None
    if is_weak and b" " in text[start : start + MIN_WEAK_BYTES - 1]:
        return
    is_direct = is_enclosed = True
    quote = b""
    if text[start - 1 : start] in QUOTES:
        start, quote = _opening_quote(text, start)
    depth = _num_backslashes(text, 0, start - len(quote)) if quote else 0
    behind_name = start - len(quote) - depth
    if (element := _find_element(text, behind_name, budget)) is not None:
        start, end = behind_name, max(end, element.end)
        is_direct = not element.has_attributes  # <label for="password">Your password</label>
    elif quote:
        if _is_after_a_string(text, start, depth, quote):
            return
        if len(quote) > 2 and quote[:1] == b"`" and (block := CODE_BLOCK.match(text, start)):
            yield from _find_in_block(text, block.end(), MIN_WEAK_BYTES if is_weak else MIN_BYTES)
            return
        end = max(end, _quoted_end(text, start, depth, quote))
        if _is_code_in_quotes(text, start, end, behind_name, quote):
            return
        if quote[:2] == b"''":
            first = max(0, behind_name - MAX_SEPARATOR_BYTES)
            is_direct = not BEFORE_EMPHASIS.search(text, first, behind_name)
    else:
        is_enclosed, is_direct = False, text[start - 1 : start] == b"="
        bare = BARE_VALUE.match(text, start)
        end = max(end, bare.end() if bare else end)
        while end > start and text[end - 1] in b".:],;&|(){}":
            end -= 1
        if SHORT_CALL.fullmatch(text, start, end) and text[end : end + 1] in (b")", b","):
            return
        is_code = CODE_OPERATOR.search(text, max(0, start - MAX_OPERATOR_BYTES), start)
        if is_code and EXPRESSION.fullmatch(text, start, end):
            return
    budget.spend((end - start) // BYTES_PER_UNIT)
    value = text[start:end]
    if (
        len(value) >= MIN_BYTES
        and value.lower() not in NOT_A_SECRET
        and not _is_placeholder(value, is_enclosed)
        and any(byte in WORD and byte != 95 for byte in value)
        and (not is_weak or (len(value) >= MIN_WEAK_BYTES and _may_be_token(value)))
        and (is_direct or not PLAIN_WORDS.fullmatch(value))
    ):
        yield start, end


def _is_code_in_quotes(text: bytes, start: int, end: int, behind_name: int, quote: bytes) -> bool:
    """Return whether the value is a type in a comparison, or the new name in `old` -> `new`."""
    first = max(0, behind_name - MAX_OPERATOR_BYTES)
    if text[start:end].lower() in TYPES:
        name = _before_separator(text, behind_name, 1)
        is_type = quote[:2] == b"``" and name.endswith(b"`")  # `password`: ``bytes``
        return is_type or COMPARISON.search(text, first, behind_name) is not None
    if quote[:1] != b"`" or not ARROW.search(text, first, behind_name):
        return False
    has_digit = any(byte in DIGITS for byte in text[start:end])
    return not has_digit and EXPRESSION.fullmatch(text, start, end) is not None


def _find_in_block(text: bytes, start: int, min_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the only line of a code block if it looks like a secret."""
    line = LINE_OF_A_BLOCK.match(text, start)
    if (
        line
        and len(line[1]) >= min_bytes
        and any(byte in DIGITS for byte in line[1])
        and not EXPRESSION.fullmatch(line[1])
        and not _is_placeholder(line[1], is_enclosed=False)
    ):
        yield line.span(1)


def _is_placeholder(value: bytes, is_enclosed: bool) -> bool:
    if is_enclosed:
        found = ENCLOSED_PLACEHOLDER.fullmatch(value)
    else:
        found = PLACEHOLDER.match(value) or CODE.match(value)
    return bool(found) and not BASE64_KEY.fullmatch(value)


def _may_be_token(value: bytes) -> bool:
    return not value.isdigit() and b" " not in value and any(byte in DIGITS for byte in value)


class _Element(NamedTuple):
    end: int
    has_attributes: bool


def _find_element(text: bytes, start: int, budget: CpuBudget) -> _Element | None:
    """Return the XML element whose text starts at `start`; it ends in the same line."""
    if text[start - 1 : start] != b">":
        return None
    opening = text.rfind(b"<", max(0, start - NUM_BYTES_BEFORE), start)
    tag = OPENING_TAG.fullmatch(text, opening, start) if opening >= 0 else None
    if tag is None:
        return None
    # Up to the next such tag: a text full of <input name="password"> is read once, not once a tag.
    limit = text.find(b"<" + tag[1], start)
    limit = len(text) if limit < 0 else limit
    end = text.find(b"</" + tag[1] + b">", start, limit)
    budget.spend(((limit if end < 0 else end) - start) // BYTES_PER_UNIT)
    if end < 0 or LINE_END.search(text, start, end):
        return None
    return _Element(end, b"=" in tag[0])


def _opening_quote(text: bytes, start: int) -> tuple[int, bytes]:
    """Return where the value behind the quotes before `start` begins, and the quote that closes it.

    CSV and SQL double the quotes within a value; Python and Markdown have strings in several. If
    the next quotes are not as many, a name has as many as its value, and backticks with a separator
    behind them enclose nothing.
    """
    mark = text[start - 1 : start]
    first = start - 1
    while text[first - 1 : first] == mark:
        first -= 1
    while text[start : start + 1] == mark:
        start += 1
    number = start - first
    closing = RUNS[mark].search(text, start) if number > 1 else None
    if number > 1 and (closing is None or len(closing[0]) != number):
        if mark != b"`":
            depth = _num_backslashes(text, 0, first)
            name = _before_separator(text, first - depth, number)
            number = min(number, len(name) - len(name.rstrip(mark)) or number)
        elif text[start : start + 1] in SEPARATORS and not PLAIN_RUN.match(text, start):
            number = 1
    return first + number, mark * number


def _quoted_end(text: bytes, start: int, depth: int, quote: bytes) -> int:
    """Return where the value after an opening quote ends: at the quote that closes it.

    A quote in n layers of JSON has 2^n - 1 backslashes (`depth`), so one that is part of the value
    has another number. An unclosed value, as in a text that was cut, ends with its line.
    """
    for position, num_backslashes in _quotes(text, quote, start, len(text)):
        # With fewer backslashes, it ends the string around the value.
        if num_backslashes % (2 * depth + 2) == depth or num_backslashes < depth:
            end = position - min(num_backslashes, depth)
            newline = LINE_END.search(text, start, end)
            if newline is None:
                return end
            break
    else:
        newline = LINE_END.search(text, start)
    line_end = newline.start() if newline else len(text)
    # Single quotes may stand in a string that ends before its line.
    around = _quotes(text, b'"', start, line_end) if quote[:1] != b'"' else iter(())
    return next((position - number for position, number in around), line_end)


def _is_after_a_string(text: bytes, start: int, depth: int, quote: bytes) -> bool:
    """Return whether the quote before `start` ends a string that began before the name.

    If in doubt, as in a line whose start is out of sight, the quote begins a value. Several quotes
    with a separator behind them are an empty string.
    """
    is_single = len(quote) == 1
    if start == len(text):
        return False
    if text[start] not in (AFTER_A_STRING if is_single else AFTER_EMPTY) and (
        is_single or not COMMENT.match(text, start)
    ):
        return False
    if is_single and PLAIN_RUN.match(text, start):
        return False
    if _is_name_quoted(text, start, depth, quote):
        return False
    if not is_single:
        return quote[:1] != b"`"  # Markdown: code may stand between several.
    first = max(0, start - 1 - NUM_BYTES_BEFORE)
    newline = text.rfind(b"\n", first, start - 1)
    if newline < 0 < first:
        return False
    before = _quotes(text, quote, max(first, newline), start - 1)
    return sum(num_backslashes == depth for _, num_backslashes in before) % 2 == 1


def _is_name_quoted(text: bytes, start: int, depth: int, quote: bytes) -> bool:
    """Return whether the name has the same quotes as the value at `start`: {"password": "…"}."""
    width = depth + len(quote)
    before = _before_separator(text, start - width, width)
    marks = text[start - width : start]
    return before.endswith(marks) and before[-1 - width : -width] != b"\\"


def _before_separator(text: bytes, end: int, num_bytes: int) -> bytes:
    """Return so many bytes before the separator that ends at `end`, the name's quotes; or more."""
    first = max(0, end - num_bytes - MAX_SEPARATOR_BYTES)
    return text[first:end].rstrip().rstrip(b":=><-!?+|.").rstrip()


def _quotes(text: bytes, quote: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield each quote with the number of backslashes before it, but no apostrophe in a word."""
    position = text.find(quote, start, end)
    while position >= 0:
        behind = position + len(quote)
        around = text[position - 1 : position] + text[behind : behind + 1]
        if quote != b"'" or len(around) < 2 or not around.isalnum():
            yield position, _num_backslashes(text, start, position)
        position = text.find(quote, behind, end)


def _num_backslashes(text: bytes, start: int, end: int) -> int:
    position = end
    while position > start and text[position - 1] == BACKSLASH:
        position -= 1
    return end - position
