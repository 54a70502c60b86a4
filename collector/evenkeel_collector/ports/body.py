"""The minimal ASGI request and response handling of the collector's two HTTP ports."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from evenkeel_collector.ports.decompress import TooLargeError

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# A body over its limit is still read and discarded, up to this many times the limit, so that the
# sender gets the response instead of a connection reset.
DISCARD_FACTOR = 4
# google.rpc.Code
INTERNAL = 13


class DisconnectedError(Exception):
    """The client disconnected before its request was complete; no response is possible."""


class MediaTypeError(Exception):
    """The Content-Type is not accepted."""


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP response."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(self, send: Send) -> None:
        """Send it through ASGI."""
        headers = {
            "content-type": self.content_type,
            "content-length": str(len(self.body)),
            **self.headers,
        }
        await send(
            {
                "type": "http.response.start",
                "status": self.status,
                "headers": [(k.encode("latin-1"), _header_value(v)) for k, v in headers.items()],
            }
        )
        await send({"type": "http.response.body", "body": self.body})


def _header_value(text: str) -> bytes:
    """Return a header's value; what a header cannot hold, such as a line break, becomes `?`."""
    printable = "".join(char if char.isprintable() else "?" for char in text)
    return printable.encode("latin-1", "replace")


Answer = Callable[[Scope, Receive], Awaitable[Response]]


async def answer_http(answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the response that `answer` returns, unless the client has disconnected."""
    if scope["type"] != "http":
        return
    try:
        response = await answer(scope, receive)
    except DisconnectedError:
        return
    except Exception:
        # The outermost guard of a port: any failure gets the usual error response.
        logger.exception("request failed method=%s path=%s", scope["method"], scope["path"][:100])
        failure = {"code": INTERNAL, "message": "internal error; see the collector's log"}
        response = Response(500, json.dumps(failure).encode(), "application/json")
    await response.send(send)


def read_headers(scope: Scope) -> dict[str, str]:
    """Return the request's headers by lower-case name."""
    return {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}


def media_type_of(headers: Mapping[str, str]) -> str:
    """Return the media type of a body, without its parameters; "" if none is given."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(receive: Receive, limit_bytes: int) -> bytes:
    """Return the whole body as it was sent, still compressed.

    Raises:
        TooLargeError: If it is larger than `limit_bytes`.
        DisconnectedError: If the client disconnects before the end.
    """
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= limit_bytes:
            chunks.append(chunk)
        else:
            chunks.clear()
        if not message.get("more_body") or size > limit_bytes * DISCARD_FACTOR:
            break
    if size > limit_bytes:
        raise TooLargeError(f"body is larger than {limit_bytes} bytes")
    return b"".join(chunks)
