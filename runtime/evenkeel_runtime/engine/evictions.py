"""Record which prefix-cache blocks vLLM evicts, through its block metrics hook (vLLM 0.32)."""

from __future__ import annotations

from typing import Any

# vLLM appends the number of the KV cache group to a block's hash (make_block_hash_with_group_id).
_GROUP_BYTES = 4


class EvictionWatch:
    """Wraps vLLM's `KVCacheMetricsCollector` and records evicted blocks.

    Args:
        inner: vLLM's own collector; None unless `--kv-cache-metrics` is on.

    Attributes:
        evicted: Id and hash of each block evicted since the last `take`.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.evicted: list[tuple[int, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def on_block_evicted(self, block: Any) -> None:
        """Record a block that is about to be reused, if its contents were cached."""
        key = block.block_hash
        if key is not None:
            self.evicted.append((block.block_id, key[:-_GROUP_BYTES]))
        if self.inner is not None:
            self.inner.on_block_evicted(block)

    def on_block_allocated(self, block: Any) -> None:
        """Forward to vLLM's collector."""
        if self.inner is not None:
            self.inner.on_block_allocated(block)

    def on_block_accessed(self, block: Any) -> None:
        """Forward to vLLM's collector."""
        if self.inner is not None:
            self.inner.on_block_accessed(block)

    def reset(self) -> None:
        """Discard what was recorded: the cache was reset on request."""
        self.evicted.clear()
        if self.inner is not None:
            self.inner.reset()

    def take(self) -> list[tuple[int, bytes]]:
        """Return `evicted` and clear it."""
        evicted, self.evicted = self.evicted, []
        return evicted
