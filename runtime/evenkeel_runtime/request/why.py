"""Client that asks the exporter process where the time of a recent request went."""

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
    """The exporter process did not answer: it is down or restarting."""


class _Model(BaseModel):
    """Base of the answer's models; undeclared fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WithoutRival(_Model):
    """Time that the request would have saved without one concurrent request."""

    request_id: str | None
    prefill_tokens: int
    decode_tokens: int
    spared_s: float
    text: str


class Eviction(_Model):
    """Which request evicted this prompt from the prefix cache, and how long before its arrival."""

    before_arrival_s: float
    for_request: str | None


class Divergence(_Model):
    """Where the prompt diverged from the nearest earlier one; text only with `explain_text`."""

    at_token: int
    from_request: str | None
    static_tokens_behind: int
    own_text: str | None = None
    its_text: str | None = None


class PrefixCacheUse(_Model):
    """How much of the prompt was cached, why the rest was missed, and what the miss cost."""

    prompt_tokens: int
    hit_tokens: int
    missed_tokens: int
    lost_tokens: int
    miss: str
    cost_s: float
    evicted: Eviction | None
    diverged: Divergence | None


class Cancellation(_Model):
    """Work the engine did for a request after its client disconnected."""

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
    """Asks the exporter process about requests; use only on the server's event loop.

    Args:
        address: ZeroMQ address of the exporter.
        decode: Decodes token ids; None if prompt text must not be shown.
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
            tenant: The asking tenant; None sees all requests.

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
        """Close the sockets; pending queries get no answer."""
        self._context.destroy(linger=0)

    def _show_text(self, body: bytes) -> dict[str, Any]:
        """Replace the token ids around a divergence by their text, or drop them."""
        answer: dict[str, Any] = msgspec.json.decode(body)
        diverged = (answer["prefix_cache"] or {}).get("diverged")
        if diverged is not None:
            for whose in ("own", "its"):
                tokens = diverged.pop(f"{whose}_tokens")
                if self._decode is not None and tokens:
                    diverged[f"{whose}_text"] = self._decode(tokens)
        return answer
