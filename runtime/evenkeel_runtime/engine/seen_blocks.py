"""Remember which prefix-cache blocks were computed, to distinguish lost hits from new prompts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Eviction:
    """The eviction of a block.

    Attributes:
        time_ns: When, on the monotonic clock.
        by: Number of the request that got the block; None if unknown.
    """

    time_ns: int
    by: int | None


class SeenBlocks:
    """A bounded set of block hashes; the least recently seen is dropped first.

    Args:
        max_blocks: Maximum number of hashes to remember; 0 remembers none.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._seen: dict[int, Eviction | None] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def count_leading(self, hashes: Sequence[Hashable]) -> int:
        """Return how many leading hashes were seen before.

        A block's hash covers all blocks before it, so all after the first unknown one are unknown.
        """
        seen = self._seen
        for position, block in enumerate(hashes):
            if hash(block) not in seen:
                return position
        return len(hashes)

    def add(self, hashes: Iterable[Hashable]) -> None:
        """Remember these hashes as just seen and cached."""
        seen = self._seen
        for block in hashes:
            # The built-in hash of a digest is as good as the digest and takes an eighth of the
            # memory.
            key = hash(block)
            seen.pop(key, None)
            seen[key] = None
        while len(seen) > self._max_blocks:
            del seen[next(iter(seen))]

    def record_eviction(self, block: Hashable, eviction: Eviction) -> None:
        """Record the eviction of a block; unknown blocks are ignored."""
        key = hash(block)
        if key in self._seen:
            self._seen[key] = eviction

    def find_eviction(self, block: Hashable) -> Eviction | None:
        """Return the eviction of a block; None if it was not evicted or is not remembered."""
        return self._seen.get(hash(block))
