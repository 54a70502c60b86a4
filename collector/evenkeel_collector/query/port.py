"""The query port: the part of ClickHouse's HTTP protocol that clients use to read."""

from __future__ import annotations

import asyncio
import email.parser
import email.policy
import json
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from isal import igzip

from evenkeel_collector.ports.access import (
    Access,
    AccessScope,
    ForbiddenError,
    UnauthenticatedError,
    secret_of,
)
from evenkeel_collector.ports.body import (
    DisconnectedError,
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
from evenkeel_collector.query.engine import DEFAULT_FORMAT, Query, QueryEngine, QueryError, Result
from evenkeel_collector.query.names import FRESH
from evenkeel_collector.telemetry.metrics import SelfMetrics

MAX_BODY_BYTES = 4 << 20
# Queries that run or wait for a thread; each waiting query holds its text in memory.
MAX_IN_HAND = 128
CANCEL_AGAIN_S = 0.2
MIN_COMPRESSED_BYTES = 4096
GZIP_LEVEL = 1
# Protocol parameters: accepted from any client, without effect. Session ids have none because each
# query has its own session.
TRANSPORT_PARAMETERS = frozenset({
    "buffer_size", "cancel_http_readonly_queries_on_client_close", "client_protocol_version",
    "compress", "decompress", "enable_http_compression", "http_headers_progress_interval_ms",
    "http_wait_end_of_query", "password", "query_id", "quota_key", "role",
    "send_progress_in_http_headers", "session_check", "session_id", "session_timeout", "user",
    "wait_end_of_query",
})  # fmt: skip
# The statuses that ClickHouse uses for these codes (src/Server/HTTP/exceptionCodeToHTTPStatus).
STATUS_OF_CODE = {
    36: 400, 53: 400, 62: 400, 43: 400, 47: 404, 46: 404, 60: 404, 81: 404, 115: 404,
    159: 408, 164: 500, 202: 503, 241: 500,
}  # fmt: skip


class QueryHttpApp:
    """The ASGI application of the query port.

    Args:
        engine: Runs the queries.
        metrics: Counts the queries.
        access: Decides who may query.
        hosts: Host names that requests may use.
        make_visible: Called before each query, in its thread: waits until the store has everything
            acknowledged so many seconds before; None: the usual number.
    """

    def __init__(
        self,
        engine: QueryEngine,
        metrics: SelfMetrics,
        access: Access,
        hosts: KnownHosts,
        make_visible: Callable[[float | None], None] = lambda rest_s: None,
    ) -> None:
        self._make_visible = make_visible
        self._engine = engine
        self._metrics = metrics
        self._access = access
        self._hosts = hosts
        self._num_in_hand = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await answer_http(self._answer, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        refusal = self._hosts.refusal(scope)
        if refusal is not None:
            self._metrics.queries_refused.inc()
            return refusal
        path, method = scope["path"], scope["method"]
        if path in ("/ping", "/replicas_status"):
            return Response(200, b"Ok.\n")
        if path not in ("/", ""):
            return Response(404, b"There is no handle " + path.encode()[:200] + b"\n")
        if method not in ("GET", "HEAD", "POST"):
            return Response(405, b"use GET or POST\n", headers={"allow": "GET, POST"})
        headers = read_headers(scope)
        parameters = dict(
            parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        )
        try:
            secret = secret_of(headers) or parameters.get("password")
            tenant = self._access.check(secret, AccessScope.QUERY)
        except (UnauthenticatedError, ForbiddenError) as error:
            return _denial(error)
        try:
            body = await read_body(receive, MAX_BODY_BYTES)
            body = decompress(body, headers.get("content-encoding", "").lower(), MAX_BODY_BYTES)
        except (TooLargeError, BadEncodingError) as error:
            return _failure(QueryError(62, f"Code: 62. DB::Exception: {error}. (SYNTAX_ERROR)"))
        if "\0" in scope["query_string"].decode("latin-1"):
            return Response(400, b"bad query string\n")
        fields, body = _split_form(headers, body)
        query = _read_query({**parameters, **fields}, headers, body, tenant)
        return await self._run(query, headers, parameters, receive)

    async def _run(
        self,
        query: Query,
        headers: Mapping[str, str],
        parameters: Mapping[str, str],
        receive: Receive,
    ) -> Response:
        if not query.sql.strip():
            # ClickHouse's answer to a browser that opens its port.
            return Response(200, b"Ok.\n")
        if self._num_in_hand >= MAX_IN_HAND:
            message = f"{MAX_IN_HAND} queries are running or queued; retry later"
            return _failure(QueryError(202, f"Code: 202. DB::Exception: {message}."))
        begin_s = time.perf_counter()
        self._num_in_hand += 1
        try:
            result = await self._run_unless_left(query, receive)
        except QueryError as error:
            if error.code == 164:
                self._metrics.queries_refused.inc()
            return _failure(error)
        finally:
            self._num_in_hand -= 1
            self._metrics.query_seconds.observe(time.perf_counter() - begin_s)
        return _success(
            result, parameters.get("query_id") or str(uuid.uuid4()), self._engine, headers
        )

    def _run_fresh(self, query: Query) -> Result:
        self._make_visible(0.0 if query.settings.get(FRESH) == "1" else None)
        return self._engine.run(query)

    async def _run_unless_left(self, query: Query, receive: Receive) -> Result:
        """Return the result; cancel the query if the client disconnects.

        Raises:
            QueryError: As `QueryEngine.run`.
            DisconnectedError: If the client disconnected.
        """
        running = self._engine.pool.submit(self._run_fresh, query)
        future: asyncio.Future[Any] = asyncio.wrap_future(running)
        leaving: asyncio.Future[Any] = asyncio.ensure_future(_wait_until_left(receive))
        try:
            await asyncio.wait({future, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                result: Result = future.result()
                return result
            self._metrics.queries_cancelled.inc()
            # The query may not have started yet and so not be found: try again.
            while not future.done():
                if running.cancel():
                    break
                await asyncio.to_thread(self._engine.cancel, query)
                await asyncio.wait({future}, timeout=CANCEL_AGAIN_S)
            if not future.cancelled() and future.done():
                future.exception()
            raise DisconnectedError
        finally:
            leaving.cancel()


async def _wait_until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _read_query(
    parameters: Mapping[str, str], headers: Mapping[str, str], body: bytes, tenant: str | None
) -> Query:
    """Build the query: the URL's part, then the body."""
    sql = "\n".join(
        part
        for part in (parameters.get("query", ""), body.decode("utf-8", errors="surrogateescape"))
        if part
    )
    settings = {
        name: value
        for name, value in parameters.items()
        if name not in TRANSPORT_PARAMETERS
        and not name.startswith("param_")
        and name not in ("query", "database", "default_format")
    }
    return Query(
        sql=sql,
        database=parameters.get("database", headers.get("x-clickhouse-database", "")),
        settings=settings,
        parameters={
            name[len("param_") :]: value
            for name, value in parameters.items()
            if name.startswith("param_")
        },
        default_format=parameters.get("default_format")
        or headers.get("x-clickhouse-format")
        or DEFAULT_FORMAT,
        tenant=tenant,
    )


def _split_form(headers: Mapping[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
    """Return the fields of a multipart form; clients send long queries and parameters that way."""
    content_type = headers.get("content-type", "")
    if not content_type.startswith("multipart/form-data"):
        return {}, body
    parser = email.parser.BytesParser(policy=email.policy.HTTP)
    message = parser.parsebytes(
        b"Content-Type: " + content_type.encode("latin-1") + b"\r\n\r\n" + body
    )
    fields = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        payload = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(payload, bytes):
            fields[name] = payload.decode("utf-8", errors="surrogateescape")
    return fields, b""


def _success(
    result: Result, query_id: str, engine: QueryEngine, request_headers: Mapping[str, str]
) -> Response:
    headers = {
        "x-clickhouse-query-id": query_id,
        "x-clickhouse-format": result.format,
        "x-clickhouse-timezone": engine.timezone,
        "x-clickhouse-server-display-name": "evenkeel",
        "x-clickhouse-summary": json.dumps(
            {
                "read_rows": str(result.rows_read),
                "read_bytes": str(result.bytes_read),
                "written_rows": "0",
                "written_bytes": "0",
                "elapsed_ns": str(int(result.elapsed_s * 1e9)),
            }
        ),
    }
    body = result.data
    if len(body) >= MIN_COMPRESSED_BYTES and "gzip" in request_headers.get("accept-encoding", ""):
        body = igzip.compress(body, GZIP_LEVEL)
        headers["content-encoding"] = "gzip"
    return Response(
        200, body, _CONTENT_TYPES.get(result.format, "text/plain; charset=UTF-8"), headers
    )


def _denial(error: UnauthenticatedError | ForbiddenError) -> Response:
    is_unknown = isinstance(error, UnauthenticatedError)
    code, name = (516, "AUTHENTICATION_FAILED") if is_unknown else (497, "ACCESS_DENIED")
    headers = {"x-clickhouse-exception-code": str(code)}
    if is_unknown:
        headers["www-authenticate"] = 'Basic realm="evenkeel"'
    text = f"Code: {code}. DB::Exception: {error}. ({name})\n"
    return Response(401 if is_unknown else 403, text.encode(), headers=headers)


def _failure(error: QueryError) -> Response:
    return Response(
        STATUS_OF_CODE.get(error.code, 500),
        f"{error}\n".encode(errors="surrogateescape"),
        headers={"x-clickhouse-exception-code": str(error.code)},
    )


_CONTENT_TYPES = {
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "JSON": "application/json; charset=UTF-8",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8; header=absent",
    "Native": "application/octet-stream",
    "RowBinary": "application/octet-stream",
    "Arrow": "application/octet-stream",
    "Parquet": "application/octet-stream",
}
