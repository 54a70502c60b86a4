"""Detect texts that must not be cached: personal data, and questions about the asker."""

from __future__ import annotations

import re
from collections.abc import Iterable

from evenkeel.privacy.budget import OverBudgetError
from evenkeel.privacy.text import OVER_BUDGET, RedactionTally, built_in

# Data that a shop, bank or help desk keeps per customer.
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
# A how-to question applies to all users, even if it says "my account".
_GENERAL = re.compile(
    r"^\W*(?:please\s+)?(?:(?:can|could|would)\s+you\s+(?:tell|explain|show)\s+\w+\s+)?"
    r"(?:how\s+(?:do|can|could|should|to|long|much|many)\b|what\s+(?:do|can|should|happens|if)\b"
    r"|where\s+(?:do|can|should|would)\s+i\b)",
    re.IGNORECASE,
)


class PrivateText:
    """Judges texts.

    Args:
        user_words: Additional nouns that after "my" make a question about its asker.
    """

    def __init__(self, user_words: Iterable[str] = ()) -> None:
        nouns = "|".join(map(re.escape, [*_OWN_THINGS.split(), *user_words]))
        self._rules = built_in(broad=True)
        self._own = re.compile(rf"\b(?:my|our|mine)\b(?:\s+\w+)?\s+(?:{nouns})\b", re.IGNORECASE)

    def find_personal(self, text: str) -> str | None:
        """Return the rule that finds secret or personal data in a text; None if none does.

        Broad rules count, too: a false positive costs a cache hit, a false negative leaks data. A
        text that takes too long to scan also counts as private.
        """
        encoded, tally = text.encode("utf-8", "replace"), RedactionTally()
        try:
            tally.budget.begin(len(encoded))
            findings = self._rules.find(encoded, tally)
        except OverBudgetError:
            return OVER_BUDGET
        return findings[0].rule.name if findings else None

    def is_about_asker(self, text: str) -> bool:
        """Whether the answer applies to this asker only: "where is my order", "order 31245"."""
        if _REFERENCE.search(text):
            return True
        if _GENERAL.search(text):
            return False
        return bool(self._own.search(text))
