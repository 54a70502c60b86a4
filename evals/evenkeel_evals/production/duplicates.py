"""Whether a question is there already: the same, nearly the same words, or the same meaning."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasketch import MinHash, MinHashLSH

from evenkeel_evals.scorers.base import normalise

NUM_PERMUTATIONS = 128
# Of characters: questions are short, and few of them share three words in a row.
SHINGLE_CHARS = 4
LIKE_WORDS = 0.8
# "reset password" and "change password" have 0.86: this has to be well above it.
LIKE_MEANING = 0.95

# Longer questions are compared by their beginnings; embeddings read less of them in any case.
COMPARED_CHARS = 16_000

EncodeAll = Callable[[Sequence[str]], Any]


@dataclass(frozen=True, slots=True)
class Duplicate:
    """What a question is like: the id of the other, and how that was found."""

    other_id: str
    how: str


class KnownQuestions:
    """The questions that are there, to compare further ones with.

    Args:
        encode_all: Gives the embeddings of texts, of length 1, a row a text; None leaves meaning
            out. It is asked for as many at once as possible, and only for what is compared.
    """

    def __init__(self, encode_all: EncodeAll | None) -> None:
        self._encode_all = encode_all
        self._by_hash: dict[str, str] = {}
        self._by_words = MinHashLSH(threshold=LIKE_WORDS, num_perm=NUM_PERMUTATIONS)
        self._signatures: dict[str, MinHash] = {}
        self._names: list[str] = []
        self._texts: list[str] = []
        # The first rows hold the embeddings of the first texts; there is room for more.
        self._meanings: Any = None
        self._num_meanings = 0
        self._prepared: dict[str, Any] = {}
        self._last: tuple[str, MinHash] | None = None

    def add(self, name: str, text: str) -> None:
        """Remember a question; one that is there under this name is left as it is."""
        if name in self._signatures:
            return
        self._by_hash.setdefault(fingerprint(text), name)
        self._signatures[name] = self._signature(text)
        self._by_words.insert(name, self._signatures[name])
        self._names.append(name)
        self._texts.append(text)

    def find(self, text: str) -> Duplicate | None:
        """Return a known question that is like this one, the surest kind of likeness first."""
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
        """Return a known question that is written like this one, whatever they mean."""
        same = self._by_hash.get(fingerprint(text))
        if same is not None:
            return Duplicate(same, "the same text")
        signature = self._signature(text)
        # The index may name some below the threshold: what counts is the estimate itself.
        near = {
            str(n): signature.jaccard(self._signatures[n]) for n in self._by_words.query(signature)
        }
        if not near or max(near.values()) < LIKE_WORDS:
            return None
        best = max(near, key=lambda name: near[name])
        return Duplicate(best, f"nearly the same text (Jaccard {near[best]:.2f} by MinHash)")

    def prepare(self, texts: Sequence[str]) -> None:
        """Embed texts that `find` will be asked for, with all that is known, in one go."""
        if self._encode_all is None:
            return
        wanted = dict.fromkeys((*self._texts[self._num_meanings :], *texts))
        missing = [text for text in wanted if text not in self._prepared]
        if missing:
            rows = self._encode_all([_readable(text) for text in missing])
            self._prepared |= dict(zip(missing, rows, strict=True))

    def _known_meanings(self) -> Any:
        """Return the embeddings of what is known, a row each, all of them prepared."""
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
        """Return the signature; what was just looked for is often what is added next."""
        if self._last is None or self._last[0] != text:
            self._last = (text, _sign(text))
        return self._last[1]


def fingerprint(text: str) -> str:
    """Return a digest that case, punctuation and spaces do not change."""
    return hashlib.sha256(normalise(text).encode("utf-8", "replace")).hexdigest()


def _readable(text: str) -> str:
    """Return what a tokenizer takes: a JSON file may have half a surrogate pair in it."""
    return text[:COMPARED_CHARS].encode("utf-8", "replace").decode()


def _sign(text: str) -> MinHash:
    folded = f" {normalise(text[:COMPARED_CHARS])} "
    count = max(1, len(folded) - SHINGLE_CHARS + 1)
    shingles = {folded[i : i + SHINGLE_CHARS] for i in range(count)}
    signature = MinHash(num_perm=NUM_PERMUTATIONS, seed=1)
    signature.update_batch([shingle.encode("utf-8", "replace") for shingle in shingles])
    return signature
