"""The request hook: follows each request from arrival to end and passes it to the recorder."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from evenkeel.spans import HEADER_TENANT, Status
from evenkeel_runtime.request.recorder import Recorder
from evenkeel_runtime.request.trace import (
    CURRENT_REQUEST,
    EngineRun,
    EngineTimes,
    HttpRequest,
    ReadEngine,
    Refusal,
    observe_refusal,
    observe_run,
)
from evenkeel_runtime.request.why import WhyClient
from evenkeel_runtime.wire.caller import Caller
from evenkeel_runtime.wire.drafts import TENANT_KEY

if TYPE_CHECKING:
    from evenkeel_runtime.compression.compressor import Compressor
    from evenkeel_runtime.request.drafts import SpeculationServer

# A comparison takes a fraction of a second.
_MAX_LEARNING_S = 5.0


async def enter_engine(run: EngineRun, options: dict[str, Any]) -> None:
    """Wait for the request's turn if control queues it, and record when it was submitted."""
    if run.request is not None and run.request.door is not None:
        run.is_at_gate = True
        await run.request.door.enter()
        run.is_at_gate = False
        if run.request.visit is not None:
            # Its lateness is known now that the gate has admitted it.
            options["priority"] = run.request.visit.priority
    run.submitted_ns = monotonic_ns()


@dataclass(frozen=True, slots=True)
class EngineReader:
    """Functions that read vLLM's objects; the adapter supplies them for the installed version.

    Attributes:
        is_streamed: Whether a request with these parameters streams its tokens.
        record_output: Records one output of a run and returns its number of tokens.
        read_engine: Reads a finished run.
        find_times: Returns the engine's timestamps by sequence, of each running request with an id.
        find_beam_search: Returns the id of the beam search that a run belongs to, if any.
    """

    is_streamed: Callable[[Any], bool]
    record_output: Callable[[EngineRun, Any], int]
    read_engine: ReadEngine
    find_times: Callable[[str], list[list[EngineTimes]]]
    find_beam_search: Callable[[EngineRun], str | None]


class RequestHook:
    """Follows requests; every method except `observe` returns at once and never raises.

    Args:
        recorder: Receives finished requests.
        reader: Reads vLLM's objects.
        model: The served model name.
        why: Client for the ledgers of finished requests; None if there are none.
        records_content: Whether records include prompts and answers.

    Attributes:
        has_cache: Whether responses may come from the response cache.
        compressor: Shortens prompts, if compression is enabled.
        running: The runs that have begun and not ended.
    """

    def __init__(
        self,
        recorder: Recorder,
        reader: EngineReader,
        model: str,
        why: WhyClient | None = None,
        records_content: bool = False,
    ) -> None:
        self.recorder = recorder
        self.model = model
        self.why = why
        self.records_content = records_content
        self.has_cache = False
        self.compressor: Compressor | None = None
        self._reader = reader
        # Keyed by our own numbers: clients choose request ids and may reuse them.
        self._unfinished: dict[int, tuple[EngineRun, int]] = {}
        self._num_unfinished = 0
        self.running: dict[int, EngineRun] = {}
        self.speculation: SpeculationServer | None = None

    def start_run(
        self,
        request_id: str,
        params: Any,
        model: str | None = None,
        cache_salt: str | None = None,
    ) -> EngineRun:
        """Start tracking one engine call; call it in the context of its HTTP request."""
        request = CURRENT_REQUEST.get()
        if request is not None and request.is_over:
            # A background response outlives its HTTP request, so it is timed from its own start.
            request = _outlive(request)
        run = EngineRun(
            request_id=request_id,
            model=model or self.model,
            params=params,
            request=request,
            is_streamed=self._reader.is_streamed(params),
            arrival_ns=monotonic_ns() if request is None else request.arrival_ns,
            arrival_unix_ns=time_ns() if request is None else request.arrival_unix_ns,
            submitted_ns=monotonic_ns(),
            cache_salt=cache_salt,
            cache={} if request is None else dict(request.compression),
        )
        run.beam_search = self._reader.find_beam_search(run)
        if (getattr(params, "n", 1) or 1) > 1:
            # Their outputs take turns.
            run.kept = deque(maxlen=0)
        if request is not None:
            request.runs.append(run)
        self._guard(name_tenant, run)
        if self.speculation is not None:
            self._guard(self.speculation.start_run, run)
        return run

    async def observe(
        self, run: EngineRun, outputs: AsyncGenerator[Any, None]
    ) -> AsyncGenerator[Any, None]:
        """Yield the engine's outputs, recording the time and token count of each."""
        run.has_started = True
        self.running[id(run)] = run
        add_time, add_tokens = run.emission_ns.append, run.emission_tokens.append
        record_output, speculation, is_streamed = (
            self._reader.record_output,
            self.speculation,
            run.is_streamed,
        )
        try:
            async for output in outputs:
                now_ns = monotonic_ns()
                try:
                    num_tokens = record_output(run, output)
                    if speculation is not None:
                        speculation.record_output(run, output)
                    if is_streamed:
                        add_time(now_ns)
                        add_tokens(num_tokens)
                except Exception as error:
                    self.recorder.record_internal_error(error)
                yield output
        except GeneratorExit:
            run.was_cancelled = True
            raise
        except Exception as error:
            run.error = error
            raise
        except BaseException:
            run.was_cancelled = True
            raise
        finally:
            run.end_ns = monotonic_ns()
            self.running.pop(id(run), None)
            if speculation is not None:
                self._guard(speculation.end_run, run)
            try:
                # Closing here rather than at garbage collection frees the engine's slot at once.
                await outputs.aclose()
            finally:
                if run.request is None or run.request.is_over:
                    self._record_run(run, run.end_ns)

    def client_left(self, request: HttpRequest) -> None:
        """Record that the client disconnected, just before vLLM aborts the runs."""
        if request.is_complete or request.has_client_left:
            return
        request.has_client_left = True
        request.client_left_ns = monotonic_ns()
        try:
            for run in request.runs:
                if run.end_ns is None:
                    run.delivered_tokens = sum(run.emission_tokens)
                    run.engine_times = self._find_own_times(run)
        except Exception as error:
            self.recorder.record_internal_error(error)

    def _find_own_times(self, run: EngineRun) -> Sequence[EngineTimes]:
        """Return the engine's timestamps of a run; none if they may be another's."""
        if not run.has_started or run.is_at_gate or run.submitted_ns is None:
            return ()
        found = self._reader.find_times(run.request_id)
        # Clients choose ids (`X-Request-Id`): nothing says which of several requests this is.
        return found[0] if len(found) == 1 else ()

    def finish_request(self, request: HttpRequest, refusal: Callable[[], Refusal]) -> None:
        """Record an HTTP request whose handler has returned.

        Args:
            request: The request.
            refusal: Returns what is known of the request if it failed without an engine run.
        """
        request.is_over = True
        end_ns = monotonic_ns()
        try:
            self._record_beam_searches(request, end_ns)
            for run in request.runs:
                if not run.has_started:
                    # Aborted before its first step: its generator never runs and never ends.
                    run.was_cancelled = True
                if run.end_ns is not None or not run.has_started:
                    self._record_run(run, end_ns)
            has_failed = request.http_status is None or request.http_status >= 400
            if not request.runs and (has_failed or request.has_client_left):
                self.recorder.record(observe_refusal(request, refusal()))
        except Exception as error:
            self.recorder.record_internal_error(error)

    def _guard(self, record: Callable[[EngineRun], None], run: EngineRun) -> None:
        """Call a function whose errors must not fail a request."""
        try:
            record(run)
        except Exception as error:
            self.recorder.record_internal_error(error)

    def _record_beam_searches(self, request: HttpRequest, end_ns: int) -> None:
        """Record the runs of each beam search as one request."""
        searches: dict[str, list[EngineRun]] = {}
        for run in request.runs:
            if run.beam_search is not None:
                searches.setdefault(run.beam_search, []).append(run)
        for request_id, beams in searches.items():
            self._record_beam_search(request_id, beams, request.has_client_left, end_ns)

    def _record_beam_search(
        self, request_id: str, beams: list[EngineRun], has_client_left: bool, end_ns: int
    ) -> None:
        for run in beams:
            run.is_recorded = True
            # The response is over: it will get no more.
            run.was_cancelled = run.was_cancelled or run.end_ns is None
        each = [observe_run(run, end_ns, self._reader.read_engine) for run in beams]
        seen = each[0]
        # The error of one beam is why the response failed and the others did not go on.
        causes = [beam for beam, run in zip(each, beams, strict=True) if run.error is not None]
        bad = next((beam for beam in [*causes, *each] if beam.status is not Status.OK), seen)
        seen.status, seen.error_type = bad.status, bad.error_type
        if has_client_left and seen.status is Status.OK:
            # Between two steps, no run of it is under way.
            seen.status = Status.ABORTED
        seen.request_id = request_id
        seen.output_tokens = sum(beam.output_tokens or 0 for beam in each)
        last_times = [b.last_token_ns for b in each if b.last_token_ns is not None]
        seen.last_token_ns = max(last_times, default=None)
        # The tokens of all beams are mixed, so there is no TPOT.
        seen.num_sequences, seen.max_tokens = max(2, len(beams)), None
        # Each step ends at the length of one token, and vLLM alone knows how the beams ended.
        seen.finish_reason = None
        self.recorder.record(seen)

    def _record_run(self, run: EngineRun, end_ns: int) -> None:
        if run.is_recorded:
            return
        run.is_recorded = True
        if run.learning is None or run.learning.done():
            self._hand_over(run, end_ns)
        else:
            # A comparison that hangs must not lose the record.
            key = self._num_unfinished = self._num_unfinished + 1
            finish = partial(self._finish, key)
            self._unfinished[key] = (run, end_ns)
            run.learning.add_done_callback(finish)
            asyncio.get_running_loop().call_later(_MAX_LEARNING_S, finish)

    def _finish(self, key: int, _: object = None) -> None:
        """Record a run once the cache has learned from it or timed out."""
        unfinished = self._unfinished.pop(key, None)
        if unfinished is not None:
            self._hand_over(*unfinished)

    def close(self) -> None:
        """Record the runs that are still waiting for the cache."""
        for key in list(self._unfinished):
            self._finish(key)

    def _hand_over(self, run: EngineRun, end_ns: int) -> None:
        try:
            self.recorder.record(observe_run(run, end_ns, self._reader.read_engine))
        except Exception as error:
            self.recorder.record_internal_error(error)


def name_tenant(run: EngineRun) -> None:
    """Say in the engine's parameters whose request it is.

    The engine drafts only from past answers of this tenant, and charges it. A tenant that cannot be
    read is one of its own in each request. Callers may send any parameters (`vllm_xargs`): a tenant
    in them is discarded.
    """
    if not hasattr(run.params, "extra_args"):
        return
    caller = Caller() if run.request is None else run.request.caller
    tenant = caller.tenant
    if HEADER_TENANT in caller.unreadable:
        # No header can name it.
        tenant = f"\0{uuid4().hex}"
    extra = {k: v for k, v in (run.params.extra_args or {}).items() if k != TENANT_KEY}
    if tenant is not None:
        extra[TENANT_KEY] = tenant
    run.params.extra_args = extra or None


def _outlive(request: HttpRequest) -> HttpRequest:
    """Return what a run of a request that is over belongs to: its caller, from now on."""
    return HttpRequest(
        request.operation,
        request.caller,
        compression=request.compression,
        # Only its own cancellation can stop it.
        has_client_left=True,
        is_over=True,
    )
