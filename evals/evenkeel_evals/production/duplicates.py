"""Finds duplicate questions: the same text, nearly the same text, or the same meaning."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasketch import MinHash, MinHashLSH

from evenkeel_evals.scorers.words import normalise

NUM_PERMUTATIONS = 128
# Character shingles: questions are short, and few share three consecutive words.
SHINGLE_CHARS = 4
LIKE_WORDS = 0.8
# "reset password" and "change password" have 0.86: the threshold must be well above it.
LIKE_MEANING = 0.95

# Longer questions are compared by their beginnings; embeddings cover even less of them.
COMPARED_CHARS = 16_000

EncodeAll = Callable[[Sequence[str]], Any]


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A match: the id of the known question, and how it was found."""

    other_id: str
    how: str


class KnownQuestions:
    """The known questions, to compare new ones with.

    Args:
        encode_all: Returns the unit-length embeddings of texts, one row per text; None disables
            comparison by meaning. Called in large batches, only for texts that are compared.
    """

    def __init__(self, encode_all: EncodeAll | None) -> None:
        self._encode_all = encode_all
        self._by_hash: dict[str, str] = {}
        self._by_words = MinHashLSH(threshold=LIKE_WORDS, num_perm=NUM_PERMUTATIONS)
        self._signatures: dict[str, MinHash] = {}
        self._names: list[str] = []
        self._texts: list[str] = []
        # The first rows hold the embeddings of the first texts; the rest is spare capacity.
        self._meanings: Any = None
        self._num_meanings = 0
        self._prepared: dict[str, Any] = {}
        self._last: tuple[str, MinHash] | None = None

    def add(self, name: str, text: str) -> None:
        """Add a question; an existing one of this name is left unchanged."""
        if name in self._signatures:
            return
        self._by_hash.setdefault(fingerprint(text), name)
        self._signatures[name] = self._signature(text)
        self._by_words.insert(name, self._signatures[name])
        self._names.append(name)
        self._texts.append(text)

    def find(self, text: str) -> Duplicate | None:
        """Return a known question that matches this one, trying the most certain match first."""
        written = self.find_written(text)
        if written is not None or self._encode_all is None or not self._texts:
            return written
        self.prepare([text])
        cosines = self._known_meanings() @ self._prepared[text]
        place = int(np.argmax(cosines))
        if cosines[place] < LIKE_MEANING:
            return None
        return Duplicate(self._names[place], f"the same meaning (cosine {cosines[place]:.2f})")

    def find_written(self, text: str) -> Duplicate | None:
        """Return a known question with the same or nearly the same text as this one."""
        same = self._by_hash.get(fingerprint(text))
        if same is not None:
            return Duplicate(same, "the same text")
        signature = self._signature(text)
        # The index may return some below the threshold, so the estimate itself is checked.
        near = {
            str(n): signature.jaccard(self._signatures[n]) for n in self._by_words.query(signature)
        }
        if not near or max(near.values()) < LIKE_WORDS:
            return None
        best = max(near, key=lambda name: near[name])
        return Duplicate(best, f"nearly the same text (Jaccard {near[best]:.2f} by MinHash)")

    def prepare(self, texts: Sequence[str]) -> None:
        """Embed texts for later calls of `find`, along with all known ones, in one batch."""
        if self._encode_all is None:
            return
        wanted = dict.fromkeys((*self._texts[self._num_meanings :], *texts))
        missing = [text for text in wanted if text not in self._prepared]
        if missing:
            rows = self._encode_all([_readable(text) for text in missing])
            self._prepared |= dict(zip(missing, rows, strict=True))

    def _known_meanings(self) -> Any:
        """Return the embeddings of the known questions, one row each; all must be prepared."""
        num_known = len(self._texts)
        if self._meanings is None or len(self._meanings) < num_known:
            grown = np.zeros((2 * num_known, len(self._prepared[self._texts[-1]])), np.float32)
            if self._meanings is not None:
                grown[: self._num_meanings] = self._meanings[: self._num_meanings]
            self._meanings = grown
        for place in range(self._num_meanings, num_known):
            self._meanings[place] = self._prepared[self._texts[place]]
        self._num_meanings = num_known
        return self._meanings[:num_known]

    def _signature(self, text: str) -> MinHash:
        """Return the signature, cached since a text is often added right after a search for it."""
        if self._last is None or self._last[0] != text:
            self._last = (text, _sign(text))
        return self._last[1]


def fingerprint(text: str) -> str:
    """Return a digest that ignores case, punctuation and spaces."""
    return hashlib.sha256(normalise(text).encode("utf-8", "replace")).hexdigest()


def _readable(text: str) -> str:
    """Return text that a tokenizer accepts: JSON may contain half a surrogate pair."""
    return text[:COMPARED_CHARS].encode("utf-8", "replace").decode()


def _sign(text: str) -> MinHash:
    folded = f" {normalise(text[:COMPARED_CHARS])} "
    count = max(1, len(folded) - SHINGLE_CHARS + 1)
    shingles = {folded[i : i + SHINGLE_CHARS] for i in range(count)}
    signature = MinHash(num_perm=NUM_PERMUTATIONS, seed=1)
    signature.update_batch([shingle.encode("utf-8", "replace") for shingle in shingles])
    return signature
