"""Messages from the server to the exporter process: finished requests and canary results."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import msgspec

from evenkeel.request_record import RequestRecord
from evenkeel_runtime.wire.caller import Caller, TraceParent

# The `response_cache` of a replay.
REPLAY = "replay"
# A hook that held a request for less has no span of its own.
LEAST_HOLD_S = 1e-4
# Number of leading prompt tokens to compare; more would load the server's event loop.
MAX_COMPARED_TOKENS = 8192
# Leading tokens of an answer by which the next prompt of its conversation is recognised.
ANSWER_HEAD_TOKENS = 16
# Leading tokens of an answer in which reasoning and repetition are looked for.
MAX_ANSWER_TOKENS = 1 << 16


class CanaryResult(msgspec.Struct, frozen=True, kw_only=True, tag="canary"):
    """The result of regenerating a greedy answer without drafts.

    Attributes:
        of_request_id: The request that was repeated.
        unix_ns: When the second answer was complete.
        result: `match` or `mismatch`.
        num_tokens: Tokens in the answer.
        first_difference: Index of the first token that differs; None if none does.
    """

    of_request_id: str
    unix_ns: int
    result: str
    num_tokens: int
    first_difference: int | None = None


class Observation(RequestRecord, kw_only=True, omit_defaults=True, tag="request"):
    """The record of a request with what the server observed; the exporter completes it.

    Every `_ns` is on this machine's monotonic clock, except `arrival_unix_ns`.

    Attributes:
        arrival_unix_ns: Arrival on the wall clock; converts the other times to calendar time.
        end_ns: When the response was complete or aborted.
        reached_engine: Whether it was submitted to the engine; False if validation rejected it.
        parent: The caller's span.
        num_sequences: `n` of the request.
        client_left_ns: When the client disconnected before the response was complete; else None.
        submitted_ns: When it was submitted to the engine; None if it never was.
        holds: Time that each of our hooks held it before submission, in seconds, by ledger cause.
        hold_starts_ns: When each of these began.
        prompt: Token ids of the start of the prompt, 4 bytes each (ledger/prompt_memory.py); used
            for comparison only, they never leave this machine.
        message_digests: Digest of each of its messages, 8 bytes (request/conversation.py); empty if
            the caller named its session.
        answer: Token ids of the start of the first sequence, packed as `prompt`; the exporter
            counts them and drops them.
        opens_in_reasoning: Whether the prompt ends inside the model's reasoning.
        cache_salt: Salt that separates its prefix from others' in vLLM's cache, if any.
        scheduled_ns: When the engine first scheduled it; None if it never did.
        first_token_ns: The engine's own time of the first token; None without one.
        last_token_ns: The engine's own time of the last token.
        emission_ns: When tokens left the engine's output, one entry per emission; empty if the
            response is not streamed, because vLLM then returns a single final output. Until the
            record is complete, `emission_tokens` has the number of tokens in each, possibly 0.
        delivered_tokens: Tokens written to the connection before the client disconnected; None if
            it stayed.
        drafted_by_step: Drafted tokens per verify step, one sequence after the other; None without
            speculation.
        accepted_by_step: Accepted tokens; as long as `drafted_by_step`.
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
    hold_starts_ns: Mapping[str, int] = {}
    prompt: bytes = b""
    message_digests: bytes = b""
    answer: bytes = b""
    opens_in_reasoning: bool = False
    cache_salt: str | None = None
    scheduled_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    emission_ns: Sequence[int] = []
    drafted_by_step: Sequence[int] | None = None
    accepted_by_step: Sequence[int] | None = None

    @property
    def is_replay(self) -> bool:
        """Whether it is our own check of a cached answer, which is nobody's request."""
        return self.response_cache == REPLAY

    @property
    def max_spans(self) -> int:
        """Maximum number of spans: its own, its hooks', and phases' if it reached the engine."""
        if self.is_replay:
            return 1
        return (4 if self.reached_engine else 1) + len(self.long_holds)

    @property
    def long_holds(self) -> list[str]:
        """The causes that held it long enough to be worth a span."""
        return [
            cause
            for cause, seconds in self.holds.items()
            if seconds >= LEAST_HOLD_S and cause in self.hold_starts_ns
        ]

    def set_caller(self, caller: Caller) -> None:
        """Copy the caller's fields into the record."""
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


def pack_tokens(tokens: Iterable[int], max_tokens: int = MAX_COMPARED_TOKENS) -> bytes:
    """Return the start of a prompt or answer as 4 bytes per token, in native byte order.

    Empty if an id does not fit: such a text is not compared.
    """
    try:
        return array("I", islice(tokens, max_tokens)).tobytes()
    except (OverflowError, TypeError):
        return b""
