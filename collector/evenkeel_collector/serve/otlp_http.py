"""The OTLP/HTTP port: traces, metrics and feedback; `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from google.rpc import code_pb2
from google.rpc.status_pb2 import Status
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from evenkeel_collector.intake import feedback
from evenkeel_collector.intake.canonical import MalformedError
from evenkeel_collector.intake.intake import (
    DEFAULT_MEMORY_FACTOR,
    MEMORY_FACTORS,
    REASONS,
    RETRY_AFTER_S,
    Intake,
    message_of,
)
from evenkeel_collector.intake.signals import JSON, PROTOBUF, SIGNALS, Signal
from evenkeel_collector.log.write_ahead_log import LogFullError, LogWriteError
from evenkeel_collector.operators.api import PREFIX, OperatorApi
from evenkeel_collector.ports.access import (
    AccessScope,
    ForbiddenError,
    UnauthenticatedError,
    secret_of,
)
from evenkeel_collector.ports.body import (
    Receive,
    Response,
    Scope,
    Send,
    answer_http,
    read_body,
    read_headers,
)
from evenkeel_collector.ports.decompress import BadEncodingError, TooLargeError, decompress
from evenkeel_collector.ports.hosts import KnownHosts
from evenkeel_collector.ports.memory_budget import BusyError
from evenkeel_collector.ports.tenant_limits import RateLimitedError

TRANSPORT = "http"
SIGNAL_OF_PATH: Mapping[str, Signal] = {signal.path: signal for signal in SIGNALS}
TRACES = SIGNAL_OF_PATH["/v1/traces"]
# The status of each refusal, in HTTP and in google.rpc.
STATUSES: Mapping[type[Exception], tuple[int, int]] = {
    MalformedError: (400, code_pb2.INVALID_ARGUMENT),
    BadEncodingError: (400, code_pb2.INVALID_ARGUMENT),
    UnauthenticatedError: (401, code_pb2.UNAUTHENTICATED),
    ForbiddenError: (403, code_pb2.PERMISSION_DENIED),
    TooLargeError: (413, code_pb2.RESOURCE_EXHAUSTED),
    RateLimitedError: (429, code_pb2.RESOURCE_EXHAUSTED),
    LogFullError: (503, code_pb2.UNAVAILABLE),
    LogWriteError: (503, code_pb2.UNAVAILABLE),
    BusyError: (503, code_pb2.UNAVAILABLE),
}


class OtlpHttpApp:
    """The ASGI application of the OTLP/HTTP port.

    Args:
        intake: Where bodies go.
        max_body_bytes: The most a body may hold, before and after decompression.
        is_ready: Says what `/readyz` answers: None when ready, else why not.
        api: Answers `/api/…`.
        hosts: By which names `/api/…` is asked.
    """

    def __init__(
        self,
        intake: Intake,
        max_body_bytes: int,
        is_ready: Callable[[], str | None],
        api: OperatorApi,
        hosts: KnownHosts,
    ) -> None:
        self._intake = intake
        self._max_body_bytes = max_body_bytes
        self._is_ready = is_ready
        self._api = api
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await answer_http(self._answer, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        path, method, headers = scope["path"], scope["method"], read_headers(scope)
        if path.startswith(PREFIX):
            return self._hosts.refusal(scope) or await self._api.answer(scope, receive)
        signal = SIGNAL_OF_PATH.get(path)
        if signal is not None:
            if method != "POST":
                return _failure(405, JSON, code_pb2.UNIMPLEMENTED, "use POST", {"allow": "POST"})
            try:
                return await self._take(signal, headers, receive)
            except tuple(REASONS) as error:
                self._intake.count_rejected(TRANSPORT, error)
                return _refusal(error, _answer_type(headers))
        if path == feedback.PATH and method == "POST":
            try:
                return await self._take_feedback(headers, receive)
            except tuple(REASONS) as error:
                self._intake.count_rejected(TRANSPORT, error)
                return _refusal(error, JSON)
        if method not in ("GET", "HEAD"):
            return _failure(
                404, _answer_type(headers), code_pb2.NOT_FOUND,
                f"nothing is accepted at {path[:100]}; use {' or '.join(SIGNAL_OF_PATH)}",
            )  # fmt: skip
        if path == "/metrics":
            return self._show_metrics(headers)
        if path == "/healthz":
            return Response(200, b"ok\n")
        if path == "/readyz":
            reason = self._is_ready()
            if reason is not None:
                return Response(503, f"{reason}\n".encode())
            return Response(200, b"ready\n")
        return Response(404, b"not found\n")

    def _show_metrics(self, headers: Mapping[str, str]) -> Response:
        try:
            if self._intake.access.check(secret_of(headers), AccessScope.QUERY) is not None:
                raise ForbiddenError("/metrics tells of all tenants, this token is of one")
        except (UnauthenticatedError, ForbiddenError) as error:
            return _refusal(error, JSON)
        text = generate_latest(self._intake.metrics.registry)
        return Response(200, text, CONTENT_TYPE_LATEST)

    async def _take(self, signal: Signal, headers: Mapping[str, str], receive: Receive) -> Response:
        tenant = self._intake.tenant_of(headers)
        content_type = _media_type(headers)
        factor = MEMORY_FACTORS.get(content_type, DEFAULT_MEMORY_FACTOR)
        with self._intake.memory.lease(self._expected_bytes(headers)) as lease:
            body = await read_body(receive, self._max_body_bytes)
            if content_type not in signal.parsers:
                self._intake.metrics.requests_rejected.labels(TRANSPORT, "content_type").inc()
                return _failure(
                    415, JSON, code_pb2.INVALID_ARGUMENT,
                    f"Content-Type {content_type[:100]!r} is not supported; "
                    f"use {PROTOBUF} or {JSON}",
                )  # fmt: skip
            encoding = headers.get("content-encoding", "").strip().lower()
            plain = decompress(body, encoding, self._max_body_bytes)
            lease.resize(len(body) + len(plain) * factor)
            await self._intake.take(signal, content_type, plain, tenant, TRANSPORT)
        # Full success leaves partial_success unset: an empty message in either encoding.
        return Response(200, b"{}" if content_type == JSON else b"", content_type)

    async def _take_feedback(self, headers: Mapping[str, str], receive: Receive) -> Response:
        tenant = self._intake.tenant_of(headers)
        if _media_type(headers) != JSON:
            # Also keeps web pages of others out: a browser asks before it sends them JSON.
            self._intake.metrics.requests_rejected.labels(TRANSPORT, "content_type").inc()
            return _failure(415, JSON, code_pb2.INVALID_ARGUMENT, f"send {JSON}")
        with self._intake.memory.lease(feedback.MAX_BODY_BYTES):
            said = feedback.read_feedback(await read_body(receive, feedback.MAX_BODY_BYTES))
            span_id, body = feedback.to_span(said)
            await self._intake.take(TRACES, PROTOBUF, body, tenant, TRANSPORT)
        return Response(200, feedback.receipt(said, span_id), JSON)

    def _expected_bytes(self, headers: Mapping[str, str]) -> int:
        """Return what reading the body may take; unknown lengths count as the largest."""
        length = headers.get("content-length", "")
        return (
            min(int(length), self._max_body_bytes) if length.isdecimal() else self._max_body_bytes
        )


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").split(";")[0].strip().lower()


def _answer_type(headers: Mapping[str, str]) -> str:
    content_type = _media_type(headers)
    return content_type if content_type in (PROTOBUF, JSON) else JSON


def _refusal(error: Exception, content_type: str) -> Response:
    status, code = STATUSES[type(error)]
    headers = {}
    if isinstance(error, RateLimitedError):
        headers["retry-after"] = str(error.retry_after_s)
    elif status == 503:
        headers["retry-after"] = str(RETRY_AFTER_S)
    elif status == 401:
        headers["www-authenticate"] = "Bearer"
    return _failure(status, content_type, code, message_of(error), headers)


def _failure(
    status: int, content_type: str, code: int, message: str, headers: dict[str, str] | None = None
) -> Response:
    """Return a google.rpc.Status in the encoding of the request."""
    if content_type == PROTOBUF:
        body = Status(code=code, message=message).SerializeToString()
    else:
        content_type = JSON
        body = json.dumps({"code": code, "message": message}).encode()
    return Response(status, body, content_type, headers or {})
