"""Where the time of one recent request went: the question, which the exporter process answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from pydantic import BaseModel, ConfigDict

_TIMEOUT_S = 3.0


class NoAnswerError(Exception):
    """The exporter process is gone or being replaced."""


class _Model(BaseModel):
    """Part of an answer; a field that it does not declare is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WithoutRival(_Model):
    """What the request would have been spared without one other request beside it."""

    request_id: str | None
    prefill_tokens: int
    decode_tokens: int
    spared_s: float
    text: str


class Eviction(_Model):
    """Whose prompt took the place of this one's in the prefix cache, and how long before."""

    before_arrival_s: float
    for_request: str | None


class Divergence(_Model):
    """Where the prompt left the nearest earlier one; the texts only come with `explain_text`."""

    at_token: int
    from_request: str | None
    static_tokens_behind: int
    own_text: str | None = None
    its_text: str | None = None


class PrefixCacheUse(_Model):
    """What the prefix cache had of the prompt, why not the rest, and what that cost."""

    prompt_tokens: int
    hit_tokens: int
    missed_tokens: int
    lost_tokens: int
    miss: str
    cost_s: float
    evicted: Eviction | None
    diverged: Divergence | None


class Cancellation(_Model):
    """What the engine still did for a request whose caller had left."""

    steps_after: int
    tokens_after: int
    engine_let_go_after_s: float


class RequestExplanation(_Model):
    """Where the time of one request went; docs/inside/ledger.md explains each field."""

    request_id: str
    trace_id: str
    model: str
    tenant: str | None
    status: str
    response_cache: str | None
    arrival: str
    ttft_s: float | None
    decode_s: float | None
    e2e_s: float
    ledger: dict[str, float] | None
    without: list[WithoutRival]
    shared_by: str | None
    model_error_ratio: float | None
    note: str | None
    prefix_cache: PrefixCacheUse | None
    cancelled: Cancellation | None


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

    async def ask(self, request_id: str, tenant: str | None) -> dict[str, Any] | None:
        """Return the fields of `RequestExplanation`; None if nothing is known of the request.

        Args:
            request_id: Its id in the response.
            tenant: Who asks; None sees all.

        Raises:
            NoAnswerError: If the exporter does not answer.
        """
        socket = self._context.socket(zmq.REQ)
        socket.set(zmq.LINGER, 0)
        try:
            socket.connect(self._address)
            await socket.send_multipart([request_id.encode(), (tenant or "").encode()])
            body: bytes = await asyncio.wait_for(socket.recv(), _TIMEOUT_S)
        except (TimeoutError, zmq.ZMQError) as error:
            raise NoAnswerError(repr(error)) from error
        finally:
            socket.close()
        return self._show_text(body) if body else None

    def close(self) -> None:
        """Let go of the sockets; questions that wait get no answer."""
        self._context.destroy(linger=0)

    def _show_text(self, body: bytes) -> dict[str, Any]:
        """Put the text around a divergence in the place of its token ids, or nothing."""
        answer: dict[str, Any] = msgspec.json.decode(body)
        diverged = (answer["prefix_cache"] or {}).get("diverged")
        if diverged is not None:
            for whose in ("own", "its"):
                tokens = diverged.pop(f"{whose}_tokens")
                if self._decode is not None and tokens:
                    diverged[f"{whose}_text"] = self._decode(tokens)
        return answer
