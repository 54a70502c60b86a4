"""The cache's page behind vLLM's own API keys, without a server."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from runtime.response_cache import vllm_parts
from runtime.response_cache.admin import PATH, Page
from runtime.response_cache.audit import AuditLog
from runtime.response_cache.cache import ResponseCache
from runtime.response_cache.memory_backend import MemoryBackend
from tests.unit.runtime.response_cache.questions import SERVING, entry, question

pytestmark = pytest.mark.integration


async def call(method: str, query: str, authorization: str | None, keys: list[str]) -> int:
    cache = ResponseCache(SERVING, MemoryBackend(1 << 20), None, AuditLog(None))
    asked = question()
    await cache.keep(asked, entry(asked), None)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    headers = [] if authorization is None else [(b"authorization", authorization.encode())]
    scope = {
        "type": "http",
        "method": method,
        "path": PATH,
        "query_string": query.encode(),
        "headers": headers,
    }
    page = vllm_parts.require_api_key(Page(cache), Namespace(api_key=keys))
    await page(scope, receive, send)
    left = await cache.find_exact(asked)
    status: int = sent[0]["status"]
    # Nothing but a good answer to DELETE deletes.
    assert (left is None) == (method == "DELETE" and status == 200)
    await cache.close()
    return status


@pytest.mark.parametrize(
    ("method", "query", "authorization", "status"),
    [
        ("GET", "", None, 401),
        ("GET", "", "Bearer wrong", 401),
        ("GET", "", "Bearer key", 200),
        ("DELETE", "tenant=acme", None, 401),
        ("DELETE", "tenant=acme", "Bearer key", 200),
        ("DELETE", "", "Bearer key", 400),
        ("DELETE", "subject=ann", "Bearer key", 400),
        ("DELETE", "tenant=acme&user=ann", "Bearer key", 400),
        ("POST", "", "Bearer key", 405),
    ],
)
async def test_the_page_asks_for_the_key(
    method: str, query: str, authorization: str | None, status: int
) -> None:
    assert await call(method, query, authorization, ["key"]) == status


async def test_without_keys_it_is_as_open_as_the_rest_of_the_api() -> None:
    assert await call("GET", "", None, []) == 200
