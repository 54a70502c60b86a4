"""Keep the index in line with what other runtimes write to a shared backend."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from evenkeel.embedding import Encoder
from evenkeel_runtime.response_cache.backend import Changes
from evenkeel_runtime.response_cache.entry import CacheEntry
from evenkeel_runtime.response_cache.neighbours import Neighbours
from evenkeel_runtime.response_cache.stored_entries import StoredEntries

# Entries that are read and indexed at once: each takes up to 1 ms.
_NUM_AT_ONCE = 20


class OtherRuntimes:
    """Follows the changes by other runtimes.

    Args:
        entries: The entries.
        index: The questions that can be compared.
        encoder: Encodes questions; None if no route compares meanings.
    """

    def __init__(self, entries: StoredEntries, index: Neighbours, encoder: Encoder | None) -> None:
        self._entries = entries
        self._index = index
        self._encoder = encoder
        # New entries that are not read yet: those that a failure leaves are read next time.
        self._unread: dict[str, None] = {}

    async def follow(self) -> None:
        """Apply the changes since the last call, as far as the backend responds."""
        changes = await self._entries.call_aside(self._entries.backend.read_changes())
        if changes is None:
            return
        self._apply(changes)
        while self._unread:
            ids = list(islice(self._unread, _NUM_AT_ONCE))
            # Read for the index only: nobody asked for them.
            found = await self._entries.fetch(ids, is_use=False)
            if found is None:
                return
            for entry_id in ids:
                # One that cannot be indexed holds up none of the others.
                self._unread.pop(entry_id, None)
                if entry_id in found:
                    self._add(found[entry_id])

    def _apply(self, changes: Changes) -> None:
        gone: Sequence[str] = changes.removed
        if changes.is_complete:
            self._unread.clear()
            gone = self._index.list_others(changes.added)
        for entry_id in gone:
            self._unread.pop(entry_id, None)
            self._index.remove(entry_id)
        if self._encoder is not None:
            new = (entry_id for entry_id in changes.added if entry_id not in self._index)
            self._unread.update(dict.fromkeys(new))

    def _add(self, entry: CacheEntry) -> None:
        if entry.is_comparable and self._encoder is not None:
            sketch = self._encoder.sketch(entry.question)
            if sketch is not None:
                self._index.add_entry(entry, sketch)
