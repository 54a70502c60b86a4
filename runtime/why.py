"""`GET /why/{request_id}`: where the time of one recent request went, as JSON."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec
import zmq
import zmq.asyncio

from runtime.caller import read_headers

logger = logging.getLogger(__name__)

PATH = "/why/"
WHY_MIDDLEWARE = "runtime.why.WhyMiddleware"
_TIMEOUT_S = 3.0
_MAX_ID_CHARS = 1024

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class WhyClient:
    """Asks the exporter process about requests; belongs to the server's event loop.

    Args:
        address: Where the exporter answers.
        api_keys: vLLM's; any of them is asked for where there is one.
        decode: Text of token ids, where the text of prompts may be shown; None where it may not.
    """

    def __init__(
        self,
        address: str,
        api_keys: Sequence[str] = (),
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        self.api_keys = api_keys
        self._address = address
        self._decode = decode
        self._context = zmq.asyncio.Context()

    async def ask(self, request_id: str, tenant: str | None) -> bytes | None:
        """Return the JSON about a request; None where nothing is known of it.

        Args:
            request_id: Its id in the response.
            tenant: Who asks; None sees all.

        Raises:
            TimeoutError: If the exporter does not answer, because it is gone or being replaced.
        """
        socket = self._context.socket(zmq.REQ)
        socket.set(zmq.LINGER, 0)
        try:
            socket.connect(self._address)
            await socket.send_multipart([request_id.encode(), (tenant or "").encode()])
            body: bytes = await asyncio.wait_for(socket.recv(), _TIMEOUT_S)
        finally:
            socket.close()
        return self._show_text(body) if body else None

    def close(self) -> None:
        """Let go of the sockets; questions that wait get no answer."""
        self._context.destroy(linger=0)

    def _show_text(self, body: bytes) -> bytes:
        """Put the text around a divergence in the place of its token ids, or nothing."""
        answer = msgspec.json.decode(body)
        diverged = (answer["prefix_cache"] or {}).get("diverged")
        if diverged is not None:
            for whose in ("own", "its"):
                tokens = diverged.pop(f"{whose}_tokens")
                if self._decode is not None and tokens:
                    diverged[f"{whose}_text"] = self._decode(tokens)
        return msgspec.json.encode(answer)


class WhyMiddleware:
    """Answers `GET /why/{request_id}`, and passes everything else on.

    vLLM builds it from its dotted name (`--middleware`). It stands before vLLM's own check of the
    API key, so it makes the same check; a caller that names a tenant sees that tenant's requests.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        request_id = _asked_for(scope)
        client = None if request_id is None else find_client(scope)
        if request_id is None or client is None:
            await self._app(scope, receive, send)
            return
        if not is_allowed(scope, client.api_keys):
            await _respond(send, 401, _error("Unauthorized"))
            return
        tenant = read_headers(scope["headers"]).caller.tenant
        try:
            body = await client.ask(request_id, tenant)
        except (TimeoutError, zmq.ZMQError) as error:
            logger.warning("/why has no answer: %r", error)
            await _respond(send, 503, _error("the exporter process does not answer, try again"))
            return
        if body is None:
            message = f"no finished request {request_id!r} among the recent ones"
            await _respond(send, 404, _error(message))
            return
        await _respond(send, 200, body)


def find_client(scope: Scope) -> WhyClient | None:
    """Return what answers for the server of this connection; None where it has no ledgers."""
    hook = getattr(getattr(scope["app"].state, "engine_client", None), "hook", None)
    client = getattr(hook, "why", None)
    return client if isinstance(client, WhyClient) else None


def is_allowed(scope: Scope, api_keys: Sequence[str]) -> bool:
    """Whether the connection names one of the API keys, or none is asked for."""
    if not api_keys:
        return True
    headers = dict(scope["headers"])
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    given = hashlib.sha256(token.encode()).digest()
    is_known = False
    for key in api_keys:
        # Each is compared, in constant time: how long it takes says nothing of the keys.
        is_known |= hmac.compare_digest(given, hashlib.sha256(key.encode()).digest())
    return scheme.lower() == "bearer" and is_known


def _asked_for(scope: Scope) -> str | None:
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    request_id = unquote(path.removeprefix(PATH)) if path.startswith(PATH) else ""
    return request_id[:_MAX_ID_CHARS] or None


def _error(message: str) -> bytes:
    return msgspec.json.encode({"error": message})


async def _respond(send: Send, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
