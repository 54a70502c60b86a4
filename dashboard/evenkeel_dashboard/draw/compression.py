"""What prompt compression did to requests, in words."""

from __future__ import annotations

from collections.abc import Mapping

from evenkeel.spans import COMPRESSION_SAVED_TOKENS, COMPRESSION_VERDICT
from evenkeel_dashboard.draw import formats

_LOSSES = {
    "order": "it would have changed the messages' order",
    "protected": "it would have touched protected messages",
    "invented": "it would have added text",
    "numbers": "it would have lost numbers",
    "names": "it would have lost names",
    "instructions": "it would have lost instructions",
    "negation": "it would have lost a negation",
    "question": "it would have lost words of the question",
}


def verdict_words(verdict: str) -> str:
    """Return a verdict such as `failed_numbers` in words."""
    if verdict == "sent":
        return "compressed"
    if verdict == "no_gain":
        return "unchanged: too little to gain"
    loss = verdict.removeprefix("failed_")
    return f"unchanged: {_LOSSES.get(loss, loss.replace('_', ' '))}"


def compression_words(attributes: Mapping[str, str]) -> str:
    """Return what prompt compression did to one request; "off" if it was not applied."""
    verdict = attributes.get(COMPRESSION_VERDICT, "")
    if not verdict:
        return "off"
    try:
        saved = float(attributes.get(COMPRESSION_SAVED_TOKENS) or 0)
    except ValueError:
        saved = 0.0
    words = verdict_words(verdict)
    return f"{words}, {formats.count(saved)} tokens saved" if verdict == "sent" else words
