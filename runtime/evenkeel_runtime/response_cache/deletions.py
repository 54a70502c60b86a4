"""Delete answers on request: a person's, a tenant's, a route's, a prompt's, a source's, or all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.counts import CacheCounts
from evenkeel_runtime.response_cache.near_misses import NearMisses
from evenkeel_runtime.response_cache.neighbours import Neighbours
from evenkeel_runtime.response_cache.question import (
    route_tag,
    source_tag,
    subject_tag,
    tenant_tag,
)
from evenkeel_runtime.response_cache.stored_entries import StoredEntries
from evenkeel_runtime.text.guards import forget_texts

FlushKind = Literal["route", "prompt", "knowledge", "all"]
# With so many answers to remove, further ones are not stored: they may have to be removed, too.
_MOST_LEFT = 10_000


class Deletions:
    """Deletes answers from a cache.

    What is asked for raises BackendError if the backend fails; possibly nothing, or only a part,
    was deleted then.

    Args:
        entries: The entries.
        index: The questions that can be compared.
        near_misses: The near misses for review.
        counts: The cache's counters.
        audit: The audit log.

    Attributes:
        count: Deletions so far. An answer whose generation began at another count must not be
            stored, nor its question be listed: it may be one of those that were to be deleted.
    """

    def __init__(
        self,
        entries: StoredEntries,
        index: Neighbours,
        near_misses: NearMisses,
        counts: CacheCounts,
        audit: AuditLog,
    ) -> None:
        self._backend = entries.backend
        self._entries = entries
        self._index = index
        self._near_misses = near_misses
        self._counts = counts
        self._audit = audit
        self.count = 0

    @property
    def is_behind(self) -> bool:
        """Whether too many answers wait for their removal."""
        return len(self._entries.unremoved) >= _MOST_LEFT

    async def undo(self, entry_id: str) -> None:
        """Remove an answer that was stored during a deletion; until it is, it counts as missing."""
        self._index.remove(entry_id)
        left = {entry_id: object()}
        self._entries.unremoved |= left
        await self._remove(left)

    async def remove_left(self) -> None:
        """Remove the answers that `undo` could not, if the backend responds."""
        if self._entries.unremoved:
            await self._remove(dict(self._entries.unremoved))

    async def _remove(self, left: Mapping[str, object]) -> None:
        removal = self._backend.delete(list(left))
        if await self._entries.call(removal, None) is None:
            return
        for entry_id, mark in left.items():
            # Another mark: stored again meanwhile, perhaps after the removal.
            if self._entries.unremoved.get(entry_id) is mark:
                del self._entries.unremoved[entry_id]

    async def delete_subject(self, tenant: str, subject: str) -> int:
        """Delete all answers to one end user's requests; return how many."""
        # The hash, not the user: the log outlives the deleted answers.
        tag = subject_tag(tenant, subject)
        return await self._delete_tagged(tag, "deleted", "subject", tag)

    async def delete_tenant(self, tenant: str) -> int:
        """Delete all answers of a tenant; return how many."""
        tag = tenant_tag(tenant)
        return await self._delete_tagged(tag, "deleted", "tenant", tag)

    async def flush(self, kind: FlushKind, name: str = "") -> int:
        """Delete the answers of a route, a prompt or a source, or all; return how many.

        Args:
            kind: What `name` is.
            name: A route; a prompt or a source as `name` or `name@version`; unused for `all`.
        """
        if kind == "all":
            self._begin(None)
            return await self._delete(await self._backend.find_all(), "flushed", kind, "")
        tag = route_tag(name) if kind == "route" else source_tag(kind, name)
        return await self._delete_tagged(tag, "flushed", kind, name)

    async def _delete_tagged(self, tag: str, event: str, kind: str, name: str) -> int:
        self._begin(tag)
        return await self._delete(await self._backend.find_tagged(tag), event, kind, name)

    def _begin(self, tag: str | None) -> None:
        # Before the search: what is stored from here on began before the deletion.
        self.count += 1
        self._near_misses.delete(tag)
        forget_texts()

    async def _delete(self, ids: Sequence[str], event: str, kind: str, name: str) -> int:
        num_deleted = await self._backend.delete(ids)
        for entry_id in ids:
            self._index.remove(entry_id)
        self._counts.deleted += num_deleted
        self._audit.write(event, kind=kind, tag=name, entries=num_deleted)
        return num_deleted
