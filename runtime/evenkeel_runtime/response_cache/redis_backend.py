"""Entries in Redis, shared by several runtimes.

Redis may evict any key when it is full. So what finds an entry for its deletion is one value that
holds for it alone, in `details`, and an entry without it is not there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import urlsplit

from redis import asyncio as redis_asyncio
from redis.exceptions import RedisError, ResponseError

from evenkeel_runtime.response_cache.backend import CallGuard, Changes, Size

# In each key: runtimes that keep entries in another way have keys of their own.
_LAYOUT = "2"
_FEED_LENGTH = 20_000
_CHUNK = 500


class RedisBackend:
    """Stores entries in Redis, which handles expiry, the byte limit and eviction.

    Args:
        url: `redis://…`, `rediss://…` or `unix://…`.
        prefix: Prefix of each key.
        max_bytes: Maximum bytes of entries over all runtimes.
        timeout_s: Longest that a request waits for Redis.

    Raises:
        ValueError: If the address is none of Redis.
        TypeError: If it has an option that there is not, or that cannot have its value.
    """

    def __init__(self, url: str, prefix: str, max_bytes: int, timeout_s: float) -> None:
        address = urlsplit(url)
        database = address.path.strip("/")
        if address.scheme != "unix" and database and not database.isdecimal():
            # The client would take database 0.
            raise ValueError("the path of the address is not a database number")
        self._client: Any = redis_asyncio.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s
        )
        try:
            # Its options are read when a connection is made; this one stays closed.
            self._client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        except Exception as error:
            # Of any kind: each option has a check of its own.
            raise TypeError("the address has an invalid option") from error
        self._prefix = prefix
        self._max_bytes = max_bytes
        folder = Path(__file__).parent
        self._write = self._client.register_script((folder / "redis_write.lua").read_text())
        self._delete = self._client.register_script((folder / "redis_delete.lua").read_text())
        self._feed_id: str | None = None
        # A key that holds something else, such as another program's, is no number or no text.
        errors = (RedisError, OSError, ValueError)
        self._guard = CallGuard("Redis", timeout_s, errors, refusals=ResponseError)
        # What no request waits for: if it is too slow, requests are answered all the same.
        self._upkeep = CallGuard("Redis", timeout_s, errors, self._forget, ResponseError)

    def _key(self, *parts: str) -> str:
        return ":".join((self._prefix, _LAYOUT, *parts))

    def _forget(self) -> None:
        """Rebuild the index after an outage: changes announced meanwhile may be lost."""
        self._feed_id = None

    async def read(self, entry_ids: Sequence[str], *, is_use: bool = True) -> list[bytes | None]:
        """Return the entry for each id; None if missing or expired."""
        if not entry_ids:
            return []
        async with (self._guard if is_use else self._upkeep).call():
            async with self._client.pipeline(transaction=False) as pipeline:
                pipeline.mget([self._key("entry", i) for i in entry_ids])
                pipeline.hmget(self._key("details"), entry_ids)
                entries, details = await pipeline.execute()
            found = [
                data if known is not None else None
                for data, known in zip(entries, details, strict=True)
            ]
            seen = {i: time() for i, data in zip(entry_ids, found, strict=True) if data is not None}
            if seen and is_use:
                # A Redis that is full, or only read from, has them all the same.
                with suppress(ResponseError):
                    await self._client.zadd(self._key("recency"), seen, xx=True)
            return found

    async def write(
        self, entry_id: str, data: bytes, ttl_s: float, tags: Sequence[str]
    ) -> Sequence[str]:
        """Store an entry; return the ids of the entries evicted for it."""
        if len(data) > self._max_bytes:
            # All others would make room for it, and in vain.
            await self.delete([entry_id])
            return [entry_id]
        keys = [
            self._key("entry", entry_id),
            *self._own_keys(),
        ]
        arguments: list[str | bytes | int | float] = [
            entry_id,
            data,
            max(1, round(ttl_s * 1000)),
            time(),
            len(data),
            self._max_bytes,
            self._key("entry", ""),
            _FEED_LENGTH,
            " ".join((str(len(data)), *tags)),
        ]
        async with self._guard.call():
            evicted = await self._write(keys, arguments)
            return [_text(entry_id) for entry_id in evicted]

    async def delete(self, entry_ids: Sequence[str]) -> int:
        """Remove entries; return how many were removed."""
        removed = 0
        for start in range(0, len(entry_ids), _CHUNK):
            chunk = entry_ids[start : start + _CHUNK]
            async with self._guard.call():
                arguments: list[str | int] = [self._key("entry", ""), _FEED_LENGTH, *chunk]
                removed += int(await self._delete(self._own_keys(), arguments))
        return removed

    async def find_tagged(self, tag: str) -> list[str]:
        """Return the ids of the entries that were written with this tag."""
        return sorted({i async for i, known in self._scan(self._guard) if tag in known.split()[1:]})

    async def find_all(self) -> list[str]:
        """Return the ids of all entries, including expired ones not evicted yet."""
        return list({i: None async for i, _ in self._scan(self._guard)})

    async def _scan(self, guard: CallGuard) -> AsyncIterator[tuple[str, str]]:
        """Yield each entry's id and details, some perhaps twice, with a call per page."""
        place = None
        while place != 0:
            async with guard.call():
                place, found = await self._client.hscan(
                    self._key("details"), place or 0, count=_CHUNK
                )
            for entry_id, known in found.items():
                yield _text(entry_id), _text(known)

    async def read_changes(self) -> Changes:
        """Return the changes since the last call; all entries at first and after a gap."""
        feed = self._key("feed")
        async with self._upkeep.call():
            is_rebuilt = self._feed_id is None or await self._has_gap(feed)
            last = await self._client.xrevrange(feed, count=1) if is_rebuilt else []
        if is_rebuilt:
            # What changes during the scan, and may be missing in it, comes after this.
            feed_id = _text(last[0][0]) if last else "0-0"
            ids = list({i: None async for i, _ in self._scan(self._upkeep)})
            self._feed_id = feed_id
            return Changes(added=ids, is_complete=True)
        async with self._upkeep.call():
            streams = await self._client.xread({feed: self._feed_id}, count=_CHUNK)
            added: dict[str, None] = {}
            removed: dict[str, None] = {}
            for _, items in streams.items() if isinstance(streams, dict) else streams:
                for item_id, fields in _flatten(items):
                    self._feed_id = _text(item_id)
                    for name, value in fields.items():
                        here, there = (
                            (added, removed) if _text(name) == "added" else (removed, added)
                        )
                        here[_text(value)] = None
                        there.pop(_text(value), None)
            return Changes(list(added), list(removed))

    async def _has_gap(self, feed: str) -> bool:
        first = await self._client.xrange(feed, count=1)
        return (
            bool(first) and self._feed_id != "0-0" and _order(first[0][0]) > _order(self._feed_id)
        )

    async def measure(self) -> Size:
        """Return the size, including expired entries not evicted yet."""
        async with self._guard.call():
            entries = int(await self._client.hlen(self._key("details")))
            # Less than nothing if Redis has evicted the total.
            return Size(entries, max(0, int(await self._client.get(self._key("total")) or 0)))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _own_keys(self) -> list[str]:
        return [self._key(name) for name in ("recency", "details", "total", "feed")]


def _flatten(items: Any) -> Any:
    """RESP3 nests a stream's items one level deeper than RESP2."""
    if items and isinstance(items[0], list) and items[0] and isinstance(items[0][0], tuple | list):
        return items[0]
    return items


def _order(item_id: Any) -> tuple[int, int]:
    milliseconds, _, number = _text(item_id).partition("-")
    return int(milliseconds), int(number or 0)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
