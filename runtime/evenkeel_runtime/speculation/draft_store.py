"""Store past answers in bounded memory and look them up by n-gram.

Everything is in two fixed-size arrays: a ring of tokens, and a table from the hash of an n-gram to
the ring position right after it. The latest n-gram with a given hash wins, and positions that the
ring has overwritten are ignored, so nothing needs to be searched or freed. A hit is compared with
the ring token by token, so a returned continuation really did follow these tokens in an answer of
the same owner.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

import numpy as np
from numpy.typing import NDArray

# Longest first: the more tokens agree, the more likely the next one agrees too.
NGRAM_LENGTHS = (8, 4, 2)
# How much of the prompt is stored before its answer, so that the answer's start can be found.
PROMPT_TAIL_TOKENS = NGRAM_LENGTHS[0]
# One table slot (two 8-byte numbers) per n-gram length for each 4-byte ring token.
_SLOTS_PER_TOKEN = len(NGRAM_LENGTHS)
_BYTES_PER_TOKEN = 4 + 16 * _SLOTS_PER_TOKEN
_END = -1
_MASK = (1 << 64) - 1
_MIX = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier occurrence of the text so far.

    Attributes:
        position: Position in the store of the token that came next.
        length: Number of matching tokens before it; the whole prompt if `is_same_prompt`.
        is_same_prompt: Whether the same prompt was answered before.
    """

    position: int
    length: int
    is_same_prompt: bool = False


class DraftStore:
    """Past answers of one engine; not thread-safe.

    Args:
        max_bytes: Memory limit, allocated at once; there is always room for 1,024 tokens.
        seed: Seed of the hash; random by default, so that slots cannot be targeted.
    """

    def __init__(self, max_bytes: int, seed: int | None = None) -> None:
        self.capacity_tokens = max(1024, max_bytes // _BYTES_PER_TOKEN)
        self._seed = secrets.randbits(64) if seed is None else seed
        random = np.random.default_rng(self._seed)
        weights = random.integers(0, 1 << 63, NGRAM_LENGTHS[0], dtype=np.uint64) * 2 + 1
        self._weights: NDArray[np.uint64] = weights
        self._weight_list: list[int] = weights.tolist()
        self._num_slots = self.capacity_tokens * _SLOTS_PER_TOKEN
        self._ring = np.full(self.capacity_tokens, _END, np.int32)
        self._keys = np.zeros(self._num_slots, np.uint64)
        # Positions never wrap; the ring index is the position modulo the capacity.
        self._positions = np.full(self._num_slots, -1, np.int64)
        # Reading single numbers through a memoryview is twice as fast as through the array.
        self._read_ring = self._ring.data
        self._read_keys = self._keys.data
        self._read_positions = self._positions.data
        self._head = 0
        self._owner_salts: dict[str, int] = {}
        self.num_answers = 0

    @property
    def size_bytes(self) -> int:
        """Memory used; it does not change as answers are added."""
        return int(self._ring.nbytes + self._keys.nbytes + self._positions.nbytes)

    @property
    def num_tokens(self) -> int:
        """Tokens currently in the store."""
        return min(self._head, self.capacity_tokens)

    def add(self, owner: str, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Store one answer for later requests of the same owner.

        Args:
            owner: Owner of the text; other owners' requests get no drafts from it.
            prompt: All tokens of the prompt.
            answer: The answer; truncated to a quarter of the store.
        """
        answer = list(islice(answer, self.capacity_tokens // 4))
        if not answer:
            return
        tail = list(prompt[-PROMPT_TAIL_TOKENS:])
        text = np.array([*tail, *answer, _END], np.int32)
        if self._head % self.capacity_tokens + len(text) > self.capacity_tokens:
            # An answer is never split: the rest of the ring is cleared.
            self._clear_to_end()
        start = self._head
        index = start % self.capacity_tokens
        self._ring[index : index + len(text)] = text
        self._head += len(text)
        salt = self._salt_of(owner)
        self._index(text[:-1], start, salt, len(tail))
        self._put(self._hash_prompt(prompt, salt), start + len(tail))
        self.num_answers += 1

    def find(self, owner: str, recent: Sequence[int]) -> Match | None:
        """Return the latest match for the longest n-gram that ends `recent`, or None.

        Args:
            owner: Owner whose answers are searched.
            recent: The last tokens of a request; only the longest n-gram's worth is used.
        """
        ngram = list(recent[-NGRAM_LENGTHS[0] :])
        hashes = self._hash_ends(ngram, self._salt_of(owner))
        for length in NGRAM_LENGTHS:
            if length > len(ngram):
                continue
            position = self._look_up(hashes[length])
            if position is None:
                continue
            if self._tokens(position - length, length) == ngram[-length:]:
                return Match(position, length)
        return None

    def find_answer(self, owner: str, prompt: Sequence[int], first: int) -> Match | None:
        """Return the position after `first` in the latest answer to `prompt` if it starts so."""
        position = self._look_up(self._hash_prompt(prompt, self._salt_of(owner)))
        tail = list(prompt[-PROMPT_TAIL_TOKENS:])
        if position is None or self._tokens(position - len(tail), len(tail)) != tail:
            return None
        if self._tokens(position, 1) != [first]:
            return None
        return Match(position + 1, len(prompt), is_same_prompt=True)

    def follow(self, position: int, tokens: Sequence[int]) -> bool:
        """Whether the text at `position` is still stored and begins with `tokens`."""
        return self._tokens(position, len(tokens)) == list(tokens)

    def continuation(self, position: int, max_tokens: int) -> list[int]:
        """Return up to `max_tokens` from `position`, stopping at the end of the answer."""
        tokens = self._tokens(position, max_tokens)
        return tokens[: tokens.index(_END)] if _END in tokens else tokens

    def export(self) -> tuple[dict[str, int], list[memoryview]]:
        """Return the counters and the arrays' bytes, as `restore` takes them."""
        head = {"seed": self._seed, "head": self._head, "answers": self.num_answers}
        arrays = (self._ring, self._keys, self._positions)
        return head, [a.data.cast("B") for a in arrays]

    def restore(self, head: dict[str, int], body: memoryview, vocabulary: int) -> None:
        """Load what `export` returned, into a store with the same seed.

        Raises:
            ValueError: If the bytes come from a store of a different size or from another model.
        """
        if len(body) != self.size_bytes:
            raise ValueError(f"the file has {len(body)} bytes, expected {self.size_bytes}")
        at = 0
        for array in (self._ring, self._keys, self._positions):
            array[:] = np.frombuffer(body[at : at + array.nbytes], array.dtype)
            at += array.nbytes
        if int(self._ring.max()) >= vocabulary:
            raise ValueError(
                f"the file has token ids outside this model's vocabulary ({vocabulary})"
            )
        self._head, self.num_answers = head["head"], head["answers"]

    def _tokens(self, position: int, length: int) -> list[int]:
        """Return the text at `position`: empty if overwritten, shorter at the end of the ring."""
        if not self._head - self.capacity_tokens <= position < self._head:
            return []
        index = position % self.capacity_tokens
        return self._read_ring[index : index + length].tolist()

    def _clear_to_end(self) -> None:
        index = self._head % self.capacity_tokens
        self._ring[index:] = _END
        self._head += self.capacity_tokens - index

    def _salt_of(self, owner: str) -> int:
        salt = self._owner_salts.get(owner)
        if salt is None:
            if len(self._owner_salts) >= 10_000:
                self._owner_salts.clear()
            digest = blake2b(
                owner.encode("utf-8", "replace"), digest_size=8, key=self._seed.to_bytes(8, "big")
            ).digest()
            salt = self._owner_salts[owner] = int.from_bytes(digest, "big")
        return salt

    def _hash_ends(self, ngram: Sequence[int], salt: int) -> dict[int, int]:
        """Return the hash of each n-gram that ends where `ngram` does, as `_index` computes it."""
        hashes = {}
        mixed = salt
        for length, (token, weight) in enumerate(
            zip(reversed(ngram), self._weight_list, strict=False), start=1
        ):
            mixed += (token + 1) * weight
            if length in NGRAM_LENGTHS:
                low = mixed & _MASK
                hashes[length] = ((low ^ (low >> 32)) * _MIX) & _MASK
        return hashes

    def _hash_prompt(self, prompt: Sequence[int], salt: int) -> int:
        data = np.fromiter(prompt, np.int32, len(prompt)).tobytes()
        digest = blake2b(data, digest_size=8, key=salt.to_bytes(8, "big")).digest()
        return int.from_bytes(digest, "big")

    def _index(
        self, text: NDArray[np.int32], start: int, salt: int, num_prompt_tokens: int
    ) -> None:
        """Index every n-gram that ends in the answer or right before it."""
        # The token after an n-gram must belong to the answer, so it ends before one of these.
        ends = np.arange(num_prompt_tokens, len(text))
        tokens = text.astype(np.uint64) + np.uint64(1)
        mixed = np.full(len(ends), salt, np.uint64)
        for length in range(1, NGRAM_LENGTHS[0] + 1):
            if num_prompt_tokens < length:
                # Skip n-grams that would start before the text does.
                mixed, ends = mixed[ends >= length], ends[ends >= length]
            mixed += tokens[ends - length] * self._weights[length - 1]
            if length in NGRAM_LENGTHS:
                keys = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(_MIX)
                slots = keys % np.uint64(self._num_slots)
                # NumPy keeps the last assignment to a slot, so the latest n-gram wins.
                self._keys[slots] = keys
                self._positions[slots] = start + ends

    def _put(self, key: int, position: int) -> None:
        slot = key % self._num_slots
        self._read_keys[slot] = key
        self._read_positions[slot] = position

    def _look_up(self, key: int) -> int | None:
        slot = key % self._num_slots
        if self._read_keys[slot] != key:
            return None
        position = self._read_positions[slot]
        return position if position >= 0 else None
