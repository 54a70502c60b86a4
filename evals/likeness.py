"""Whether a question is there already: the same, nearly the same words, or the same meaning."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasketch import MinHash, MinHashLSH

from evals.scorers import normalise

NUM_PERMUTATIONS = 128
# Of characters: questions are short, and few of them share three words in a row.
SHINGLE_CHARS = 4
LIKE_WORDS = 0.8
# "reset password" and "change password" have 0.86: this has to be well above it.
LIKE_MEANING = 0.95

Encode = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Likeness:
    """What a question is like: the id of the other, and how that was found."""

    other_id: str
    how: str


class KnownQuestions:
    """The questions that are there, to compare further ones with.

    Args:
        encode: Gives the embedding of a text, of length 1; None leaves meaning out.
    """

    def __init__(self, encode: Encode | None) -> None:
        self._encode = encode
        self._by_hash: dict[str, str] = {}
        self._by_words = MinHashLSH(threshold=LIKE_WORDS, num_perm=NUM_PERMUTATIONS)
        self._signatures: dict[str, MinHash] = {}
        self._names: list[str] = []
        self._meanings: list[Any] = []
        self._last: tuple[str, Any] | None = None

    def add(self, name: str, text: str) -> None:
        """Remember a question; one that is there under this name is left as it is."""
        if name in self._signatures:
            return
        self._by_hash.setdefault(fingerprint(text), name)
        self._signatures[name] = _signature(text)
        self._by_words.insert(name, self._signatures[name])
        if self._encode is not None:
            self._names.append(name)
            self._meanings.append(self._meaning(text))

    def find(self, text: str) -> Likeness | None:
        """Return a known question that is like this one, the surest kind of likeness first."""
        same = self._by_hash.get(fingerprint(text))
        if same is not None:
            return Likeness(same, "the same text")
        signature = _signature(text)
        # The index may name some below the threshold: what counts is the estimate itself.
        near = {
            str(n): signature.jaccard(self._signatures[n]) for n in self._by_words.query(signature)
        }
        if near and max(near.values()) >= LIKE_WORDS:
            best = max(near, key=lambda name: near[name])
            return Likeness(best, f"nearly the same text (Jaccard {near[best]:.2f} by MinHash)")
        if self._encode is None or not self._meanings:
            return None
        cosines = np.stack(self._meanings) @ self._meaning(text)
        place = int(np.argmax(cosines))
        if cosines[place] < LIKE_MEANING:
            return None
        return Likeness(self._names[place], f"the same meaning (cosine {cosines[place]:.2f})")

    def _meaning(self, text: str) -> Any:
        """Return the embedding; what was just looked for is often what is added next."""
        assert self._encode is not None
        if self._last is None or self._last[0] != text:
            self._last = (text, self._encode(text))
        return self._last[1]


def fingerprint(text: str) -> str:
    """Return a digest that case, punctuation and spaces do not change."""
    return hashlib.sha256(normalise(text).encode("utf-8", "replace")).hexdigest()


def _signature(text: str) -> MinHash:
    folded = f" {normalise(text)} "
    count = max(1, len(folded) - SHINGLE_CHARS + 1)
    signature = MinHash(num_perm=NUM_PERMUTATIONS, seed=1)
    for i in range(count):
        signature.update(folded[i : i + SHINGLE_CHARS].encode("utf-8", "replace"))
    return signature
