"""Decide whether two answers are interchangeable."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from evenkeel_runtime.text.guards import find_difference, is_english
from evenkeel_runtime.text.signs import find_pieces

# Minimum cosine: only near-identical wordings match. A rephrased answer counts as different, so the
# wrong-hit rate is overestimated rather than underestimated.
SAME_MEANING = 0.95

Encode = Callable[[str], NDArray[np.float32]]


def are_interchangeable(answer: str, other: str, encode: Encode | None) -> bool:
    """Whether one answer could replace the other.

    Either they are equal except for case, layout and the punctuation of sentences, or they are
    English, their cosine is at least SAME_MEANING, and no guard objects: embeddings hardly show
    that "open" became "closed", and of Chinese or Thai not even that one of them is negated. If
    their signs differ, they are not: `!ok` and `ok`, `a && b` and `a & b`.

    Args:
        answer: One answer.
        other: The other one.
        encode: Returns a text's embedding; if None, only words are compared.
    """
    own, others = find_pieces(answer), find_pieces(other)
    if own.words == others.words:
        return own.signs == others.signs
    if encode is None or not (is_english(answer) and is_english(other)):
        return False
    if own.of_code != others.of_code:
        return False
    if find_difference(answer, other) is not None:
        return False
    return float(encode(answer) @ encode(other)) >= SAME_MEANING
