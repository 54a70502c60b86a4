"""Recognises cards, IBANs and social security numbers by issuer, length and checksum.

A check gets a text, the part that a rule's pattern matched, and the budget; it yields the parts
that are the secret. Texts are UTF-8 bytes, parts are (start, end) offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from evenkeel.privacy.cpu_budget import CpuBudget

WORD = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
DIGITS = frozenset(b"0123456789")
SEPARATORS = b" .+-"
IBAN_START = re.compile(rb"\b[A-Za-z]{2}(?=[0-9]{2})")
UUID = re.compile(rb"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
CARD_MIN_DIGITS = 14
CARD_MAX_DIGITS = 19
# Shorter groups are lists of numbers, not card numbers.
CARD_MIN_GROUP = 3
CARD_MAX_GROUPS = 7
CARD_DOT_GROUP = 4
DOT = ord(".")
GROUP = re.compile(rb"[0-9]+")

# Issuer ranges as (first, last, lengths), compared on as many leading digits as `first` has; from
# the schemes' public numbering (ISO/IEC 7812).
CARD_RANGES: tuple[tuple[str, str, frozenset[int]], ...] = (
    ("4", "4", frozenset({16, 19})),  # Visa
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
    ("5018", "5018", frozenset({14, 15, 16, 17, 18, 19})),  # Maestro
    ("5020", "5020", frozenset({14, 15, 16, 17, 18, 19})),
    ("5038", "5038", frozenset({14, 15, 16, 17, 18, 19})),
    ("5893", "5893", frozenset({14, 15, 16, 17, 18, 19})),
    ("6304", "6304", frozenset({14, 15, 16, 17, 18, 19})),
    ("6759", "6763", frozenset({14, 15, 16, 17, 18, 19})),
    ("60", "60", frozenset({16})),  # RuPay
)

# Length of an IBAN by country, from the SWIFT registry.
IBAN_LENGTHS: Mapping[str, int] = {
    country: length
    for length, countries in {
        15: "NO", 16: "BE", 18: "DK FI FK FO GL NL SD", 19: "MK SI",
        20: "AT BA EE KZ LT LU MN XK", 21: "CH HR LI LV", 22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM SO TL", 24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST", 26: "IS TR", 27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
        29: "BR EG PS QA UA", 30: "JO KW MU YE", 31: "MT SC", 32: "LC", 33: "RU",
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


def find_cards(text: bytes, start: int, end: int, budget: CpuBudget) -> Iterator[tuple[int, int]]:
    """Yield the card numbers in a run of digit groups, the longest at each position."""
    # `A0 4111 1111 1111 1111 2nd try`: the first or last digits may be separate words.
    if start and text[start - 1] in WORD:
        start = text.find(b" ", start, end) + 1 or end
    if end < len(text) and text[end] in WORD:
        end = max(text.rfind(b" ", start, end), start)
    if _continues_number(text, start, end) or _is_in_uuid(text, start, end):
        return
    while start < end:
        budget.spend()
        groups = [m.span() for m in islice(GROUP.finditer(text, start, end), CARD_MAX_GROUPS)]
        if not groups:
            return
        last = _longest_card(text, groups)
        if last is not None:
            yield groups[0][0], groups[last][1]
        start = groups[last or 0][1]


def _longest_card(text: bytes, groups: list[tuple[int, int]]) -> int | None:
    """Return the index of the last group of the longest card that starts at the first."""
    first, first_end = groups[0]
    if text[first - 1 : first] in (b".", b",") and text[first - 2 : first - 1].isdigit():
        return None  # a fraction, or the middle of a version
    digits = b""
    best: int | None = None
    for last, (begin, end) in enumerate(groups):
        if end - begin > CARD_MAX_DIGITS or (last and end - begin < CARD_MIN_GROUP):
            break
        digits += text[begin:end]
        if len(digits) > CARD_MAX_DIGITS:
            break
        is_grouped = not last or first_end - first >= CARD_MIN_GROUP
        if len(digits) >= CARD_MIN_DIGITS and is_grouped and is_card(digits):
            separators = set(text[first:end]) - DIGITS
            # Dots also occur in versions and addresses: accept only cards in printed form.
            if DOT in separators and (len(separators) > 1 or first_end - first != CARD_DOT_GROUP):
                continue
            best = last
    return best


def _continues_number(text: bytes, start: int, end: int) -> bool:
    """Return whether the digits are part of a word or of a decimal fraction."""
    if start and text[start - 1] in WORD:
        return True
    if end < len(text) and text[end] in WORD:
        return True
    return start > 1 and text[start - 1] in b".," and text[start - 2] in DIGITS


def _is_in_uuid(text: bytes, start: int, end: int) -> bool:
    # A run may start or end inside a UUID whose other groups have letters.
    begin, stop = max(0, start - 36), min(len(text), end + 36)
    return any(
        match.start() < end and start < match.end() for match in UUID.finditer(text, begin, stop)
    )


def find_iban(text: bytes, start: int, end: int, budget: CpuBudget) -> Iterator[tuple[int, int]]:
    """Yield the IBANs within a run, each of its country's length."""
    for match in IBAN_START.finditer(text, start, end):
        budget.spend()
        begin = match.start()
        length = IBAN_LENGTHS.get(match.group().decode("ascii").upper(), 0)
        if begin < start or not length:
            continue
        # It may continue past the run, which ends after a fixed number of characters.
        stop, num_characters = begin, 0
        while stop < len(text) and num_characters < length:
            num_characters += text[stop] not in SEPARATORS
            stop += 1
        follows_word = stop < len(text) and text[stop] in WORD
        compact = text[begin:stop].translate(None, SEPARATORS)
        if not follows_word and compact.isalnum() and is_iban(compact):
            yield begin, stop
            start = stop


def find_social_security(
    text: bytes, start: int, end: int, budget: CpuBudget
) -> Iterator[tuple[int, int]]:
    """Yield a number that the Social Security Administration may have assigned (RM 10201.035)."""
    number = text[start:end]
    digits = number.translate(None, SEPARATORS)
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    if area in (b"000", b"666") or area >= b"900" or group == b"00" or serial == b"0000":
        return
    if JOINED_BEFORE.search(text, max(0, start - 2), start) or JOINED_BEHIND.match(text, end):
        return
    before = text[max(0, start - 48) : start]
    if NAMES_SSN.search(before) or (
        number[3:4] == number[6:7] == b"-" and not NAMES_OTHER.search(before)
    ):
        yield start, end


JOINED_BEFORE = re.compile(rb"[A-Za-z0-9_#](?![^0-9A-Za-z_#])|[A-Za-z0-9_][-./+:]\Z")
JOINED_BEHIND = re.compile(rb"[A-Za-z0-9_]|[-./+:][A-Za-z0-9_]")
NAMES_SSN = re.compile(rb"(?i)(?:\bssn|_ssn|social|soc\.? ?sec|itin|taxpayer)[^0-9]{0,40}\Z")
NAMES_OTHER = re.compile(
    rb"(?i)\b(?:order|part|item|article|invoice|case|ticket|tracking|parcel|serial|model|product"
    rb"|sku|batch|lot|build|version|rfc|section|figure|form)s?\b"
    rb"|(?:id|no|nr|number|code|key|ref|reference|account|acct|contract|policy|po|unit|type)s?"
    rb"[\]\"'.:=# ]{0,5}\Z"
)
