"""Remembers which prefix-cache blocks were computed before: tells a lost hit from a new prompt."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Eviction:
    """A block left the cache to make room.

    Attributes:
        time_ns: When, on the monotonic clock.
        by: Number of the request that got its room; None where that is not known.
    """

    time_ns: int
    by: int | None


class SeenBlocks:
    """A bounded set of block hashes; the one not met for longest is forgotten first.

    Args:
        max_blocks: Most hashes to remember; 0 remembers none.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._seen: dict[int, Eviction | None] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def count_leading(self, hashes: Sequence[Hashable]) -> int:
        """Return how many hashes, from the first on, were seen before.

        A block's hash covers all blocks before it, so what follows the first unknown one is unknown
        as well.
        """
        seen = self._seen
        for position, block in enumerate(hashes):
            if hash(block) not in seen:
                return position
        return len(hashes)

    def add(self, hashes: Iterable[Hashable]) -> None:
        """Remember these hashes as met now, and in the cache from now on."""
        seen = self._seen
        for block in hashes:
            # The built-in hash of a digest is as good as the digest, in an eighth of the memory.
            key = hash(block)
            seen.pop(key, None)
            seen[key] = None
        while len(seen) > self._max_blocks:
            del seen[next(iter(seen))]

    def record_eviction(self, block: Hashable, eviction: Eviction) -> None:
        """Remember why a block is not in the cache any more, if it is known at all."""
        key = hash(block)
        if key in self._seen:
            self._seen[key] = eviction

    def find_eviction(self, block: Hashable) -> Eviction | None:
        """Return how a block left the cache; None if it did not, or that was forgotten."""
        return self._seen.get(hash(block))
