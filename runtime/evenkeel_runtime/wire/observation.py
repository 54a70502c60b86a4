"""What the hook saw of one request, as it travels from the server to the exporter process."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from evenkeel.spans import Status
from evenkeel_runtime.wire.caller import Caller

# Tokens of a prompt's beginning that are compared; more would cost the server's event loop.
MAX_COMPARED_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """A greedy answer that was made again without drafts.

    Attributes:
        of_request_id: The request whose answer it was.
        result: `match` or `mismatch`.
        num_tokens: Tokens of the answer.
        first_difference: Index of the first token that differs; None where none does.
    """

    of_request_id: str
    result: str
    num_tokens: int
    first_difference: int | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """Raw facts of one request; every `_ns` is on this machine's monotonic clock, except one.

    Attributes:
        arrival_unix_ns: The arrival on the wall clock; it places the others in calendar time.
        end_ns: When the response was finished or given up.
        reached_engine: Whether it was handed to the engine; False for what validation refused.
        num_sequences: `n` of the request.
        client_left_ns: The connection was closed before the response was complete; None if not.
        submitted_ns: It was handed to the engine; None if it never was.
        holds: Seconds that each of our hooks kept it before that, by the ledger's cause.
        prompt: Token ids of the prompt's beginning, 4 bytes each (ledger/prompt_memory.py); they
            are compared, and never leave this machine.
        cache_salt: What keeps its prefix apart from others' in vLLM's cache, if anything.
        scheduled_ns: The engine first scheduled it; None if it never did.
        first_token_ns: The engine's own time of the first token; None without one.
        http_status: What the client was answered; None if it was answered nothing.
        last_token_ns: The engine's own time of the last token.
        emission_ns: When tokens left the engine's output, one entry an emission; empty where the
            response is not streamed, because vLLM then hands over a single final output.
        emission_tokens: How many tokens each of them held; 0 occurs.
        delivered_tokens: Tokens handed to the connection before the client left; None if it stayed.
        drafted_by_step: Drafted tokens a verify step, all sequences one after the other; None
            without speculation.
        accepted_by_step: Accepted ones; as long as `drafted_by_step`.
        input_messages: What was asked; None unless content is recorded.
        output_messages: What was answered; likewise.
        response_cache: What the response cache did; None without one.
        cache: What it says beyond that, as span attributes.
        drafts_by_source: By source, how many verify steps drafted and accepted more than i tokens.
        canary: Set where this is no request but the result of replaying one.
    """

    request_id: str
    model: str
    operation: str
    arrival_unix_ns: int
    arrival_ns: int
    end_ns: int
    status: Status = Status.OK
    reached_engine: bool = False
    caller: Caller = field(default_factory=Caller)
    error_type: str | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    num_sequences: int = 1
    max_tokens: int | None = None
    temperature: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    delivered_tokens: int | None = None
    client_left_ns: int | None = None
    submitted_ns: int | None = None
    holds: Mapping[str, float] = field(default_factory=dict)
    prompt: bytes = b""
    cache_salt: str | None = None
    scheduled_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    emission_ns: Sequence[int] = ()
    emission_tokens: Sequence[int] = ()
    drafted_by_step: Sequence[int] | None = None
    accepted_by_step: Sequence[int] | None = None
    input_messages: str | None = None
    output_messages: str | None = None
    response_cache: str | None = None
    cache: Mapping[str, str | int | float] = field(default_factory=dict)
    drafts_by_source: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)
    canary: CanaryResult | None = None


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Observation)


def encode(observation: Observation) -> bytes:
    """Return the observation as MessagePack."""
    return _ENCODER.encode(observation)


def decode(data: bytes) -> Observation:
    """Return the observation that `encode` packed.

    Raises:
        msgspec.DecodeError: If `data` is not one observation.
    """
    return _DECODER.decode(data)


def pack_tokens(tokens: Iterable[int]) -> bytes:
    """Return the beginning of a prompt, 4 bytes a token in this machine's order.

    Empty where an id is none that fits: such a prompt is compared with nothing.
    """
    try:
        return array("I", islice(tokens, MAX_COMPARED_TOKENS)).tobytes()
    except (OverflowError, TypeError):
        return b""
