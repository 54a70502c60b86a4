"""`GET /metrics` as OpenMetrics for who asks for it: with exemplars that lead to traces.

vLLM's own page is always in Prometheus' text format, which has no exemplars.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

OPEN_METRICS_MIDDLEWARE = "runtime.open_metrics.OpenMetricsMiddleware"
_PATH = "/metrics"
_MEDIA_TYPE = "application/openmetrics-text"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class OpenMetricsMiddleware:
    """Answers `GET /metrics` where the caller accepts OpenMetrics; passes everything else on."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if not is_asked_for(scope):
            await self._app(scope, receive, send)
            return
        body = write_page(REGISTRY)
        headers = [
            (b"content-type", CONTENT_TYPE_LATEST.encode()),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def write_page(registry: CollectorRegistry) -> bytes:
    """Return all metrics in OpenMetrics' format, their names as they are.

    prometheus_client's default for names, "underscores", also takes the colon of `vllm:` for a
    character that OpenMetrics does not allow, in samples but not in their TYPE lines.
    """
    write: Any = generate_latest
    if "escaping" not in inspect.signature(write).parameters:
        page: bytes = write(registry)
    else:
        page = write(registry, escaping="allow-utf-8")
    return page


def is_asked_for(scope: Scope) -> bool:
    """Whether a connection asks for the metrics in OpenMetrics' format."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return False
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    if path.rstrip("/") != _PATH:
        return False
    accepted = [value for name, value in scope["headers"] if name == b"accept"]
    return any(_MEDIA_TYPE in value.decode("latin-1") for value in accepted)
