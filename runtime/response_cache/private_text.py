"""Tells which texts must not be cached: personal data, and questions about their asker."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Each is linear in the text's length, for it reads what callers send.
# What identifies a person or a payment, wherever it stands. Broad on purpose: a text taken for
# private by mistake costs a cache hit, the reverse a leak.
_PERSONAL = {
    "email": re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.\w"),
    "iban": re.compile(r"\b[A-Z]{2}\d{2}(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,3})?\b"),
    "phone": re.compile(r"(?<![\w.])(\+|00)\d(?:[\s()./-]?\d){6,14}(?!\w)"),
    "phone_local": re.compile(r"(?<![\w.])(\(\d{3}\)\s?|\d{3}[-. ])\d{3}[-. ]\d{4}(?!\w)"),
    "social_security": re.compile(r"\b\d{3}-\d{2}-\d{4}\b"),
    "ip_address": re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b"),
    "secret": re.compile(
        r"\b(?:sk|pk|ghp|xox[abp])[-_][\w-]{16,}|\bAKIA[0-9A-Z]{16}\b|\beyJ[\w-]{10,99}\.[\w-]{10,999}\."
        r"|\b(?:password|passwort|pin|token|api key)\s*(?:is|:|=)\s*\S+",
        re.IGNORECASE,
    ),
    "birth_date": re.compile(r"\b(?:born|birthday|date of birth|dob)\b", re.IGNORECASE),
    "own_name": re.compile(r"\b(?:[Mm]y name is|[Tt]his is|I am|I'm)\s+[A-Z]\w+\s+[A-Z]\w+"),
    "address": re.compile(
        r"\b\d{1,5}[a-z]?\s+(?:[A-Z]\w+\s+){1,3}(?:Street|St|Road|Rd|Avenue|Ave|Lane|Ln|Drive|Way)\b"
        r"|\b[A-ZÄÖÜ]\w+(?:straße|strasse|gasse|weg|platz)\s+\d{1,4}",
    ),
}
_CARD = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d.])")

# What a shop, a bank or a desk knows of one customer alone.
_OWN_THINGS = (
    "order orders parcel parcels package packages delivery shipment refund refunds return balance "
    "bill bills invoice invoices statement payment payments subscription booking bookings "
    "reservation appointment appointments ticket tickets claim points salary address data account "
    "number membership plan usage contract case history cart basket documents files email emails "
    "calendar meeting meetings schedule profile card"
)
_REFERENCE = re.compile(
    r"\b(?:order|parcel|package|invoice|booking|ticket|case|claim|customer|account|tracking|ref)"
    r"(?:\s+(?:number|no\.?|id|code))?\s*[:#]?\s*#?[A-Z]{0,4}-?\d{3,}\b",
    re.IGNORECASE,
)
# A question how something is done is about everybody, also where it says "my account".
_GENERAL = re.compile(
    r"^\W*(?:please\s+)?(?:(?:can|could|would)\s+you\s+(?:tell|explain|show)\s+\w+\s+)?"
    r"(?:how\s+(?:do|can|could|should|to|long|much|many)\b|what\s+(?:do|can|should|happens|if)\b"
    r"|where\s+(?:do|can|should|would)\s+i\b)",
    re.IGNORECASE,
)


class PrivateText:
    """Judges texts.

    Args:
        user_words: Nouns behind "my" that make a question about its asker, besides the usual.
    """

    def __init__(self, user_words: Iterable[str] = ()) -> None:
        nouns = "|".join(map(re.escape, [*_OWN_THINGS.split(), *user_words]))
        self._own = re.compile(rf"\b(?:my|our|mine)\b(?:\s+\w+)?\s+(?:{nouns})\b", re.IGNORECASE)

    def find_personal(self, text: str) -> str | None:
        """Return which kind of personal data a text holds; None where it holds none."""
        for name, pattern in _PERSONAL.items():
            if pattern.search(text):
                return name
        if any(_has_luhn_sum(match[0]) for match in _CARD.finditer(text)):
            return "payment_card"
        return None

    def is_about_asker(self, text: str) -> bool:
        """Whether only this asker can be given the answer: "where is my order", "order 31245"."""
        if _REFERENCE.search(text):
            return True
        if _GENERAL.search(text):
            return False
        return bool(self._own.search(text))


def _has_luhn_sum(number: str) -> bool:
    digits = [int(c) for c in number if c.isdigit()]
    doubled = [
        d if i % 2 == 0 else (d * 2 - 9 if d > 4 else d * 2) for i, d in enumerate(reversed(digits))
    ]
    return sum(doubled) % 10 == 0
