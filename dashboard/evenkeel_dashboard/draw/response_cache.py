"""The outcomes of a response-cache lookup, in words."""

from __future__ import annotations

OUTCOMES = {
    "exact": "hit: the same question",
    "semantic": "hit: a similar question",
    "verified": "verified: the model gave a cached answer, faster",
    "draft": "the model's answer differed from its draft",
    "shadow": "found in shadow mode, answered by the model",
    "miss": "miss",
    "bypass": "not eligible: neither served nor stored",
    "replay": "a served answer, checked by the model",
}


def outcome_words(outcome: str) -> str:
    """Return an outcome of the response cache in words; an unknown one as it is."""
    return OUTCOMES.get(outcome, outcome)
