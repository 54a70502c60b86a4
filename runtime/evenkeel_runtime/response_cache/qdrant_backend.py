"""Entries in Qdrant, shared by several runtimes.

Qdrant only stores them, without vectors: each runtime compares questions in its own index. Expiry,
the byte limit and eviction are ours, because Qdrant has none.
"""

from __future__ import annotations

import math
import warnings
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, time
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException

from evenkeel_runtime.response_cache.backend import CallGuard, Changes, Size

IN_MEMORY = ":memory:"
# Other runtimes' entries are found by the time of writing, on clocks that may differ by this much.
_CLOCK_SKEW_S = 10.0
# Other runtimes also write: the size is counted again after this time, or when it may be too large.
_COUNT_EVERY_S = 30.0
# Evict to this share of the limit, so that not every write has to count.
_KEPT_RATIO = 0.9
_PAGE = 1000
_ERRORS = (ApiException, QdrantException, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class _Stored:
    """An entry without its data."""

    entry_id: str
    size: int
    used_at_s: float
    expires_at_s: float


def connect(url: str, api_key: str | None, timeout_s: float) -> AsyncQdrantClient:
    """Return a client; connects at the first call.

    Args:
        url: `http://…` or `https://…`; IN_MEMORY stores in this process, for tests.
        api_key: Sent with each call if given.
        timeout_s: Longest that a call takes.
    """
    is_here = url == IN_MEMORY
    return AsyncQdrantClient(
        location=url if is_here else None,
        url=None if is_here else url,
        api_key=api_key,
        timeout=math.ceil(timeout_s),
        check_compatibility=False,
    )


class QdrantBackend:
    """Stores entries as points without vectors in one collection, created at the first call.

    Args:
        client: From `connect`.
        collection: Name of the collection.
        max_bytes: Maximum bytes of entries over all runtimes, before base64 (a third more).
        timeout_s: Longest that a request waits for one call.
    """

    def __init__(
        self, client: AsyncQdrantClient, collection: str, max_bytes: int, timeout_s: float
    ) -> None:
        self._client = client
        self._collection = collection
        self._max_bytes = max_bytes
        self._guard = CallGuard("Qdrant", timeout_s, _ERRORS, self._forget)
        # What no request waits for: if it is too slow, requests are answered all the same.
        self._upkeep = CallGuard("Qdrant", timeout_s, _ERRORS, self._forget)
        self._forget()

    def _forget(self) -> None:
        """Start over after an outage: the collection may be gone, and changes may be missed."""
        self._has_collection = False
        self._read_until_s: float | None = None
        self._bytes = 0
        self._counted_at_s = -math.inf

    async def _open(self) -> None:
        """Create the collection if it does not exist."""
        if self._has_collection:
            return
        if not await self._client.collection_exists(self._collection):
            try:
                await self._client.create_collection(self._collection, vectors_config={})
            except _ERRORS:
                # Another runtime may have created it meanwhile.
                if not await self._client.collection_exists(self._collection):
                    raise
        with warnings.catch_warnings():
            # Qdrant in this process has no payload indexes, and warns about each.
            warnings.filterwarnings("ignore", "Payload indexes have no effect")
            for field, kind in (
                ("tags", models.PayloadSchemaType.KEYWORD),
                ("written_at", models.PayloadSchemaType.FLOAT),
            ):
                await self._client.create_payload_index(self._collection, field, kind)
        self._has_collection = True

    async def read(self, entry_ids: Sequence[str], *, is_use: bool = True) -> list[bytes | None]:
        """Return the entry for each id; None if missing or expired."""
        if not entry_ids:
            return []
        async with (self._guard if is_use else self._upkeep).call():
            await self._open()
            points = await self._client.retrieve(
                self._collection,
                [_point_id(i) for i in entry_ids],
                with_payload=["id", "data", "expires_at"],
            )
            now_s = time()
            payloads = [p.payload for p in points if p.payload]
            found = {
                str(payload.get("id")): _decode(payload.get("data"))
                for payload in payloads
                if _number(payload, "expires_at") > now_s
            }
            if found and is_use:
                await self._client.set_payload(
                    self._collection,
                    {"used_at": now_s},
                    points=[_point_id(i) for i in found],
                    wait=False,
                )
            return [found.get(entry_id) for entry_id in entry_ids]

    async def write(
        self, entry_id: str, data: bytes, ttl_s: float, tags: Sequence[str]
    ) -> Sequence[str]:
        """Store an entry; return the ids of the entries evicted for it."""
        if len(data) > self._max_bytes:
            await self.delete([entry_id])
            return [entry_id]
        now_s = time()
        payload = {
            "id": entry_id,
            "data": b64encode(data).decode(),
            "size": len(data),
            "tags": list(tags),
            "written_at": now_s,
            "used_at": now_s,
            "expires_at": now_s + ttl_s,
        }
        point = models.PointStruct(id=_point_id(entry_id), vector={}, payload=payload)
        async with self._guard.call():
            await self._open()
            await self._client.upsert(self._collection, [point], wait=True)
        # An entry that is replaced counts twice until the next count.
        self._bytes += len(data)
        is_due = monotonic() - self._counted_at_s >= _COUNT_EVERY_S
        return await self._evict() if is_due or self._bytes > self._max_bytes else []

    async def _evict(self) -> list[str]:
        """Delete expired entries, and the least recently read ones beyond the limit."""
        stored = [each async for each in self._list(self._upkeep)]
        now_s = time()
        live = [each for each in stored if each.expires_at_s > now_s]
        gone = [each.entry_id for each in stored if each.expires_at_s <= now_s]
        total = sum(each.size for each in live)
        if total > self._max_bytes:
            live.sort(key=lambda each: each.used_at_s, reverse=True)
            # The newest stays: it fits, or it would not have been written.
            while len(live) > 1 and total > _KEPT_RATIO * self._max_bytes:
                oldest = live.pop()
                total -= oldest.size
                gone.append(oldest.entry_id)
        await self.delete(gone)
        self._bytes, self._counted_at_s = total, monotonic()
        return gone

    async def delete(self, entry_ids: Sequence[str]) -> int:
        """Remove entries; return how many were removed."""
        removed = 0
        for start in range(0, len(entry_ids), _PAGE):
            points: list[models.ExtendedPointId] = [
                _point_id(i) for i in entry_ids[start : start + _PAGE]
            ]
            async with self._guard.call():
                await self._open()
                known = await self._client.retrieve(self._collection, points, with_payload=False)
                await self._client.delete(self._collection, points, wait=True)
                removed += len(known)
        return removed

    async def find_tagged(self, tag: str) -> list[str]:
        """Return the ids of the entries that were written with this tag."""
        tagged = models.FieldCondition(key="tags", match=models.MatchValue(value=tag))
        return sorted([each.entry_id async for each in self._list(self._guard, tagged)])

    async def find_all(self) -> list[str]:
        """Return the ids of all entries, including expired ones not deleted yet."""
        return [each.entry_id async for each in self._list(self._guard)]

    async def read_changes(self) -> Changes:
        """Return the entries written since the last call; all entries at first and after an outage.

        Removed entries are not listed: a cache drops them from its index when it finds them gone.
        """
        since_s, now_s = self._read_until_s, time()
        written = None
        if since_s is not None:
            newer = models.Range(gte=since_s - _CLOCK_SKEW_S)
            written = models.FieldCondition(key="written_at", range=newer)
        added = [each.entry_id async for each in self._list(self._upkeep, written)]
        self._read_until_s = now_s
        return Changes(added, is_complete=since_s is None)

    async def measure(self) -> Size:
        """Return the size, including expired entries not deleted yet."""
        stored = [each async for each in self._list(self._upkeep)]
        return Size(len(stored), sum(each.size for each in stored))

    async def _list(
        self, guard: CallGuard, condition: models.FieldCondition | None = None
    ) -> AsyncIterator[_Stored]:
        """Yield the entries that meet a condition, with a call per page."""
        chosen = None if condition is None else models.Filter(must=[condition])
        offset: Any = None
        while True:
            async with guard.call():
                await self._open()
                points, offset = await self._client.scroll(
                    self._collection,
                    scroll_filter=chosen,
                    limit=_PAGE,
                    offset=offset,
                    with_payload=["id", "size", "used_at", "expires_at"],
                )
            for point in points:
                payload = point.payload or {}
                yield _Stored(
                    str(payload.get("id")),
                    int(_number(payload, "size")),
                    _number(payload, "used_at"),
                    _number(payload, "expires_at"),
                )
            if offset is None:
                return

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _point_id(entry_id: str) -> str:
    """Return the id of an entry's point: Qdrant takes numbers and UUIDs only."""
    return str(uuid5(NAMESPACE_OID, entry_id))


def _decode(data: object) -> bytes:
    """Return an entry's bytes; none, which are no valid entry, if it is not ours."""
    try:
        return b64decode(data) if isinstance(data, str) else b""
    except ValueError:
        return b""


def _number(payload: Mapping[str, object], field: str) -> float:
    value = payload.get(field)
    return float(value) if isinstance(value, int | float) else 0.0
