"""Completes the record of one request in the exporter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import urandom
from typing import Self

from evenkeel.spans import SPAN_DECODE, SPAN_PREFILL, SPAN_QUEUE, Status
from evenkeel.token_latency import Emissions, TokenLatency, measure
from evenkeel_runtime.exporter.answer_tokens import repeated_share, split_answer
from evenkeel_runtime.exporter.draft_counts import count_by_emission, count_by_position
from evenkeel_runtime.ledger.explanation import Explanation
from evenkeel_runtime.ledger.phases import RequestPhases, find_phases
from evenkeel_runtime.wire.frames import AnswerMarks, EngineSetup
from evenkeel_runtime.wire.observation import Observation

NewId = Callable[[int], bytes]
_NO_MARKS = AnswerMarks()


@dataclass(slots=True)
class FinishedRequest:
    """One request being processed by the exporter.

    Attributes:
        seen: Its record, finished by `complete`.
        trace_id: The caller's trace, or a new one: several engine runs of one HTTP request share a
            trace only if the caller sent one.
        span_id: Of its SERVER span.
        phases: Its phases and token times.
        explanation: Explanation from the engine's steps; None without records.
    """

    seen: Observation
    trace_id: bytes
    span_id: bytes
    phases: RequestPhases
    explanation: Explanation | None = None

    @classmethod
    def begin(cls, seen: Observation, new_id: NewId = urandom) -> Self:
        """Return a request with its phases and with IDs from `new_id`, called with a byte count."""
        trace_id = new_id(16) if seen.parent is None else seen.parent.trace_id
        return cls(seen, trace_id, new_id(8), find_phases(seen))

    def complete(
        self,
        max_emissions: int,
        setup: EngineSetup | None = None,
        marks: AnswerMarks = _NO_MARKS,
    ) -> None:
        """Derive the remaining fields from the data of the server and the engine's steps.

        Args:
            max_emissions: Longest emission series to keep; a longer one is merged down to it.
                Latency is computed before that, so it does not depend on this limit.
            setup: How the engine computes; None if unknown.
            marks: How to read the tokens of its answers.
        """
        if setup is not None:
            self.seen.dtype, self.seen.kv_cache_dtype = setup.dtype, setup.kv_cache_dtype
            self.seen.tensor_parallel = setup.tensor_parallel
            self.seen.pipeline_parallel = setup.pipeline_parallel
        if self.seen.parent is not None:
            self.seen.parent_span_id = self.seen.parent.span_id.hex()
        _read_answer(self.seen, self.phases, marks)
        _complete(self.seen, self.phases, max_emissions, self.explanation)
        if self.explanation is not None:
            self.explanation.fill(self.seen)
        if self.seen.status is Status.ABORTED and not self.seen.delivered_tokens:
            # The client got nothing of what was computed for it.
            self.seen.engine_wasted_s = self.seen.engine_s


def _read_answer(seen: Observation, found: RequestPhases, marks: AnswerMarks) -> None:
    """Fill in what the tokens of the answer say, and drop them; before its series is merged."""
    answer, seen.answer = seen.answer, b""
    if not answer:
        return
    seen.repeated_share = repeated_share(answer)
    split = split_answer(answer, marks, seen.opens_in_reasoning)
    if split is None or seen.num_sequences > 1:
        # Counts of one sequence would not fit those of all.
        return
    is_whole = len(answer) // 4 >= (seen.output_tokens or 0)
    if is_whole or split.first_visible is not None:
        seen.reasoning_tokens = split.reasoning_tokens
    if is_whole:
        seen.visible_tokens = split.visible_tokens
    if split.first_visible is not None:
        seen.visible_ttft_s = _find_time(seen, split.first_visible)
        if seen.visible_ttft_s is None and not split.reasoning_tokens:
            seen.visible_ttft_s = _latency(seen, found).ttft_s


def _find_time(seen: Observation, place: int) -> float | None:
    """Return when a token of the answer was emitted, in seconds since the arrival."""
    num_tokens = 0
    for time_ns, tokens in zip(seen.emission_ns, seen.emission_tokens, strict=True):
        num_tokens += tokens
        if num_tokens > place:
            return (time_ns - seen.arrival_ns) / 1e9
    return None


def _complete(
    seen: Observation, found: RequestPhases, max_emissions: int, explanation: Explanation | None
) -> None:
    ledger = None if explanation is None else explanation.ledger
    seconds = {phase.name: phase.seconds for phase in found.phases}
    seen.queue_s = seconds.get(SPAN_QUEUE)
    seen.prefill_s = seconds.get(SPAN_PREFILL)
    seen.decode_s = seconds.get(SPAN_DECODE)
    seen.e2e_s = (seen.end_ns - seen.arrival_ns) / 1e9
    latency = _latency(seen, found)
    seen.ttft_s, seen.tpot_s, seen.stall_s = latency.ttft_s, latency.tpot_s, latency.stall_s
    seen.itl_p50_s, seen.itl_p99_s = latency.itl_p50_s, latency.itl_p99_s
    if seen.status is Status.ABORTED:
        if ledger is not None:
            # Includes the tokens of the step in progress.
            seen.output_tokens = max(seen.output_tokens or 0, ledger.made_tokens)
        if seen.delivered_tokens is not None:
            seen.wasted_tokens = max(0, (seen.output_tokens or 0) - seen.delivered_tokens)
    drafted, accepted = seen.drafted_by_step, seen.accepted_by_step
    if ledger is not None and sum(ledger.drafted_by_step) > sum(drafted or ()):
        # vLLM counts them only if configured to, and not those of a sequence that is aborted.
        drafted, accepted = ledger.drafted_by_step, ledger.accepted_by_step
    seen.drafted_tokens = None if drafted is None else sum(drafted)
    seen.accepted_tokens = None if accepted is None else sum(accepted)
    seen.drafted_by_position = count_by_position(drafted or ())
    seen.accepted_by_position = count_by_position(accepted or (), len(seen.drafted_by_position))
    kept = _merge_neighbours(found.emissions, max_emissions)
    seen.emission_time_s = [(time_ns - seen.arrival_ns) / 1e9 for time_ns in kept.time_ns]
    seen.emission_tokens = list(kept.tokens)
    steps = ledger.verified if ledger is not None and seen.num_sequences == 1 else ()
    by_emission = count_by_emission(seen.emission_tokens, steps)
    seen.emission_drafted = [tried for tried, _ in by_emission]
    seen.emission_accepted = [agreed for _, agreed in by_emission]


def _latency(seen: Observation, found: RequestPhases) -> TokenLatency:
    """Return token latency from the emissions; without them, TTFT and TPOT from engine times."""
    if not found.emissions.time_ns:
        return _latency_without_series(seen, found)
    latency = measure(seen.arrival_ns, found.emissions)
    if seen.num_sequences == 1:
        return latency
    # Sequences sharing a stream interleave, so gaps between their tokens are not an ITL.
    return TokenLatency(latency.ttft_s, None, None, None, latency.stall_s)


def _latency_without_series(seen: Observation, found: RequestPhases) -> TokenLatency:
    if found.first_ns is None or found.last_ns is None:
        return TokenLatency(None, None, None, None, None)
    ttft_s = (found.first_ns - seen.arrival_ns) / 1e9
    num_tokens = seen.output_tokens or 0
    if seen.num_sequences > 1 or num_tokens < 2:
        return TokenLatency(ttft_s, None, None, None, None)
    tpot_s = (found.last_ns - found.first_ns) / 1e9 / (num_tokens - 1)
    return TokenLatency(ttft_s, tpot_s, None, None, None)


def _merge_neighbours(emissions: Emissions, max_emissions: int) -> Emissions:
    """Merge groups of emissions into the last one of each, down to at most `max_emissions`.

    The first emission is kept separate, so that the series still begins at TTFT.
    """
    times_ns, tokens = emissions.time_ns, emissions.tokens
    if len(times_ns) <= max_emissions:
        return emissions
    size = -(-(len(times_ns) - 1) // (max_emissions - 1))
    starts = range(1, len(times_ns), size)
    ends = [min(start + size, len(times_ns)) for start in starts]
    return Emissions(
        [times_ns[0], *(times_ns[end - 1] for end in ends)],
        [tokens[0], *(sum(tokens[s:e]) for s, e in zip(starts, ends, strict=True))],
    )
