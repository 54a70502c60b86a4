"""Answer our own pages alongside vLLM's API, and pass every other connection through unchanged."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenkeel_runtime.adapter.vllm import read_api_keys
from evenkeel_runtime.metrics import open_metrics
from evenkeel_runtime.request.arrival import find_engine, route_path
from evenkeel_runtime.serve.api import METRICS_PATH, list_paths, make_api

OWN_PAGES = "evenkeel_runtime.serve.own_pages.OwnPagesMiddleware"


class OwnPagesMiddleware:
    """Routes our pages to their own app; vLLM's requests never reach it.

    vLLM builds it from its dotted name (`--middleware`), so it finds keys and components through
    the app. It sits inside the user's own middleware: requests rejected there never get here.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._api = make_api()
        paths = list_paths(self._api)
        self._paths = frozenset(paths)
        self._prefixes = tuple(path.partition("{")[0] for path in paths if "{" in path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        # We have no websockets; OPTIONS exposes nothing, and browsers send it without a key.
        if scope["type"] == "http" and scope["method"] != "OPTIONS":
            path = route_path(scope).rstrip("/")
            if self._is_own(path, scope):
                await self._api(_enter(scope, path), receive, _finish(scope, send))
                return
        await self._app(scope, receive, send)

    def _is_own(self, path: str, scope: Scope) -> bool:
        if path == METRICS_PATH:
            # vLLM answers for any other format.
            return open_metrics.is_accepted(scope["headers"])
        return path in self._paths or path.startswith(self._prefixes)


def _enter(scope: Scope, path: str) -> Scope:
    """Return the scope for our app: its own path, and the state it needs from vLLM's app."""
    server = {"engine": find_engine(scope), "api_keys": read_api_keys(scope["app"].state.args)}
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    return {**scope, "method": method, "path": path, "root_path": "", "state": server}


def _finish(scope: Scope, send: Send) -> Send:
    """Return a `send` that marks the response as not cacheable and drops the body for a HEAD."""

    async def finish(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message["headers"], (b"cache-control", b"no-store")]
            message = {**message, "headers": headers}
        elif scope["method"] == "HEAD":
            message = {**message, "body": b""}
        await send(message)

    return finish
