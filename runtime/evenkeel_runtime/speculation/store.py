"""Past answers in bounded memory, with the last position of each n-gram.

Two arrays hold everything, both of a fixed size: a ring of tokens, and a table from the hash of an
n-gram to the ring position right after it. The latest n-gram of a hash wins, and a position that
the ring has overwritten since is passed over, so nothing is ever searched or freed. A hit is
compared with the ring token by token before it is believed: what is returned did follow these very
tokens in an answer of the same owner.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

import numpy as np
from numpy.typing import NDArray

# Longest first: the more tokens agree, the more likely the next one does.
NGRAM_LENGTHS = (8, 4, 2)
# So much of a prompt is kept before its answer, so that an answer's first tokens can be found.
PROMPT_TAIL_TOKENS = NGRAM_LENGTHS[0]
# Ring tokens (4 bytes each) to table slots (two numbers of 8 bytes): one slot for each n-gram.
_SLOTS_PER_TOKEN = len(NGRAM_LENGTHS)
_BYTES_PER_TOKEN = 4 + 16 * _SLOTS_PER_TOKEN
_END = -1
_MASK = (1 << 64) - 1
_MIX = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Match:
    """Where the text so far was seen before.

    Attributes:
        position: Position in the store's text of what came next.
        length: How many tokens before it agree; the whole prompt where `is_same_prompt`.
        is_same_prompt: The same prompt was answered before.
    """

    position: int
    length: int
    is_same_prompt: bool = False


class DraftStore:
    """Past answers of one engine; belongs to one thread.

    Args:
        max_bytes: Most memory for it, allocated at once; at least room for 1,024 tokens.
        seed: Seed of the hash; drawn by default, so that nobody can aim at a slot.
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
        # Positions count on for ever; the ring index is the position modulo the capacity.
        self._positions = np.full(self._num_slots, -1, np.int64)
        # Reading single numbers through a memory view is twice as fast as through the array.
        self._read_ring = self._ring.data
        self._read_keys = self._keys.data
        self._read_positions = self._positions.data
        self._head = 0
        self._owner_salts: dict[str, int] = {}
        self.num_answers = 0

    @property
    def size_bytes(self) -> int:
        """Memory held, the same from the first answer to the last."""
        return int(self._ring.nbytes + self._keys.nbytes + self._positions.nbytes)

    @property
    def num_tokens(self) -> int:
        """Tokens that can be found now."""
        return min(self._head, self.capacity_tokens)

    def add(self, owner: str, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Store one answer, for the same owner only.

        Args:
            owner: Whose text it is; no other owner's requests are drafted from it.
            prompt: All tokens of the prompt.
            answer: Its answer. One longer than a quarter of the store keeps its beginning only.
        """
        answer = list(islice(answer, self.capacity_tokens // 4))
        if not answer:
            return
        tail = list(prompt[-PROMPT_TAIL_TOKENS:])
        text = np.array([*tail, *answer, _END], np.int32)
        if self._head % self.capacity_tokens + len(text) > self.capacity_tokens:
            # An answer is never split: the rest of the ring stays as it was, and unfindable.
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
        """Return where the longest end of `recent` was last seen and what followed is known.

        Args:
            owner: Whose text may be used.
            recent: The last tokens of a request; more than the longest n-gram are not looked at.
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
        """Return where the last answer to this very prompt goes on, if it began with `first`."""
        position = self._look_up(self._hash_prompt(prompt, self._salt_of(owner)))
        tail = list(prompt[-PROMPT_TAIL_TOKENS:])
        if position is None or self._tokens(position - len(tail), len(tail)) != tail:
            return None
        if self._tokens(position, 1) != [first]:
            return None
        return Match(position + 1, len(prompt), is_same_prompt=True)

    def follow(self, position: int, tokens: Sequence[int]) -> bool:
        """Whether the text at `position` is still there and begins with `tokens`."""
        return self._tokens(position, len(tokens)) == list(tokens)

    def continuation(self, position: int, max_tokens: int) -> list[int]:
        """Return what follows at `position`: at most `max_tokens`, none beyond the answer's end."""
        tokens = self._tokens(position, max_tokens)
        return tokens[: tokens.index(_END)] if _END in tokens else tokens

    def export(self) -> tuple[dict[str, int], list[memoryview]]:
        """Return what a store of the same size is restored from: numbers, and the arrays' bytes."""
        head = {"seed": self._seed, "head": self._head, "answers": self.num_answers}
        arrays = (self._ring, self._keys, self._positions)
        return head, [a.data.cast("B") for a in arrays]

    def restore(self, head: dict[str, int], body: memoryview, vocabulary: int) -> None:
        """Take over what `export` gave; the seed must be this store's.

        Raises:
            ValueError: If the bytes are those of a store of another size, or of another model's
                tokens.
        """
        if len(body) != self.size_bytes:
            raise ValueError(f"it holds {len(body)} bytes, this store has {self.size_bytes}")
        at = 0
        for array in (self._ring, self._keys, self._positions):
            array[:] = np.frombuffer(body[at : at + array.nbytes], array.dtype)
            at += array.nbytes
        if int(self._ring.max()) >= vocabulary:
            raise ValueError(f"it holds tokens beyond this model's {vocabulary}")
        self._head, self.num_answers = head["head"], head["answers"]

    def _tokens(self, position: int, length: int) -> list[int]:
        """The text there; empty where the ring has gone over it, shorter at the ring's end."""
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
        """The hash of each n-gram that ends where `ngram` does; `_index` computes the same."""
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
        """Enter every n-gram that ends in the answer or right before it."""
        # What follows an n-gram must be a token of the answer, so it ends before one of these.
        ends = np.arange(num_prompt_tokens, len(text))
        tokens = text.astype(np.uint64) + np.uint64(1)
        mixed = np.full(len(ends), salt, np.uint64)
        for length in range(1, NGRAM_LENGTHS[0] + 1):
            if num_prompt_tokens < length:
                # The text begins within the n-gram that would end at the first of them.
                mixed, ends = mixed[ends >= length], ends[ends >= length]
            mixed += tokens[ends - length] * self._weights[length - 1]
            if length in NGRAM_LENGTHS:
                keys = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(_MIX)
                slots = keys % np.uint64(self._num_slots)
                # Of equal slots NumPy keeps the last assignment: the latest n-gram wins.
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
