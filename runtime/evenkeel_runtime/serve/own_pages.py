"""Our own pages beside vLLM's API, and the one rule of who may see them.

A page that says anything of requests, tenants or load asks for the server's API key where it has
one (`--api-key`, VLLM_API_KEY); the metrics are open, as vLLM's own are. vLLM checks keys itself,
but only below `/v1`, `/v2`, `/inference` and `/cohere`, and behind this middleware.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from prometheus_client import REGISTRY
from starlette.types import ASGIApp, Receive, Scope, Send

from evenkeel_runtime.adapter.vllm import read_api_keys
from evenkeel_runtime.asgi import open_metrics
from evenkeel_runtime.asgi.page import Asked, Headers, PageResponse, answer_error, answer_json
from evenkeel_runtime.asgi.path import route_path
from evenkeel_runtime.control.service import ControlService
from evenkeel_runtime.request import why
from evenkeel_runtime.request.arrival import find_engine

OWN_PAGES = "evenkeel_runtime.serve.own_pages.OwnPagesMiddleware"


class PageAccess(StrEnum):
    """Who may see a page."""

    API_KEY = "api key"
    OPEN = "open"


Respond = Callable[[Asked], Awaitable[PageResponse]]


@dataclass(frozen=True, slots=True)
class OwnPage:
    """One of our pages.

    Attributes:
        path: Its path; one that ends in a slash has others below it.
        access: Who may see it.
        find: Returns what answers on this server, from vLLM's engine client and the headers; None
            where nothing does, and vLLM answers.
        methods: The methods that it knows; HEAD comes with GET.
    """

    path: str
    access: PageAccess
    find: Callable[[Any, Headers], Respond | None]
    methods: tuple[str, ...] = ("GET",)


def _find_control(engine: Any, _: Headers) -> Respond | None:
    service = getattr(engine, "control", None)
    if not isinstance(service, ControlService):
        return None

    async def respond(_: Asked) -> PageResponse:
        return answer_json(200, service.describe())

    return respond


def _find_why(engine: Any, _: Headers) -> Respond | None:
    client = getattr(getattr(engine, "hook", None), "why", None)
    return client.respond if isinstance(client, why.WhyClient) else None


def _find_cache(engine: Any, _: Headers) -> Respond | None:
    cached = getattr(engine, "cache", None)
    if cached is None:
        return None
    # Only a server with a cache has what this imports.
    from evenkeel_runtime.response_cache.page import CachePage

    return CachePage(cached.cache).respond


def _find_metrics(_: Any, headers: Headers) -> Respond | None:
    # In any other format vLLM answers.
    if not open_metrics.is_accepted(headers):
        return None

    async def respond(_: Asked) -> PageResponse:
        return PageResponse(200, open_metrics.write_page(REGISTRY), open_metrics.MEDIA_TYPE)

    return respond


PAGES = (
    OwnPage("/control", PageAccess.API_KEY, _find_control),
    OwnPage("/why/", PageAccess.API_KEY, _find_why),
    OwnPage("/v1/evenkeel/cache", PageAccess.API_KEY, _find_cache, ("GET", "DELETE", "POST")),
    OwnPage("/metrics", PageAccess.OPEN, _find_metrics),
)


class OwnPagesMiddleware:
    """Answers our pages to who may see them; passes everything else on.

    vLLM builds it from its dotted name (`--middleware`), so it finds keys and parts through the
    app. It stands inside the user's own middlewares: whom they turn away never comes here.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        # Websockets are never ours; OPTIONS shows nothing, and a browser sends it without a key.
        if scope["type"] == "http" and scope["method"] != "OPTIONS":
            path = route_path(scope)
            page = find_page(path)
            if page is not None:
                respond = page.find(find_engine(scope), scope["headers"])
                if respond is not None:
                    keys = read_api_keys(scope["app"].state.args)
                    await _send(scope, send, await _answer(page, respond, scope, path, keys))
                    return
        await self._app(scope, receive, send)


def find_page(path: str) -> OwnPage | None:
    """Return the page at a path; a slash at its end changes nothing."""
    asked = path.rstrip("/")
    for page in PAGES:
        if page.path.endswith("/"):
            if asked.startswith(page.path):
                return page
        elif asked == page.path:
            return page
    return None


def may_see(page: OwnPage, headers: Headers, api_keys: Sequence[str]) -> bool:
    """Whether a caller may see a page of a server with these API keys."""
    return page.access is PageAccess.OPEN or not api_keys or _has_key(headers, api_keys)


def _has_key(headers: Headers, api_keys: Sequence[str]) -> bool:
    """Whether the first `Authorization` header names one of the keys, as vLLM reads it."""
    values = (value for name, value in headers if name == b"authorization")
    scheme, _, token = next(values, b"").decode("latin-1").partition(" ")
    given = hashlib.sha256(token.encode()).digest()
    is_known = False
    for key in api_keys:
        # Each is compared, in constant time: how long it takes says nothing of the keys.
        is_known |= hmac.compare_digest(given, hashlib.sha256(key.encode()).digest())
    return scheme.lower() == "bearer" and is_known


async def _answer(
    page: OwnPage, respond: Respond, scope: Scope, path: str, api_keys: Sequence[str]
) -> PageResponse:
    if not may_see(page, scope["headers"], api_keys):
        return answer_error(401, "Unauthorized")
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    if method not in page.methods:
        allowed = ", ".join(("HEAD", "OPTIONS", *page.methods)).encode()
        said = answer_error(405, f"expected {' or '.join(page.methods)}")
        return replace(said, headers=((b"allow", allowed),))
    # The server has decoded the path once.
    rest = path.removeprefix(page.path).rstrip("/") if page.path.endswith("/") else ""
    return await respond(Asked(method, rest, scope.get("query_string", b""), scope["headers"]))


async def _send(scope: Scope, send: Send, answer: PageResponse) -> None:
    headers = [
        (b"content-type", answer.media_type),
        (b"content-length", str(len(answer.body)).encode()),
        (b"cache-control", b"no-store"),
        *answer.headers,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else answer.body
    await send({"type": "http.response.body", "body": body})
