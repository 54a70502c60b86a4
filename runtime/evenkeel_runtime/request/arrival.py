"""ASGI middleware that timestamps each request, identifies its caller and follows its response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenkeel.spans import COMPRESSION_SAVED_TOKENS, COMPRESSION_VERDICT, HEADER_CACHE
from evenkeel_runtime.compression.compressor import Compressor
from evenkeel_runtime.request import content, conversation
from evenkeel_runtime.request.headers import read_headers
from evenkeel_runtime.request.hook import RequestHook
from evenkeel_runtime.request.trace import (
    CURRENT_REQUEST,
    OPERATION_UNKNOWN,
    HttpRequest,
    Refusal,
    charge_to,
)
from evenkeel_runtime.wire.cause import Cause

# gen_ai.operation.name by path, in the words of the OpenTelemetry GenAI conventions.
OPERATION_OF_PATH = {
    "/v1/chat/completions": "chat",
    "/v1/chat/completions/batch": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/cohere/v2/chat": "chat",
    "/v1/completions": "text_completion",
    "/inference/v1/generate": "text_completion",
    "/v1/embeddings": "embeddings",
    "/v2/embed": "embeddings",
    "/pooling": "embeddings",
    "/classify": "embeddings",
    "/score": "embeddings",
    "/v1/score": "embeddings",
    "/rerank": "embeddings",
    "/v1/rerank": "embeddings",
    "/v2/rerank": "embeddings",
    "/generative_scoring": OPERATION_UNKNOWN,
    "/v1/systemone": OPERATION_UNKNOWN,
    # The request body determines the operation.
    "/invocations": OPERATION_UNKNOWN,
    "/v1/audio/transcriptions": OPERATION_UNKNOWN,
    "/v1/audio/translations": OPERATION_UNKNOWN,
}
_MAX_ERROR_BYTES = 64 * 1024
_MAX_NAME_CHARS = 128
_CHAT_PATH = "/v1/chat/completions"
_MAX_COMPRESSED_BYTES = 1 << 18


class ArrivalMiddleware:
    """Tracks requests to the model's endpoints and passes all others through unchanged.

    vLLM instantiates it by dotted name (`--middleware`), so it finds the hook through the app.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        operation = _operation(scope)
        hook = None if operation is None else _find_hook(scope)
        if operation is None or hook is None:
            await self._app(scope, receive, send)
            return
        caller = read_headers(scope["headers"])
        if caller.unreadable:
            hook.recorder.count_malformed_headers(caller.unreadable)
        request = HttpRequest(operation, caller, path=route_path(scope))
        exchange = _Exchange(hook, request, receive, send)
        token = CURRENT_REQUEST.set(request)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        finally:
            CURRENT_REQUEST.reset(token)
            exchange.keep_content()
            exchange.digest_messages()
            hook.finish_request(request, exchange.describe_refusal)


class _Exchange:
    """Observes the ASGI messages of one request between the server and vLLM's app."""

    def __init__(
        self,
        hook: RequestHook,
        request: HttpRequest,
        receive: Receive,
        send: Send,
    ) -> None:
        self._hook = hook
        self._request = request
        self._receive = receive
        self._send = send
        # Kept to name the error if the request fails, and to record content if that is enabled.
        self._answered = bytearray()
        # Without a session, earlier requests of the conversation are found by its messages.
        self._is_digested = request.operation == "chat" and request.caller.session_id is None
        # With a response cache, the response head is held until the first bytes arrive: only then
        # is it known whether the cache or the engine answers.
        self._holds_start = hook.has_cache
        self._start: Message | None = None
        self._compressor = _find_compressor(hook, request)
        # Whether body chunks can be forwarded without inspection.
        self._is_passing = False

    async def receive(self) -> Message:
        message = await self._receive()
        if self._compressor is not None and message["type"] == "http.request":
            compressor, self._compressor = self._compressor, None
            message = await self._compress(message, compressor)
        if message["type"] == "http.disconnect":
            self._hook.client_left(self._request)
        elif len(self._request.body) < conversation.MAX_BYTES:
            self._request.body += message.get("body", b"")
        return message

    async def _compress(self, first: Message, compressor: Compressor) -> Message:
        """Read and compress the body; return it unchanged if it exceeds the size limit."""
        body = bytearray(first.get("body", b""))
        has_more = first.get("more_body", False)
        while has_more and len(body) < _MAX_COMPRESSED_BYTES:
            message = await self._receive()
            if message["type"] != "http.request":
                # The client disconnected mid-body; the app learns this when it reads the rest.
                self._hook.client_left(self._request)
                break
            body += message.get("body", b"")
            has_more = message.get("more_body", False)
        whole = {**first, "body": bytes(body), "more_body": has_more}
        if has_more:
            return whole
        try:
            loop = asyncio.get_running_loop()
            route = self._request.caller.route
            with charge_to(self._request, Cause.HOST_COMPRESSION):
                done = await loop.run_in_executor(None, compressor.compress, bytes(body), route)
        except Exception as error:
            self._hook.recorder.record_internal_error(error)
            return whole
        if done.verdict is not None:
            self._request.compression = {
                COMPRESSION_VERDICT: done.verdict,
                COMPRESSION_SAVED_TOKENS: done.saved_tokens,
            }
        if done.body != whole["body"]:
            self._request.sent = whole["body"]
        return {**whole, "body": done.body}

    def send(self, message: Message) -> Awaitable[None]:
        # Not a coroutine function: this runs once per token, and a second coroutine costs more.
        if self._is_passing and message.get("more_body"):
            return self._send(message)
        if message["type"] == "http.response.start":
            self._request.http_status = message["status"]
            self._is_passing = (
                message["status"] < 400 and not self._holds_start and not self._hook.records_content
            )
            if self._holds_start:
                self._start = message
                return _nothing()
        else:
            if self._is_answer_kept():
                self._answered += message.get("body", b"")
            if not message.get("more_body", False) and not self._request.has_client_left:
                self._request.is_complete = True
            if self._start is not None:
                start, self._start = self._start, None
                return self._send_both(start, message)
        return self._send(message)

    def _is_answer_kept(self) -> bool:
        if (self._request.http_status or 0) >= 400:
            return len(self._answered) < _MAX_ERROR_BYTES
        return self._hook.records_content and len(self._answered) < content.MAX_BYTES

    def keep_content(self) -> None:
        """Record the request's input and output messages if content recording is enabled."""
        if not self._hook.records_content or (self._request.http_status or 0) >= 400:
            return
        try:
            self._request.input_messages = content.input_messages(bytes(self._request.body))
            self._request.output_messages = content.output_messages(bytes(self._answered))
        except Exception as error:
            self._hook.recorder.record_internal_error(error)

    def digest_messages(self) -> None:
        """Record digests of the messages of a request that names no session."""
        if not self._is_digested or (self._request.http_status or 0) >= 400:
            return
        try:
            # What we shorten or insert may differ in the next turn of the conversation.
            sent = self._request.body if self._request.sent is None else self._request.sent
            self._request.message_digests = conversation.digest(sent)
        except Exception as error:
            self._hook.recorder.record_internal_error(error)

    async def _send_both(self, start: Message, message: Message) -> None:
        layer = self._request.cache_header
        if layer is not None:
            start["headers"] = [*start["headers"], (HEADER_CACHE.encode(), layer.encode())]
        await self._send(start)
        await self._send(message)

    def describe_refusal(self) -> Refusal:
        """Return the requested model and the error type of a refused request, without its body."""
        http_status = self._request.http_status
        error = (content.read_object(self._answered) or {}).get("error")
        error_type = error.get("type") if isinstance(error, dict) else None
        if not isinstance(error_type, str) or not error_type:
            error_type = "unhandled" if http_status is None else f"http_{http_status}"
        model = (content.read_object(self._request.body) or {}).get("model")
        if not isinstance(model, str) or not model.strip().isprintable() or not model.strip():
            model = self._hook.model
        return Refusal(
            request_id=f"refused-{uuid4().hex}",
            model=model.strip()[:_MAX_NAME_CHARS],
            error_type=error_type[:_MAX_NAME_CHARS],
        )


def _find_compressor(hook: RequestHook, request: HttpRequest) -> Compressor | None:
    """Return what may shorten the request; None if nothing may, so that nothing holds it."""
    compressor = hook.compressor if request.path == _CHAT_PATH else None
    if compressor is None or not compressor.policy.covers(request.caller.route):
        return None
    return compressor


async def _nothing() -> None:
    """Send nothing: the response head is being held."""


def _operation(scope: Scope) -> str | None:
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    return OPERATION_OF_PATH.get(route_path(scope))


def route_path(scope: Scope) -> str:
    """Return the connection's path without the `--root-path` prefix.

    Follows Starlette's `get_route_path`: a proxy may or may not have stripped the prefix, and only
    whole segments match, so `/v` is not a prefix of `/v1`.
    """
    path: str = scope["path"]
    root: str = (scope.get("root_path") or "").rstrip("/")
    rest = path.removeprefix(root)
    return rest if rest.startswith("/") else path


def find_engine(scope: Scope) -> Any:
    """Return the engine client of the app that handles this connection, or None."""
    return getattr(scope["app"].state, "engine_client", None)


def _find_hook(scope: Scope) -> RequestHook | None:
    hook = getattr(find_engine(scope), "hook", None)
    return hook if isinstance(hook, RequestHook) else None
