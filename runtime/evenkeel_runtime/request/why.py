"""Client that asks the exporter process where the time of a recent request went."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from pydantic import BaseModel, ConfigDict, Field

_TIMEOUT_S = 3.0


class NoAnswerError(Exception):
    """The exporter process did not answer: it is down or restarting."""


class _Model(BaseModel):
    """Base of the answer's models; undeclared fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WithoutRival(_Model):
    """Time that the request would have saved without one concurrent request."""

    request_id: str | None = Field(
        description="The concurrent request; null if it is another tenant's."
    )
    prefill_tokens: int = Field(description="Its prompt tokens computed meanwhile.")
    decode_tokens: int = Field(description="Its tokens decoded meanwhile.")
    spared_s: float = Field(description="Time the request would have saved without it, s.")
    text: str = Field(description="The same as a sentence.")


class Eviction(_Model):
    """Which request evicted this prompt from the prefix cache, and how long before its arrival."""

    before_arrival_s: float = Field(description="Time from the eviction to the arrival, s.")
    for_request: str | None = Field(
        description="The request that took the blocks; null if unknown or another tenant's."
    )


class Divergence(_Model):
    """Where the prompt diverged from the nearest earlier one; text only with `explain_text`."""

    at_token: int = Field(description="The first token that differs, from 0.")
    from_request: str | None = Field(
        description="The earlier request; null if unknown or another tenant's."
    )
    static_tokens_behind: int = Field(
        description="Tokens that both prompts share after the part that differs."
    )
    own_text: str | None = Field(default=None, description="This prompt's text around that token.")
    its_text: str | None = Field(
        default=None, description="The earlier prompt's text there, if the same tenant sent it."
    )


class PrefixCacheUse(_Model):
    """How much of the prompt was cached, why the rest was missed, and what the miss cost."""

    prompt_tokens: int = Field(description="Tokens in the prompt.")
    hit_tokens: int = Field(description="Tokens found in the prefix cache.")
    missed_tokens: int = Field(description="Tokens in whole blocks that were not found.")
    lost_tokens: int = Field(description="Of those, tokens that had been cached and were evicted.")
    miss: str = Field(
        description="Why: `none`, `evicted`, `other_salt`, `diverged`, `never_seen` or `off`."
    )
    cost_s: float = Field(description="Time spent computing the missed tokens, s.")
    evicted: Eviction | None = Field(description="The eviction; null without one.")
    diverged: Divergence | None = Field(description="The divergence; null without one.")


class Cancellation(_Model):
    """Work the engine did for a request after its client disconnected."""

    steps_after: int = Field(description="Engine steps begun after the client disconnected.")
    tokens_after: int = Field(description="Tokens generated from then on.")
    engine_let_go_after_s: float = Field(
        description="Time until the scheduler released the request, s."
    )


class RequestExplanation(_Model):
    """Where the time of one request went; docs/inside/ledger.md explains each field."""

    request_id: str = Field(description="The ID of the response.")
    trace_id: str = Field(description="Its trace.")
    model: str = Field(description="The requested model.")
    tenant: str | None = Field(description="Its tenant; null without one.")
    status: str = Field(description="`ok`, `error`, `aborted` or `shed`.")
    response_cache: str | None = Field(
        description="Outcome of the response-cache lookup; null without one."
    )
    arrival: str = Field(description="When it arrived, RFC 3339.")
    ttft_s: float | None = Field(description="Arrival to first token, s.")
    decode_s: float | None = Field(description="First to last token, s.")
    e2e_s: float = Field(description="Arrival to end, s.")
    ledger: dict[str, float] | None = Field(
        description="Seconds by `phase.cause`, largest first; null without the engine's records."
    )
    without: list[WithoutRival] = Field(
        description="Concurrent requests that delayed it, worst first."
    )
    shared_by: str | None = Field(
        description="How steps with several requests were split: `cost_model` or `tokens`."
    )
    model_error_ratio: float | None = Field(
        description="Mean relative error of the cost model; null if none was used."
    )
    note: str | None = Field(description="What to know before relying on it; null if nothing.")
    prefix_cache: PrefixCacheUse | None = Field(
        description="Use of the prefix cache; null if never scheduled."
    )
    cancelled: Cancellation | None = Field(
        description="Work after the client disconnected; null unless aborted."
    )


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
