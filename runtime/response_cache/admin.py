"""The cache's own page of the API: what it does, and deletion by subject or tenant."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import asdict, fields
from typing import Any
from urllib.parse import parse_qs

from runtime.response_cache import vllm_parts
from runtime.response_cache.backend import BackendError
from runtime.response_cache.cache import ResponseCache
from runtime.response_cache.cached_engine import CachedEngine

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

PATH = "/v1/evenkeel/cache"
_WRONG_DELETE = "give ?tenant=NAME (empty for requests without one), and &subject=NAME for a person"


class CacheAdminMiddleware:
    """Answers PATH, behind the same API keys as the rest of `/v1`; all else passes.

    vLLM builds it from its dotted name (`--middleware`), so it finds the cache through the app.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._guarded: App | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        if scope["type"] != "http" or path != PATH:
            await self._app(scope, receive, send)
            return
        state = scope["app"].state
        cached = getattr(getattr(state, "engine_client", None), "cache", None)
        if not isinstance(cached, CachedEngine):
            await _reply(send, 503, {"error": "the cache is not running"})
            return
        if self._guarded is None:
            self._guarded = vllm_parts.require_api_key(Page(cached.cache), state.args)
        await self._guarded(scope, receive, send)


class Page:
    """The page itself; who may see it is decided around it."""

    def __init__(self, cache: ResponseCache) -> None:
        self._cache = cache

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] == "GET":
            await _reply(send, 200, await describe(self._cache))
        elif scope["method"] == "DELETE":
            await _reply(send, *await self._delete(scope.get("query_string", b"")))
        else:
            await _reply(send, 405, {"error": "GET or DELETE"})

    async def _delete(self, query: bytes) -> tuple[int, dict[str, Any]]:
        try:
            asked = parse_qs(query.decode(), keep_blank_values=True, strict_parsing=True)
        except ValueError:
            asked = {}
        if "tenant" not in asked or set(asked) - {"tenant", "subject"}:
            return 400, {"error": _WRONG_DELETE}
        tenant = asked["tenant"][0]
        try:
            if "subject" in asked:
                num_deleted = await self._cache.delete_subject(tenant, asked["subject"][0])
            else:
                num_deleted = await self._cache.delete_tenant(tenant)
        except BackendError as error:
            return 503, {"error": f"nothing is sure to be deleted, try again: {error}"}
        return 200, {"deleted": num_deleted}


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


async def _reply(send: Send, status: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
