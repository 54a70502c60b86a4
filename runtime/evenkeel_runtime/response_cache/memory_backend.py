"""Entries in this process's memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import time

from evenkeel_runtime.response_cache.backend import Changes, Size

# Python's own overhead for an entry, and its two vectors in the index.
OVERHEAD_BYTES = 3072


@dataclass(frozen=True, slots=True)
class _StoredEntry:
    data: bytes
    expires_at_s: float
    tags: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.data) + OVERHEAD_BYTES


class MemoryBackend:
    """Evicts least recently used entries once `max_bytes` is reached.

    Args:
        max_bytes: Maximum memory, including OVERHEAD_BYTES per entry.
        clock: Unix time in seconds.
    """

    def __init__(self, max_bytes: int, clock: Callable[[], float] = time) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._kept: OrderedDict[str, _StoredEntry] = OrderedDict()
        self._tagged: dict[str, set[str]] = {}
        self._bytes = 0

    async def read(self, entry_ids: Sequence[str], *, is_use: bool = True) -> list[bytes | None]:
        """Return the entry for each id; None if missing or expired."""
        return [self._read(entry_id, is_use) for entry_id in entry_ids]

    def _read(self, entry_id: str, is_use: bool) -> bytes | None:
        kept = self._kept.get(entry_id)
        if kept is None:
            return None
        if kept.expires_at_s <= self._clock():
            self._drop(entry_id)
            return None
        if is_use:
            self._kept.move_to_end(entry_id)
        return kept.data

    async def write(
        self, entry_id: str, data: bytes, ttl_s: float, tags: Sequence[str]
    ) -> Sequence[str]:
        """Store an entry; return the ids of the entries evicted for it."""
        self._drop(entry_id)
        kept = _StoredEntry(data, self._clock() + ttl_s, tuple(tags))
        if kept.size > self._max_bytes:
            return [entry_id]
        self._kept[entry_id] = kept
        self._bytes += kept.size
        for tag in kept.tags:
            self._tagged.setdefault(tag, set()).add(entry_id)
        evicted = []
        while self._bytes > self._max_bytes:
            oldest = next(iter(self._kept))
            self._drop(oldest)
            evicted.append(oldest)
        return evicted

    async def delete(self, entry_ids: Sequence[str]) -> int:
        """Remove entries; return how many were removed."""
        return sum(self._drop(entry_id) for entry_id in entry_ids)

    async def find_tagged(self, tag: str) -> list[str]:
        """Return the ids of the entries that were written with this tag."""
        return sorted(self._tagged.get(tag, ()))

    async def find_all(self) -> list[str]:
        """Return the ids of all entries."""
        return list(self._kept)

    async def read_changes(self) -> Changes:
        """Return no changes: this memory is not shared."""
        return Changes()

    async def measure(self) -> Size:
        """Return the size, including expired entries not yet read again."""
        return Size(len(self._kept), self._bytes)

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _drop(self, entry_id: str) -> bool:
        kept = self._kept.pop(entry_id, None)
        if kept is None:
            return False
        self._bytes -= kept.size
        for tag in kept.tags:
            ids = self._tagged[tag]
            ids.discard(entry_id)
            if not ids:
                del self._tagged[tag]
        return True
