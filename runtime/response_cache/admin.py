"""The cache's own page of the API: what it does, and deletion by subject or tenant."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any
from urllib.parse import parse_qs

from runtime.page import Answer, Asked, answer_error, answer_json
from runtime.response_cache.backend import BackendError
from runtime.response_cache.cache import ResponseCache

_WRONG_DELETE = "give ?tenant=NAME (empty for requests without one), and &subject=NAME for a person"


class CachePage:
    """The page itself; who may see it is decided by `runtime.own_pages`."""

    def __init__(self, cache: ResponseCache) -> None:
        self._cache = cache

    async def respond(self, asked: Asked) -> Answer:
        """Describe the cache, or delete from it."""
        if asked.method == "GET":
            return answer_json(200, await describe(self._cache))
        return await self._delete(asked.query)

    async def _delete(self, query: bytes) -> Answer:
        try:
            wanted = parse_qs(query.decode(), keep_blank_values=True, strict_parsing=True)
        except ValueError:
            wanted = {}
        if "tenant" not in wanted or set(wanted) - {"tenant", "subject"}:
            return answer_error(400, _WRONG_DELETE)
        tenant = wanted["tenant"][0]
        try:
            if "subject" in wanted:
                num_deleted = await self._cache.delete_subject(tenant, wanted["subject"][0])
            else:
                num_deleted = await self._cache.delete_tenant(tenant)
        except BackendError as error:
            return answer_error(503, f"nothing is sure to be deleted, try again: {error}")
        return answer_json(200, {"deleted": num_deleted})


async def describe(cache: ResponseCache) -> dict[str, Any]:
    """Return what the cache does, as JSON values."""
    size = await cache.measure()
    # Not asdict, which makes of a Counter one that counts its pairs.
    counts = {field.name: getattr(cache.counts, field.name) for field in fields(cache.counts)}
    counts["verdicts"] = {
        f"{layer} {word}": n for (layer, word), n in cache.counts.verdicts.items()
    }
    return {
        "size": None if size is None else asdict(size),
        "indexed": len(cache.index),
        "counts": counts,
        "routes": {
            route: {
                "serves_from": control.threshold,
                "limit": control.limit,
                "evidence": [asdict(rung) for rung in control.rungs],
            }
            for route, control in cache.controls.items()
        },
        "near_misses": [asdict(miss) for miss in cache.near_misses],
    }
