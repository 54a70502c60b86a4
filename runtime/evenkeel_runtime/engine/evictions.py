"""Notes which prefix-cache blocks vLLM evicts, at the seam of its own block metrics (vLLM 0.32)."""

from __future__ import annotations

from typing import Any

# vLLM appends the number of the KV cache group to a block's hash (make_block_hash_with_group_id).
_GROUP_BYTES = 4


class EvictionWatch:
    """Stands where vLLM's `KVCacheMetricsCollector` stands, and passes everything on to it.

    Args:
        inner: vLLM's own collector, where `--kv-cache-metrics` switched it on.

    Attributes:
        evicted: The id and the hash of each block evicted since the last `take`.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.evicted: list[tuple[int, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def on_block_evicted(self, block: Any) -> None:
        """Note a block that is about to be given to somebody else, if its contents were cached."""
        key = block.block_hash
        if key is not None:
            self.evicted.append((block.block_id, key[:-_GROUP_BYTES]))
        if self.inner is not None:
            self.inner.on_block_evicted(block)

    def on_block_allocated(self, block: Any) -> None:
        """Pass on."""
        if self.inner is not None:
            self.inner.on_block_allocated(block)

    def on_block_accessed(self, block: Any) -> None:
        """Pass on."""
        if self.inner is not None:
            self.inner.on_block_accessed(block)

    def reset(self) -> None:
        """The cache was emptied on purpose."""
        self.evicted.clear()
        if self.inner is not None:
            self.inner.reset()

    def take(self) -> list[tuple[int, bytes]]:
        """Return `evicted`, and begin anew."""
        evicted, self.evicted = self.evicted, []
        return evicted
