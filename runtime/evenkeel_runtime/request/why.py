"""`GET /why/{request_id}`: where the time of one recent request went, as JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec
import zmq
import zmq.asyncio

from evenkeel.spans import HEADER_TENANT
from evenkeel_runtime.asgi.page import Asked, PageResponse, answer_error
from evenkeel_runtime.request.headers import read_headers

logger = logging.getLogger(__name__)

_TIMEOUT_S = 3.0
_MAX_ID_CHARS = 1024


class WhyClient:
    """Asks the exporter process about requests; belongs to the server's event loop.

    Args:
        address: Where the exporter answers.
        decode: Text of token ids, where the text of prompts may be shown; None where it may not.
    """

    def __init__(
        self,
        address: str,
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        self._address = address
        self._decode = decode
        self._context = zmq.asyncio.Context()

    async def respond(self, asked: Asked) -> PageResponse:
        """Answer for the request that the path names; a tenant sees its own requests only."""
        request_id = asked.rest[:_MAX_ID_CHARS]
        read = read_headers(asked.headers)
        if HEADER_TENANT in read.malformed:
            # Without a tenant everybody's requests are shown.
            return answer_error(400, f"{HEADER_TENANT} cannot be read")
        try:
            body = await self.ask(request_id, read.caller.tenant)
        except (TimeoutError, zmq.ZMQError) as error:
            logger.warning("/why has no answer: %r", error)
            return answer_error(503, "the exporter process does not answer, try again")
        if body is None:
            return answer_error(404, f"no finished request {request_id!r} among the recent ones")
        return PageResponse(200, body)

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
