"""What the server tells the exporter process: requests that are over, and canaries' results."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import msgspec

from evenkeel.request_record import RequestRecord
from evenkeel_runtime.wire.caller import Caller, TraceParent

# Tokens of a prompt's beginning that are compared; more would cost the server's event loop.
MAX_COMPARED_TOKENS = 8192


class CanaryResult(msgspec.Struct, frozen=True, kw_only=True, tag="canary"):
    """A greedy answer that was made again without drafts.

    Attributes:
        of_request_id: The request whose answer it was.
        unix_ns: When the second answer was complete.
        result: `match` or `mismatch`.
        num_tokens: Tokens of the answer.
        first_difference: Index of the first token that differs; None where none does.
    """

    of_request_id: str
    unix_ns: int
    result: str
    num_tokens: int
    first_difference: int | None = None


class Observation(RequestRecord, kw_only=True, omit_defaults=True, tag="request"):
    """The record of a request as far as the server knows it, and what the rest follows from.

    The exporter process completes the record. Every `_ns` is on this machine's monotonic clock,
    except one.

    Attributes:
        arrival_unix_ns: The arrival on the wall clock; it places the others in calendar time.
        end_ns: When the response was finished or given up.
        reached_engine: Whether it was handed to the engine; False for what validation refused.
        parent: The caller's span.
        num_sequences: `n` of the request.
        client_left_ns: The connection was closed before the response was complete; None if not.
        submitted_ns: It was handed to the engine; None if it never was.
        holds: Seconds that each of our hooks kept it before that, by the ledger's cause.
        prompt: Token ids of the prompt's beginning, 4 bytes each (ledger/prompt_memory.py); they
            are compared, and never leave this machine.
        cache_salt: What keeps its prefix apart from others' in vLLM's cache, if anything.
        scheduled_ns: The engine first scheduled it; None if it never did.
        first_token_ns: The engine's own time of the first token; None without one.
        last_token_ns: The engine's own time of the last token.
        emission_ns: When tokens left the engine's output, one entry per emission; empty where the
            response is not streamed, because vLLM then hands over a single final output. Until the
            record is complete, `emission_tokens` says how many tokens each held; 0 occurs.
        delivered_tokens: Tokens handed to the connection before the client left; None if it stayed.
        drafted_by_step: Drafted tokens per verify step, all sequences one after the other; None
            without speculation.
        accepted_by_step: Accepted ones; as long as `drafted_by_step`.
    """

    arrival_unix_ns: int
    arrival_ns: int
    end_ns: int
    reached_engine: bool = False
    parent: TraceParent | None = None
    trace_state: str = ""
    num_sequences: int = 1
    delivered_tokens: int | None = None
    client_left_ns: int | None = None
    submitted_ns: int | None = None
    holds: Mapping[str, float] = {}
    prompt: bytes = b""
    cache_salt: str | None = None
    scheduled_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    emission_ns: Sequence[int] = []
    drafted_by_step: Sequence[int] | None = None
    accepted_by_step: Sequence[int] | None = None

    @property
    def max_spans(self) -> int:
        """The most spans that it becomes: its own, and one per phase if the engine had it."""
        return 4 if self.reached_engine else 1

    def set_caller(self, caller: Caller) -> None:
        """Take over what the caller said."""
        self.tenant = caller.tenant
        self.session_id = caller.session_id
        self.slo_class = caller.slo_class
        self.route = caller.route
        self.prompt_name = caller.prompt_name
        self.prompt_version = caller.prompt_version
        self.parent = caller.parent
        self.trace_state = caller.trace_state


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Observation | CanaryResult] = msgspec.msgpack.Decoder(
    Observation | CanaryResult
)


def encode(message: Observation | CanaryResult) -> bytes:
    """Return the message as MessagePack."""
    return _ENCODER.encode(message)


def decode(data: bytes) -> Observation | CanaryResult:
    """Return the message that `encode` packed.

    Raises:
        msgspec.DecodeError: If `data` is not one message.
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
