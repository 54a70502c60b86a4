"""The cache's own page of the API: what it does, modes of routes, deletion by subject or tenant."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any
from urllib.parse import parse_qs

from evenkeel_runtime.asgi.page import Asked, PageResponse, answer_error, answer_json
from evenkeel_runtime.response_cache.backend import BackendError
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.route_modes import SETTABLE, FixedModeError, UnknownRouteError

_WRONG_MODE = "give ?route=NAME&mode=shadow, or mode=serve for what the cache's file says"
_WRONG_DELETE = "give ?tenant=NAME (empty for requests without one), and &subject=NAME for a person"


class CachePage:
    """The page itself; who may see it is decided by `evenkeel_runtime.serve.own_pages`."""

    def __init__(self, cache: ResponseCache) -> None:
        self._cache = cache

    async def respond(self, asked: Asked) -> PageResponse:
        """Describe the cache, put a route into shadow and back, or delete from it."""
        if asked.method == "GET":
            return answer_json(200, await describe(self._cache))
        if asked.method == "POST":
            return self._set_mode(asked)
        return await self._delete(asked.query)

    def _set_mode(self, asked: Asked) -> PageResponse:
        # A browser sends a POST without a body from any page, and names the page.
        if any(name == b"origin" for name, _ in asked.headers):
            return answer_error(403, "not from a page of a browser")
        wanted = _read_query(asked.query)
        words = {mode.value: mode for mode in SETTABLE}
        if set(wanted) != {"route", "mode"} or wanted["mode"] not in words:
            return answer_error(400, _WRONG_MODE)
        try:
            before, now = self._cache.modes.set(wanted["route"], words[wanted["mode"]])
        except UnknownRouteError as error:
            return answer_error(404, str(error))
        except FixedModeError as error:
            return answer_error(409, str(error))
        return answer_json(200, {"route": wanted["route"], "mode": now, "was": before})

    async def _delete(self, query: bytes) -> PageResponse:
        wanted = _read_query(query)
        if "tenant" not in wanted or set(wanted) - {"tenant", "subject"}:
            return answer_error(400, _WRONG_DELETE)
        tenant = wanted["tenant"]
        try:
            if "subject" in wanted:
                num_deleted = await self._cache.delete_subject(tenant, wanted["subject"])
            else:
                num_deleted = await self._cache.delete_tenant(tenant)
        except BackendError as error:
            return answer_error(503, f"nothing is sure to be deleted, try again: {error}")
        return answer_json(200, {"deleted": num_deleted})


def _read_query(query: bytes) -> dict[str, str]:
    """Return the first value of each parameter; nothing where they cannot be read."""
    try:
        parsed = parse_qs(query.decode(), keep_blank_values=True, strict_parsing=True)
    except ValueError:
        return {}
    return {name: values[0] for name, values in parsed.items()}


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
        "modes": cache.modes.describe(),
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
