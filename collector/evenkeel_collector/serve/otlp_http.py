"""The OTLP/HTTP port: the three signals; `/metrics`, `/healthz`, `/readyz`; operators' API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from fastapi import FastAPI
from google.rpc import code_pb2
from google.rpc.status_pb2 import Status
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from evenkeel_collector.intake.intake import (
    DEFAULT_MEMORY_FACTOR,
    MEMORY_FACTORS,
    REFUSALS,
    Intake,
    message_of,
    response_headers,
)
from evenkeel_collector.intake.signals import JSON, PROTOBUF, SIGNALS, Signal
from evenkeel_collector.operators.api import is_api_path
from evenkeel_collector.ports.access import (
    AccessScope,
    ForbiddenError,
    UnauthenticatedError,
    secret_of,
)
from evenkeel_collector.ports.body import (
    MediaTypeError,
    Receive,
    Response,
    Scope,
    Send,
    answer_http,
    media_type_of,
    read_body,
    read_headers,
)
from evenkeel_collector.ports.decompress import decompress

TRANSPORT = "http"
SIGNAL_OF_PATH: Mapping[str, Signal] = {signal.path: signal for signal in SIGNALS}


class OtlpHttpApp:
    """The ASGI application of the OTLP/HTTP port.

    Args:
        intake: Accepts the bodies.
        max_body_bytes: The limit of a body, before and after decompression.
        is_ready: Returns None if the collector is ready, else the reason for `/readyz`.
        api: Serves the paths of `evenkeel_collector.operators.api`.
    """

    def __init__(
        self,
        intake: Intake,
        max_body_bytes: int,
        is_ready: Callable[[], str | None],
        api: FastAPI,
    ) -> None:
        self._intake = intake
        self._max_body_bytes = max_body_bytes
        self._is_ready = is_ready
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and is_api_path(scope["path"]):
            await self._api(scope, receive, send)
            return
        await answer_http(self._answer, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        path, method, headers = scope["path"], scope["method"], read_headers(scope)
        signal = SIGNAL_OF_PATH.get(path)
        if signal is not None:
            if method != "POST":
                return _failure(405, JSON, code_pb2.UNIMPLEMENTED, "use POST", {"allow": "POST"})
            try:
                return await self._take(signal, headers, receive)
            except tuple(REFUSALS) as error:
                self._intake.count_rejected(TRANSPORT, error)
                return _refusal(error, _answer_type(headers))
        if method not in ("GET", "HEAD"):
            return _failure(
                404, _answer_type(headers), code_pb2.NOT_FOUND,
                f"no endpoint at {path[:100]}; use {' or '.join(SIGNAL_OF_PATH)}",
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
                raise ForbiddenError(
                    "/metrics covers all tenants, but this token is limited to one"
                )
        except (UnauthenticatedError, ForbiddenError) as error:
            return _refusal(error, JSON)
        text = generate_latest(self._intake.metrics.registry)
        return Response(200, text, CONTENT_TYPE_LATEST)

    async def _take(self, signal: Signal, headers: Mapping[str, str], receive: Receive) -> Response:
        tenant = self._intake.tenant_of(headers)
        content_type = media_type_of(headers)
        factor = MEMORY_FACTORS.get(content_type, DEFAULT_MEMORY_FACTOR)
        with self._intake.memory.lease(self._expected_bytes(headers)) as lease:
            body = await read_body(receive, self._max_body_bytes)
            if content_type not in signal.parsers:
                raise MediaTypeError(
                    f"Content-Type {content_type[:100]!r} is not supported; "
                    f"use {PROTOBUF} or {JSON}"
                )
            encoding = headers.get("content-encoding", "").strip().lower()
            plain = decompress(body, encoding, self._max_body_bytes)
            lease.resize(len(body) + len(plain) * factor)
            await self._intake.take(signal, content_type, plain, tenant, TRANSPORT)
        # Full success leaves partial_success unset: an empty message in either encoding.
        return Response(200, b"{}" if content_type == JSON else b"", content_type)

    def _expected_bytes(self, headers: Mapping[str, str]) -> int:
        """Return the memory to reserve for the body; an unknown length counts as the maximum."""
        length = headers.get("content-length", "")
        return (
            min(int(length), self._max_body_bytes) if length.isdecimal() else self._max_body_bytes
        )


def _answer_type(headers: Mapping[str, str]) -> str:
    content_type = media_type_of(headers)
    return content_type if content_type in (PROTOBUF, JSON) else JSON


def _refusal(error: Exception, content_type: str) -> Response:
    codes = REFUSALS[type(error)]
    headers = response_headers(error)
    return _failure(codes.status, content_type, codes.rpc_code, message_of(error), headers)


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
