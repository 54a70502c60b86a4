"""Whether two answers say the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from evenkeel_runtime.text.guards import find_names, find_numbers, has_negation

# Near-identical wordings only: what a model rephrases counts as different, which errs on the side
# of a higher wrong-hit rate.
SAME_MEANING = 0.95
_NO_WORD = re.compile(r"\W+")

Encode = Callable[[str], NDArray[np.float32]]


def say_the_same(answer: str, other: str, encode: Encode | None) -> bool:
    """Whether one answer could stand for the other.

    Equal but for case, space and punctuation; or of a cosine of at least SAME_MEANING with the same
    numbers, names and negation.

    Args:
        answer: One answer.
        other: The other one.
        encode: Gives a text's embedding; None compares words alone.
    """
    if _plain(answer) == _plain(other):
        return True
    if encode is None:
        return False
    same_facts = (
        find_numbers(answer) == find_numbers(other)
        and find_names(answer) == find_names(other)
        and has_negation(answer) == has_negation(other)
    )
    return same_facts and float(encode(answer) @ encode(other)) >= SAME_MEANING


def _plain(text: str) -> str:
    return _NO_WORD.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()
