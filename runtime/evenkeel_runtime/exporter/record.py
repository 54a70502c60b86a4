"""Turns what the hook saw of a request into its stored record and the phases of its waterfall."""

from __future__ import annotations

from evenkeel.latency import Emissions, TokenLatency, measure
from evenkeel.spans import SPAN_DECODE, SPAN_PREFILL, SPAN_QUEUE, RequestRecord, Status
from evenkeel_runtime.exporter.draft_counts import count_by_emission, count_by_position
from evenkeel_runtime.ledger.charges import Ledger
from evenkeel_runtime.ledger.phases import emissions_of, find_phases, token_times
from evenkeel_runtime.wire.observation import Observation


def find_ttft_s(seen: Observation) -> float | None:
    """Return a request's TTFT, as its record has it; None without a token."""
    first_ns, _ = token_times(seen)
    return None if first_ns is None else (first_ns - seen.arrival_ns) / 1e9


def to_record(seen: Observation, max_emissions: int, ledger: Ledger | None = None) -> RequestRecord:
    """Return the record of one request; what cannot be known is None.

    Args:
        seen: What the hook saw.
        max_emissions: Longest emission series to keep; neighbours are merged beyond it. Latency is
            computed before that, so it does not depend on this limit.
        ledger: Where its time went, if the engine's steps say.
    """
    seconds = {phase.name: phase.seconds for phase in find_phases(seen)}
    emissions = emissions_of(seen)
    latency = _latency(seen, emissions)
    kept = _merge_neighbours(emissions, max_emissions)
    caller = seen.caller
    drafted, accepted = seen.drafted_by_step, seen.accepted_by_step
    if drafted is None and ledger is not None and ledger.drafted_by_step:
        # Where vLLM was not asked to count them, the engine's steps say.
        drafted, accepted = ledger.drafted_by_step, ledger.accepted_by_step
    drafted_by_position = count_by_position(drafted or ())
    emitted = list(kept.tokens)
    steps = ledger.verified if ledger is not None and seen.num_sequences == 1 else ()
    by_emission = count_by_emission(emitted, steps)
    return RequestRecord(
        request_id=seen.request_id,
        model=seen.model,
        operation=seen.operation,
        status=seen.status,
        finish_reason=seen.finish_reason,
        error_type=seen.error_type,
        http_status=seen.http_status,
        tenant=caller.tenant,
        session_id=caller.session_id,
        slo_class=caller.slo_class,
        route=caller.route,
        prompt_name=caller.prompt_name,
        prompt_version=caller.prompt_version,
        max_tokens=seen.max_tokens,
        temperature=seen.temperature,
        input_tokens=seen.input_tokens,
        output_tokens=_output_tokens(seen, ledger),
        cached_tokens=seen.cached_tokens,
        wasted_tokens=_wasted_tokens(seen, ledger),
        queue_s=seconds.get(SPAN_QUEUE),
        prefill_s=seconds.get(SPAN_PREFILL),
        decode_s=seconds.get(SPAN_DECODE),
        ttft_s=latency.ttft_s,
        tpot_s=latency.tpot_s,
        itl_p50_s=latency.itl_p50_s,
        itl_p99_s=latency.itl_p99_s,
        stall_s=latency.stall_s,
        e2e_s=(seen.end_ns - seen.arrival_ns) / 1e9,
        drafted_tokens=None if drafted is None else sum(drafted),
        accepted_tokens=None if accepted is None else sum(accepted),
        drafted_by_position=drafted_by_position,
        accepted_by_position=count_by_position(accepted or (), len(drafted_by_position)),
        response_cache=seen.response_cache,
        cache=seen.cache,
        drafts_by_source=seen.drafts_by_source,
        emission_time_s=[(time_ns - seen.arrival_ns) / 1e9 for time_ns in kept.time_ns],
        emission_tokens=emitted,
        emission_drafted=[tried for tried, _ in by_emission],
        emission_accepted=[agreed for _, agreed in by_emission],
        ledger={} if ledger is None else ledger.seconds,
        input_messages=seen.input_messages,
        output_messages=seen.output_messages,
    )


def _output_tokens(seen: Observation, ledger: Ledger | None) -> int | None:
    """Tokens generated; of an aborted request also those of the step that was under way."""
    if seen.status is not Status.ABORTED or ledger is None:
        return seen.output_tokens
    return max(seen.output_tokens or 0, ledger.made_tokens)


def _wasted_tokens(seen: Observation, ledger: Ledger | None) -> int | None:
    """Tokens generated that never reached the client; None for a request that was not aborted."""
    if seen.status is not Status.ABORTED or seen.delivered_tokens is None:
        return None
    return max(0, (_output_tokens(seen, ledger) or 0) - seen.delivered_tokens)


def _latency(seen: Observation, emissions: Emissions) -> TokenLatency:
    """Token latency from the emissions, or, without them, TTFT and TPOT from the engine's times."""
    if not emissions.time_ns:
        return _latency_without_series(seen)
    latency = measure(seen.arrival_ns, emissions)
    if seen.num_sequences == 1:
        return latency
    # Sequences that share one stream interleave: gaps between their tokens are nobody's ITL.
    return TokenLatency(latency.ttft_s, None, None, None, latency.stall_s)


def _latency_without_series(seen: Observation) -> TokenLatency:
    first_ns, last_ns = token_times(seen)
    if first_ns is None or last_ns is None:
        return TokenLatency(None, None, None, None, None)
    ttft_s = (first_ns - seen.arrival_ns) / 1e9
    num_tokens = seen.output_tokens or 0
    if seen.num_sequences > 1 or num_tokens < 2:
        return TokenLatency(ttft_s, None, None, None, None)
    return TokenLatency(ttft_s, (last_ns - first_ns) / 1e9 / (num_tokens - 1), None, None, None)


def _merge_neighbours(emissions: Emissions, max_emissions: int) -> Emissions:
    """Merge equal runs of emissions into their last time, until at most `max_emissions` are left.

    The first emission stays alone, so that the series still begins at TTFT.
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
