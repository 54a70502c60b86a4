"""Decide whether two answers are interchangeable."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from evenkeel_runtime.text.guards import find_names, find_numbers, has_negation

# Minimum cosine: only near-identical wordings match. A rephrased answer counts as different, so the
# wrong-hit rate is overestimated rather than underestimated.
SAME_MEANING = 0.95
_NO_WORD = re.compile(r"\W+")

Encode = Callable[[str], NDArray[np.float32]]


def are_interchangeable(answer: str, other: str, encode: Encode | None) -> bool:
    """Whether one answer could replace the other.

    Either they are equal except for case, whitespace and punctuation, or their cosine is at least
    SAME_MEANING and they have the same numbers, names and negation.

    Args:
        answer: One answer.
        other: The other one.
        encode: Returns a text's embedding; if None, only words are compared.
    """
    if plain_words(answer) == plain_words(other):
        return True
    if encode is None:
        return False
    same_facts = (
        find_numbers(answer) == find_numbers(other)
        and find_names(answer) == find_names(other)
        and has_negation(answer) == has_negation(other)
    )
    return same_facts and float(encode(answer) @ encode(other)) >= SAME_MEANING


def plain_words(text: str) -> str:
    """Return the words of a text, ignoring case, punctuation and layout."""
    return _NO_WORD.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()
