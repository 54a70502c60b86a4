"""Read entries from the backend; its failures are counted and logged once, and fail no request."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from evenkeel.error_guard import ErrorGuard
from evenkeel_runtime.response_cache.backend import Backend, BackendError, RefusedError
from evenkeel_runtime.response_cache.counts import CacheCounts
from evenkeel_runtime.response_cache.entry import CacheEntry, CorruptEntryError, decode_entry
from evenkeel_runtime.response_cache.neighbours import Neighbours

logger = logging.getLogger(__name__)

T = TypeVar("T")


class StoredEntries:
    """The entries of a backend that may be down, or hold rubbish.

    Args:
        backend: Storage of the entries.
        index: The questions that can be compared.
        counts: The cache's counters.
        clock: Unix time in seconds.

    Attributes:
        unremoved: Ids of entries that were to be deleted but may still be stored; they count as
            missing. Each has a mark of its own for each time that it was added.
    """

    def __init__(
        self,
        backend: Backend,
        index: Neighbours,
        counts: CacheCounts,
        clock: Callable[[], float],
    ) -> None:
        self.backend = backend
        self.unremoved: dict[str, object] = {}
        self._index = index
        self._counts = counts
        self._clock = clock
        self._is_out = False
        self._outage = ErrorGuard(
            logger.warning,
            "cache backend not responding, the model answers instead: %s",
            expected=BackendError,
        )
        self._lag = ErrorGuard(
            logger.warning,
            "cache backend too slow to list the entries of other runtimes, near ones are missing "
            "until it does: %s",
            expected=BackendError,
        )
        self._refusal = ErrorGuard(logger.warning, "cache backend refuses: %s", RefusedError)
        self._corruption = ErrorGuard(
            logger.warning,
            "corrupt cache entry deleted, the model answers instead; further ones "
            "are only counted: %s",
            expected=CorruptEntryError,
        )

    async def fetch(
        self, entry_ids: Sequence[str], *, is_use: bool = True
    ) -> dict[str, CacheEntry] | None:
        """Return the live entries, and drop the others from the index; None if that fails."""
        if not entry_ids:
            return {}
        reading = self.backend.read(entry_ids, is_use=is_use)
        found = await self.call(reading, None) if is_use else await self.call_aside(reading)
        if found is None:
            return None
        entries = {}
        for entry_id, data in zip(entry_ids, found, strict=True):
            entry = None
            if data is not None and entry_id not in self.unremoved:
                entry = await self._decode(data, entry_id)
            if entry is None or entry.expires_at_s <= self._clock():
                self._index.remove(entry_id)
            else:
                entries[entry_id] = entry
        return entries

    async def call(self, asked: Awaitable[T], otherwise: T) -> T:
        """Call the backend; if it does not respond, count it and log it once."""
        try:
            answer = await asked
        except BackendError as error:
            self._counts.errors["backend"] += 1
            if isinstance(error, RefusedError):
                self._refusal.record(error)
            else:
                self._is_out = True
                self._outage.record(error)
            return otherwise
        if self._outage.clear():
            self._is_out = False
            logger.warning("cache backend responding again")
        return answer

    async def call_aside(self, asked: Awaitable[T]) -> T | None:
        """Call the backend for no request; None if that fails, which says nothing of requests."""
        try:
            answer = await asked
        except BackendError as error:
            self._counts.errors["backend"] += 1
            if not self._is_out:
                self._lag.record(error)
            return None
        self._lag.clear()
        return answer

    async def _decode(self, data: bytes, entry_id: str) -> CacheEntry | None:
        try:
            return decode_entry(data, entry_id)
        except CorruptEntryError as error:
            self._counts.errors["corrupt_entry"] += 1
            self._corruption.record(error)
            await self.call(self.backend.delete([entry_id]), 0)
            return None
