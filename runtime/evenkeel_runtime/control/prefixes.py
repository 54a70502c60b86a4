"""Estimate how much of a prompt the engine's prefix cache holds, from the prompts it had lately.

The cache itself is in the engine's process. The server keeps the hashes of the prompt blocks that
it sent there, the most recent ones, as many as the engine has blocks. What it cannot see: blocks of
answers (the next turn of a conversation finds a little more than estimated), blocks in use (the
engine keeps those, and evicts others), and requests that other servers sent.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

# Longer prompts are compared up to here: hashing more would hold up the server's event loop.
MAX_COMPARED_TOKENS = 131_072


@dataclass(frozen=True, slots=True)
class KvCache:
    """The size of the engine's KV cache.

    Attributes:
        num_blocks: Blocks; 0 if unknown.
        block_tokens: Tokens per block.
        has_prefixes: Whether it reuses the prefixes of earlier prompts.
    """

    num_blocks: int = 0
    block_tokens: int = 16
    has_prefixes: bool = True

    @property
    def num_tokens(self) -> int:
        """Tokens that fit; 0 if unknown."""
        return self.num_blocks * self.block_tokens

    def round_up(self, tokens: int) -> int:
        """Return the tokens of the blocks that hold this many tokens."""
        return -(-tokens // self.block_tokens) * self.block_tokens


UNKNOWN_CACHE = KvCache()


class PrefixMemory:
    """The blocks of recent prompts, the least recently sent dropped first.

    Args:
        cache: The engine's KV cache.
    """

    def __init__(self, cache: KvCache) -> None:
        self._cache = cache
        self._known: OrderedDict[int, None] = OrderedDict()

    def hash_blocks(self, tokens: Sequence[int], salt: str) -> list[int]:
        """Return a hash per full block of a prompt, each covering all blocks before it.

        Args:
            tokens: The prompt.
            salt: What keeps its prefix apart from others' in the cache: salt and adapter.
        """
        if not self._cache.has_prefixes:
            return []
        size = self._cache.block_tokens
        packed = array("q", tokens[:MAX_COMPARED_TOKENS]).tobytes()
        width = size * 8
        hashes, before = [], hash(salt)
        for start in range(0, len(packed) - width + 1, width):
            before = hash((before, packed[start : start + width]))
            hashes.append(before)
        return hashes

    def count_cached(self, hashes: Sequence[int], num_tokens: int) -> int:
        """Return the leading tokens of a prompt that are probably cached.

        Never all of them: the engine computes at least the last one.
        """
        size = self._cache.block_tokens
        for position, block in enumerate(hashes):
            if block not in self._known:
                return position * size
        return max(0, min(len(hashes), (num_tokens - 1) // size)) * size

    def add(self, hashes: Sequence[int]) -> None:
        """Remember the blocks of a prompt that the engine has computed."""
        known = self._known
        # The end first: of a prompt, the engine drops the last blocks first.
        for block in reversed(hashes):
            known[block] = None
            known.move_to_end(block)
        while len(known) > self._cache.num_blocks:
            known.popitem(last=False)
