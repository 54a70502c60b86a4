"""Tells a card number from an order number: what a pattern alone cannot decide.

A check gets a text and the part of it that a rule's pattern found, and yields the parts that are
the secret: none, all of it, or some (a card number with its security code behind it). Texts are
UTF-8 bytes, parts are (start, end) offsets.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping

Check = Callable[[bytes, int, int], Iterator[tuple[int, int]]]

WORD = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
DIGITS = frozenset(b"0123456789")
IBAN_START = re.compile(rb"\b[A-Z]{2}(?=[0-9]{2})")
UUID = re.compile(rb"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
CARD_MIN_DIGITS = 13
CARD_MAX_DIGITS = 19
# Shorter groups are lists of numbers, not card numbers as people write them.
CARD_MIN_GROUP = 3

# Issuer ranges as (first, last, lengths), compared on as many leading digits as `first` has; from
# the schemes' public numbering (ISO/IEC 7812).
CARD_RANGES: tuple[tuple[str, str, frozenset[int]], ...] = (
    ("4", "4", frozenset({13, 16, 19})),  # Visa
    ("51", "55", frozenset({16})),  # Mastercard
    ("2221", "2720", frozenset({16})),
    ("34", "34", frozenset({15})),  # American Express
    ("37", "37", frozenset({15})),
    ("6011", "6011", frozenset({16, 19})),  # Discover
    ("644", "649", frozenset({16, 19})),
    ("65", "65", frozenset({16, 19})),
    ("62", "62", frozenset({16, 17, 18, 19})),  # UnionPay
    ("300", "305", frozenset({14, 16, 19})),  # Diners Club
    ("3095", "3095", frozenset({14, 16, 19})),
    ("36", "36", frozenset({14, 16, 19})),
    ("38", "39", frozenset({14, 16, 19})),
    ("3528", "3589", frozenset({16, 17, 18, 19})),  # JCB
    ("2200", "2204", frozenset({16, 17, 18, 19})),  # Mir
    ("5018", "5018", frozenset({13, 14, 15, 16, 17, 18, 19})),  # Maestro
    ("5020", "5020", frozenset({13, 14, 15, 16, 17, 18, 19})),
    ("5038", "5038", frozenset({13, 14, 15, 16, 17, 18, 19})),
    ("5893", "5893", frozenset({13, 14, 15, 16, 17, 18, 19})),
    ("6304", "6304", frozenset({13, 14, 15, 16, 17, 18, 19})),
    ("6759", "6763", frozenset({13, 14, 15, 16, 17, 18, 19})),
    ("60", "60", frozenset({16})),  # RuPay
)

# Length of an IBAN by country, from the SWIFT registry.
IBAN_LENGTHS: Mapping[str, int] = {
    country: length
    for length, countries in {
        15: "NO", 16: "BE", 18: "DK FI FO GL NL SD", 19: "MK SI",
        20: "AT BA EE KZ LT LU MN XK", 21: "CH HR LI LV", 22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM SO TL", 24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST", 26: "IS TR", 27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB NI PL SV",
        29: "BR EG PS QA UA", 30: "JO KW MU", 31: "MT SC", 33: "RU",
    }.items()
    for country in countries.split()
}  # fmt: skip


def passes_luhn(digits: bytes) -> bool:
    """Return whether ASCII digits satisfy the Luhn checksum (ISO/IEC 7812-1, annex B)."""
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = digit - 48
        if index % 2:
            value = value * 2 - 9 if value > 4 else value * 2
        total += value
    return total % 10 == 0


def is_card(digits: bytes) -> bool:
    """Return whether ASCII digits are a card number: issuer range, its length, and Luhn."""
    text = digits.decode("ascii")
    return any(
        len(text) in lengths and first <= text[: len(first)] <= last
        for first, last, lengths in CARD_RANGES
    ) and passes_luhn(digits)


def is_iban(compact: bytes) -> bool:
    """Return whether an IBAN without spaces has its country's length and remainder 1 by 97."""
    text = compact.decode("ascii").upper()
    if IBAN_LENGTHS.get(text[:2]) != len(text):
        return False
    rearranged = text[4:] + text[:4]
    return int("".join(str(int(character, 36)) for character in rearranged)) % 97 == 1


def find_cards(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the card numbers in a run of digit groups, the longest at each place."""
    # `A0 4111 1111 1111 1111 2nd try`: the first or last digits may be of a word of their own.
    if start and text[start - 1] in WORD:
        start = text.find(b" ", start, end) + 1 or end
    if end < len(text) and text[end] in WORD:
        end = max(text.rfind(b" ", start, end), start)
    if _continues_number(text, start, end) or _is_in_uuid(text, start, end):
        return
    groups = [
        (start + match.start(), start + match.end())
        for match in re.finditer(rb"[0-9]+", text[start:end])
    ]
    index = 0
    while index < len(groups):
        last = _longest_card(text, groups, index)
        if last is None:
            index += 1
        else:
            yield groups[index][0], groups[last][1]
            index = last + 1


def _longest_card(text: bytes, groups: list[tuple[int, int]], first: int) -> int | None:
    digits = b""
    best: int | None = None
    for last in range(first, len(groups)):
        begin, end = groups[last]
        if end - begin > CARD_MAX_DIGITS or (last > first and end - begin < CARD_MIN_GROUP):
            break
        digits += text[begin:end]
        if len(digits) > CARD_MAX_DIGITS:
            break
        is_grouped = last == first or groups[first][1] - groups[first][0] >= CARD_MIN_GROUP
        if len(digits) >= CARD_MIN_DIGITS and is_grouped and is_card(digits):
            best = last
    return best


def _continues_number(text: bytes, start: int, end: int) -> bool:
    """Whether the digits are part of a word, or of a decimal fraction."""
    if start and text[start - 1] in WORD:
        return True
    if end < len(text) and text[end] in WORD:
        return True
    return start > 1 and text[start - 1] in b".," and text[start - 2] in DIGITS


def _is_in_uuid(text: bytes, start: int, end: int) -> bool:
    # A run may begin or end inside a UUID whose other groups have letters.
    begin, stop = max(0, start - 36), min(len(text), end + 36)
    return any(
        match.start() < end and start < match.end() for match in UUID.finditer(text, begin, stop)
    )


def find_iban(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the IBANs within a run, each as long as its country's are."""
    for match in IBAN_START.finditer(text, start, end):
        begin = match.start()
        length = IBAN_LENGTHS.get(match.group().decode("ascii"), 0)
        if begin < start or not length:
            continue
        stop, num_characters = begin, 0
        while stop < end and num_characters < length:
            num_characters += text[stop] not in b" -"
            stop += 1
        follows_word = stop < len(text) and text[stop] in WORD
        if not follows_word and is_iban(text[begin:stop].translate(None, b" -")):
            yield begin, stop
            start = stop


def find_email(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the address without what a sentence or a quotation puts around it."""
    while start < end and text[start] in b".'`*|{=/?&!$%^~#-":
        start += 1
    local, _, domain = text[start:end].rpartition(b"@")
    # `user=ana@…` in a query string or a log line: the name is not part of the address.
    start += max(local.rfind(b"="), local.rfind(b"'"), local.rfind(b"`"), local.rfind(b"|")) + 1
    top = domain.rpartition(b".")[2].lower()
    if (
        text[start] != AT
        and top not in FILE_ENDINGS
        and not AUTHORITY.search(text[max(0, start - 80) : start])
    ):
        yield start, end


AT = ord("@")
# `ssh://ana@host.example`: a login at a host, whose password `url_credentials` takes.
AUTHORITY = re.compile(rb"://[^/\s]*$")
# `icon@2x.png` is a file, not a mailbox.
FILE_ENDINGS = frozenset(
    b"png jpg jpeg gif svg webp css js ts json html htm txt md yaml yml toml gz zip pdf".split()
)


def find_jwt(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a token whose first part is JSON with an algorithm, as RFC 7515 demands."""
    header = text[start:end].split(b".")[0]
    try:
        fields = json.loads(base64.urlsafe_b64decode(header + b"=" * (-len(header) % 4)))
    except (ValueError, RecursionError):
        return
    if isinstance(fields, dict) and "alg" in fields:
        yield start, end


def find_key(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a vendor's key unless it is a word with dashes, such as `sk-learn-based-pipeline`."""
    body = text[start:end]
    if any(byte in DIGITS for byte in body[3:]) or (body[3:] != body[3:].lower()):
        yield start, end


def find_opaque(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield what stands behind `Bearer`, `Basic` or `token` if it is no word."""
    value = text[start:end].rstrip(b".")
    if text[max(0, start - 12) : start].lower().rstrip(b" \t\"'").endswith(b"basic"):
        try:
            is_secret = b":" in base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return
    else:
        has_digit = any(byte in DIGITS for byte in value)
        has_letter = any(65 <= byte | 32 <= 122 and byte > 64 for byte in value)
        is_secret = has_letter and ((has_digit and len(value) >= 12) or len(value) >= 32)
    if is_secret:
        yield start, start + len(value)


NOT_A_SECRET = frozenset(
    b"none null true false undefined required optional missing invalid changeme redacted hidden "
    b"empty string password secret".split()
)
CODE = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_]|\[|\$|->|::)|\$|%|/")


def find_assigned(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the value of `password = …` if it is a literal: quoted, or with a digit or symbol."""
    is_quoted = text[start - 1] in b"\"'"
    while end > start and text[end - 1] in b".:]" and not is_quoted:
        end -= 1
    value = text[start:end]
    if len(value) < 5 or value.lower() in NOT_A_SECRET or CODE.match(value):
        return
    if not any(byte in WORD and byte != 95 for byte in value):
        return
    is_direct = text[start - 1] in b"=\"'"
    if is_direct or not re.fullmatch(rb"[A-Za-z]+(?:-[a-z]+)*", value):
        yield start, end


def find_ip(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield an IPv4 or IPv6 address that is not part of a longer word or version number."""
    around = text[max(0, start - 1) : start] + text[end : end + 1]
    if any(byte in WORD or byte in b":." for byte in around.rstrip(b".:")):
        return
    try:
        ipaddress.ip_address(text[start:end].decode("ascii"))
    except ValueError:
        return
    yield start, end


CHECKS: Mapping[str, Check] = {
    "assigned": find_assigned,
    "card": find_cards,
    "email": find_email,
    "iban": find_iban,
    "ip": find_ip,
    "jwt": find_jwt,
    "key": find_key,
    "opaque": find_opaque,
}
