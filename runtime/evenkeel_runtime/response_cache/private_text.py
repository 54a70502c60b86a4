"""Tells which texts must not be cached: personal data, and questions about their asker."""

from __future__ import annotations

import re
from collections.abc import Iterable

from evenkeel.privacy.budget import OverBudgetError
from evenkeel.privacy.text import OVER_BUDGET, RedactionTally, built_in

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
        self._rules = built_in(broad=True)
        self._own = re.compile(rf"\b(?:my|our|mine)\b(?:\s+\w+)?\s+(?:{nouns})\b", re.IGNORECASE)

    def find_personal(self, text: str) -> str | None:
        """Return which rule finds something secret or personal in a text; None where none does.

        Broad rules count too: a text taken for private by mistake costs a cache hit, the reverse
        a leak. So does a text that takes too long to look through.
        """
        encoded, tally = text.encode("utf-8", "replace"), RedactionTally()
        try:
            tally.budget.begin(len(encoded))
            findings = self._rules.find(encoded, tally)
        except OverBudgetError:
            return OVER_BUDGET
        return findings[0].rule.name if findings else None

    def is_about_asker(self, text: str) -> bool:
        """Whether only this asker can be given the answer: "where is my order", "order 31245"."""
        if _REFERENCE.search(text):
            return True
        if _GENERAL.search(text):
            return False
        return bool(self._own.search(text))
