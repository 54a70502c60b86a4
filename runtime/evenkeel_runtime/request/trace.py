"""State of one HTTP request and its engine runs, and the records made from them."""

from __future__ import annotations

from array import array
from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, Protocol

from evenkeel.spans import Status
from evenkeel_runtime.control.visit import RefusedError, Visit
from evenkeel_runtime.wire.caller import Caller
from evenkeel_runtime.wire.cause import Cause
from evenkeel_runtime.wire.observation import MAX_ANSWER_TOKENS, Observation

if TYPE_CHECKING:
    from evenkeel_runtime.control.door import Door
    from evenkeel_runtime.wire.drafts import DraftCounts

# vLLM's admission control (vllm/exceptions.py) refuses a request with one of these.
_SHED_ERRORS = ("QueueOverflowError", "MaxQueuedTokensError")
# vLLM's errors, and control's own reasons (runtime/evenkeel_runtime/control/admission.py).
_SHED = (*_SHED_ERRORS, "shed", "quota", "queue_deadline", "kv_share")
_HTTP_TOO_MANY_REQUESTS = 429
# Outputs whose tokens are kept before they are packed.
MAX_KEPT = 256
# The operation if the engine is called from an unknown path.
OPERATION_UNKNOWN = "generate_content"


class EngineTimes(Protocol):
    """vLLM's statistics of one sequence (`RequestStateStats`); times are monotonic seconds."""

    num_generation_tokens: int
    scheduled_ts: float
    first_token_ts: float
    last_token_ts: float


@dataclass(slots=True)
class EngineRun:
    """One call of the engine's `generate` or `encode`, filled in as it runs.

    Attributes:
        request_id: The id that vLLM assigned, as returned in the response.
        params: vLLM's sampling or pooling parameters.
        prompt_size: Tokens of its prompt; 0 if it is not known before the first output.
        request: The HTTP request it belongs to, if any.
        is_streamed: Whether tokens are streamed or delivered all at the end.
        submitted_ns: When it was submitted to the engine.
        is_at_gate: Whether control holds it before the engine.
        is_cut: Whether control allows a shorter answer than the client asked for.
        beam_search: Id of the beam search of which it is one beam of one step; None otherwise.
        cache_salt: Isolates its prefix in vLLM's cache; None if shared.
        emission_ns: Time of each emission.
        emission_tokens: New tokens in each.
        kept: Tokens of its latest outputs, until they are packed; a sink if it has several answers.
        answer: The first tokens of the answer, packed.
        opens_in_reasoning: Whether its prompt ends inside the model's reasoning.
        last_output: vLLM's latest output, read once at the end of the run.
        num_final_tokens: Tokens of the final output, if not streamed.
        finish_reason: Why its first sequence ended.
        drafted_by_step: Drafted tokens per verify step, over the finished sequences.
        accepted_by_step: Accepted tokens per verify step; None without speculation.
        drafts_by_source: Draft counts by source, if the speculation hook drafts.
        canary_tokens: Its answer so far, if it was sampled for a canary replay.
        engine_times: vLLM's timestamps, read when the client disconnects.
        delivered_tokens: Tokens sent to the connection before the client disconnected.
        response_cache: Outcome of the response cache; None without one.
        cache: Further span attributes from the cache.
        is_from_cache: Whether the cache answered instead of the engine.
        holds: Seconds spent in the cache, by the ledger's cause.
        hold_starts_ns: When each of these began.
        learning: Pending cache result to add to the record after the last output.
    """

    request_id: str
    model: str
    params: Any
    request: HttpRequest | None
    is_streamed: bool
    arrival_ns: int
    arrival_unix_ns: int
    submitted_ns: int | None = None
    prompt_size: int = 0
    is_at_gate: bool = False
    is_cut: bool = False
    beam_search: str | None = None
    cache_salt: str | None = None
    has_started: bool = False
    is_recorded: bool = False
    emission_ns: list[int] = field(default_factory=list)
    emission_tokens: list[int] = field(default_factory=list)
    last_output: Any = None
    kept: list[Sequence[int]] | deque[Sequence[int]] = field(default_factory=list)
    answer: array[int] = field(default_factory=lambda: array("I"))
    opens_in_reasoning: bool = False
    num_final_tokens: int = 0
    finish_reason: str | None = None
    drafted_by_step: list[int] | None = None
    accepted_by_step: list[int] | None = None
    drafts_by_source: dict[str, DraftCounts] = field(default_factory=dict)
    canary_tokens: list[int] | None = None
    engine_times: Sequence[EngineTimes] = ()
    delivered_tokens: int | None = None
    error: BaseException | None = None
    was_cancelled: bool = False
    response_cache: str | None = None
    cache: dict[str, str | int | float] = field(default_factory=dict)
    is_from_cache: bool = False
    holds: dict[str, float] = field(default_factory=dict)
    hold_starts_ns: dict[str, int] = field(default_factory=dict)
    learning: Future[Any] | None = None
    end_ns: int | None = None

    @property
    def is_later_beam(self) -> bool:
        """Whether its request had another beam or step of the same beam search before."""
        runs = [] if self.request is None or self.beam_search is None else self.request.runs
        first = next((run for run in runs if run.beam_search == self.beam_search), self)
        return first is not self

    @property
    def is_complete(self) -> bool:
        """Whether the engine has answered to the end."""
        is_cut_off = self.end_ns is None or self.was_cancelled or self.error is not None
        return not (is_cut_off or self.last_output is None or self.is_from_cache)

    def pack_answer(self) -> array[int]:
        """Pack the kept tokens, which costs less for many outputs at once; return all so far."""
        if len(self.answer) < MAX_ANSWER_TOKENS:
            self.answer.extend(chain.from_iterable(self.kept))
            self.kept.clear()
        else:
            self.kept = deque(maxlen=0)
        return self.answer

    def count_prompt_tokens(self) -> int:
        """Return its input tokens; 0 before the engine's first token."""
        if self.last_output is None:
            return self.prompt_size if self._count_generated() else 0
        return len(getattr(self.last_output, "prompt_token_ids", None) or ())

    def count_output_tokens(self) -> int:
        """Return its output tokens so far, delivered or not."""
        delivered = sum(self.emission_tokens) if self.is_streamed else self.num_final_tokens
        return max(delivered, self._count_generated())

    def _count_generated(self) -> int:
        """Return the tokens that the engine had generated when the client left."""
        return sum(times.num_generation_tokens for times in self.engine_times)


@dataclass(slots=True)
class HttpRequest:
    """One HTTP request from its arrival to the end of its response.

    Attributes:
        runs: Its engine runs; more than one if it holds several prompts.
        http_status: The response status, once the response has started.
        refused_by: The error with which admission control rejected it.
        visit: Its admission state, if control is enabled.
        door: Where it waits for admission after a cache lookup.
        has_client_left: The connection was closed before the response was complete.
        client_left_ns: When the disconnect was seen.
        is_complete: The last byte of the response was sent to the connection.
        is_over: Its handler has returned; a run that ends later records itself.
        path: Path of its URL.
        body: The body read so far, up to a limit, as the model receives it.
        sent: The body as the client sent it, if the model receives another.
        holds: Seconds spent in our middleware, by the ledger's cause.
        hold_starts_ns: When each of these began.
        compression: Result of prompt compression, as span attributes.
        cache_header: The cache layer that answered, for the response header.
        input_messages: The input in OpenTelemetry's form, set at the end of the response.
        output_messages: The answer in the same form.
        message_digests: Digests of its messages (conversation.py), set at the end of the response.
        tool_calls_failed: Tool calls of its answer that did not parse; None if no tools were
            offered.
    """

    operation: str
    caller: Caller
    arrival_ns: int = field(default_factory=monotonic_ns)
    arrival_unix_ns: int = field(default_factory=time_ns)
    runs: list[EngineRun] = field(default_factory=list)
    http_status: int | None = None
    refused_by: str | None = None
    visit: Visit | None = None
    door: Door | None = None
    has_client_left: bool = False
    client_left_ns: int | None = None
    is_complete: bool = False
    is_over: bool = False
    path: str = ""
    body: bytearray = field(default_factory=bytearray)
    sent: bytes | None = None
    holds: dict[str, float] = field(default_factory=dict)
    hold_starts_ns: dict[str, int] = field(default_factory=dict)
    compression: dict[str, str | int | float] = field(default_factory=dict)
    cache_header: str | None = None
    input_messages: str | None = None
    output_messages: str | None = None
    message_digests: bytes = b""
    tool_calls_failed: int | None = None

    def count_tokens(self) -> int:
        """Return the input and output tokens of its runs, as far as known.

        If the client left before the end, what the engine had generated until then counts. The
        prompt of a beam search counts once: the prompt of each further run is that of the first and
        the answer so far.
        """
        prompts: dict[str | int, int] = {}
        for run in self.runs:
            prompts.setdefault(run.beam_search or id(run), run.count_prompt_tokens())
        return sum(prompts.values()) + sum(run.count_output_tokens() for run in self.runs)

    def count_cached_tokens(self) -> int | None:
        """Return the prompt tokens that the engine found in its cache; None if unknown."""
        if len(self.runs) != 1 or self.runs[0].is_from_cache:
            return None
        cached: int | None = getattr(self.runs[0].last_output, "num_cached_tokens", None)
        return cached

    def find_answer_length(self) -> float | None:
        """Return the mean length of its complete answers, beams aside; None if there is none."""
        complete = [run for run in self.runs if run.is_complete and run.beam_search is None]
        num_answers = sum(getattr(run.params, "n", 1) or 1 for run in complete)
        tokens = sum(run.count_output_tokens() for run in complete)
        return tokens / num_answers if num_answers else None

    def forget_runs(self) -> None:
        """Discard the runs, so that the request counts as one that never reached the engine."""
        for run in self.runs:
            run.is_recorded = True
        self.runs.clear()


CURRENT_REQUEST: ContextVar[HttpRequest | None] = ContextVar("evenkeel_request", default=None)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is known of a request that never reached the engine."""

    request_id: str
    model: str
    error_type: str


# Adds the data of vLLM's own objects for a finished run.
ReadEngine = Callable[[EngineRun, Observation], None]


def observe_run(run: EngineRun, end_ns: int, read_engine: ReadEngine) -> Observation:
    """Return the observation of a finished engine run whose response ended at `end_ns`."""
    request = run.request
    status, error_type = _judge(run, request)
    seen = Observation(
        request_id=run.request_id,
        model=run.model,
        operation=OPERATION_UNKNOWN,
        arrival_unix_ns=run.arrival_unix_ns,
        arrival_ns=run.arrival_ns,
        end_ns=end_ns,
        status=status,
        # A failure before any output means that the engine rejected the request.
        reached_engine=run.error is None or run.last_output is not None,
        error_type=error_type,
        finish_reason=run.finish_reason,
        num_sequences=getattr(run.params, "n", 1) or 1,
        max_tokens=getattr(run.params, "max_tokens", None),
        temperature=getattr(run.params, "temperature", None),
        delivered_tokens=run.delivered_tokens,
        submitted_ns=run.submitted_ns if run.has_started and not run.is_at_gate else None,
        holds=_gather_holds(run),
        hold_starts_ns=_gather_starts(run),
        cache_salt=run.cache_salt,
        emission_ns=run.emission_ns,
        emission_tokens=run.emission_tokens,
        drafted_by_step=run.drafted_by_step,
        accepted_by_step=run.accepted_by_step,
        response_cache=run.response_cache,
        cache=run.cache,
        drafts_by_source={s: (c.drafted, c.accepted) for s, c in run.drafts_by_source.items()},
    )
    if request is not None:
        seen.operation = request.operation
        seen.http_status = request.http_status
        seen.client_left_ns = request.client_left_ns
        seen.set_caller(request.caller)
        # The messages of a request with several prompts cannot be attributed to its runs.
        if len(request.runs) == 1:
            seen.input_messages = request.input_messages
            seen.output_messages = request.output_messages
            seen.message_digests = request.message_digests
            seen.tool_calls_failed = request.tool_calls_failed
    read_engine(run, seen)
    if run.is_from_cache:
        _leave_out_engine(seen, run.end_ns or end_ns)
    return seen


def _gather_holds(run: EngineRun) -> dict[str, float]:
    """Return the seconds a run spent in our hooks, by the ledger's cause."""
    request = run.request
    if request is None:
        return run.holds
    holds = request.holds | run.holds
    if request.visit is not None and request.visit.gate_s > 0:
        holds[Cause.QUEUE_GATE] = request.visit.gate_s
    return holds


def _gather_starts(run: EngineRun) -> dict[str, int]:
    """Return when each hook began to hold a run."""
    request = run.request
    if request is None:
        return run.hold_starts_ns
    starts = request.hold_starts_ns | run.hold_starts_ns
    visit = request.visit
    if visit is not None and visit.gate_s > 0 and visit.queued_s is not None:
        starts[Cause.QUEUE_GATE] = round(visit.queued_s * 1e9)
    return starts


def _leave_out_engine(seen: Observation, answered_ns: int) -> None:
    """Clear the engine's fields of a request that the cache answered: no tokens, phases or series.

    TTFT is the time the answer was available.
    """
    at_ns = seen.emission_ns[0] if seen.emission_ns else answered_ns
    seen.reached_engine = False
    seen.output_tokens = seen.cached_tokens = seen.delivered_tokens = seen.scheduled_ns = None
    seen.answer = b""
    seen.first_token_ns = seen.last_token_ns = at_ns
    seen.emission_ns = seen.emission_tokens = []
    seen.drafted_by_step = seen.accepted_by_step = None


def observe_refusal(request: HttpRequest, refusal: Refusal) -> Observation:
    """Return the observation of a request that never reached the engine."""
    error_type: str | None = request.refused_by or refusal.error_type
    if request.has_client_left:
        status, error_type = Status.ABORTED, None
    elif error_type in _SHED or request.http_status == _HTTP_TOO_MANY_REQUESTS:
        status = Status.SHED
    else:
        status = Status.ERROR
    seen = Observation(
        request_id=refusal.request_id,
        model=refusal.model,
        operation=request.operation,
        arrival_unix_ns=request.arrival_unix_ns,
        arrival_ns=request.arrival_ns,
        end_ns=monotonic_ns(),
        status=status,
        error_type=error_type,
        http_status=request.http_status,
    )
    seen.set_caller(request.caller)
    return seen


def _judge(run: EngineRun, request: HttpRequest | None) -> tuple[Status, str | None]:
    """Return the run's status, and the error type if it failed."""
    if isinstance(run.error, RefusedError):
        return Status.ERROR, run.error.reason
    if run.error is not None:
        name = type(run.error).__name__
        return (Status.SHED if name in _SHED_ERRORS else Status.ERROR), name
    has_client_left = request is None or request.has_client_left
    if run.was_cancelled:
        return (Status.ABORTED, None) if has_client_left else (Status.ERROR, "cancelled")
    if run.finish_reason == "abort":
        return (Status.ABORTED, None) if has_client_left else (Status.ERROR, "engine_abort")
    if run.finish_reason == "error":
        return Status.ERROR, "engine_error"
    if request is not None and (request.http_status or 0) >= 400:
        return Status.ERROR, f"http_{request.http_status}"
    return Status.OK, None


@contextmanager
def charge_to(held: HttpRequest | EngineRun, cause: Cause) -> Iterator[None]:
    """Add the duration of the block to the seconds that a cause held a request or run."""
    began_ns = monotonic_ns()
    held.hold_starts_ns.setdefault(cause, began_ns)
    holds = held.holds
    try:
        yield
    finally:
        holds[cause] = holds.get(cause, 0.0) + (monotonic_ns() - began_ns) / 1e9
