"""Token times and phases (queue, prefill, decode) of a request, as seen by its server."""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel.spans import SPAN_DECODE, SPAN_PREFILL, SPAN_QUEUE
from evenkeel.token_latency import Emissions
from evenkeel_runtime.wire.observation import Observation


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """One part of a request's time, on the monotonic clock."""

    name: str
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Duration."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class RequestPhases:
    """Token times and phases that a request reached, on the monotonic clock.

    Attributes:
        emissions: The emissions with tokens.
        first_ns: First token time: of the emission if there is one, else from the engine.
        last_ns: Last token time, likewise; None if and only if `first_ns` is.
        phases: Queue, prefill and decode; contiguous, without overlap.
    """

    emissions: Emissions
    first_ns: int | None
    last_ns: int | None
    phases: tuple[PhaseTimes, ...]


def find_phases(seen: Observation) -> RequestPhases:
    """Return the token times and phases that the request reached.

    queue = arrival → first scheduled, prefill → first token, decode → last token. A request that
    ended within a phase has that phase up to its end. There are no phases for a request that never
    reached the engine, and none but decode where the engine's schedule time is not known.
    """
    emissions = _emissions_of(seen)
    first_ns, last_ns = _token_times(seen, emissions)
    phases = []
    if seen.reached_engine:
        scheduled_ns = _scheduled_time(seen, first_ns)
        if scheduled_ns is not None:
            phases.append(PhaseTimes(SPAN_QUEUE, seen.arrival_ns, scheduled_ns))
            phases.append(PhaseTimes(SPAN_PREFILL, scheduled_ns, first_ns or seen.end_ns))
        elif first_ns is None and seen.scheduled_ns is None:
            phases.append(PhaseTimes(SPAN_QUEUE, seen.arrival_ns, seen.end_ns))
        if first_ns is not None and last_ns is not None:
            phases.append(PhaseTimes(SPAN_DECODE, first_ns, last_ns))
    return RequestPhases(emissions, first_ns, last_ns, tuple(phases))


def _token_times(seen: Observation, emissions: Emissions) -> tuple[int | None, int | None]:
    if emissions.time_ns:
        return emissions.time_ns[0], emissions.time_ns[-1]
    first_ns, last_ns = seen.first_token_ns, seen.last_token_ns
    if first_ns is None or last_ns is None:
        return None, None
    # An engine on another host has a different monotonic clock: its times are not comparable.
    if not seen.arrival_ns <= first_ns <= last_ns <= seen.end_ns:
        return None, None
    return first_ns, last_ns


def _scheduled_time(seen: Observation, first_ns: int | None) -> int | None:
    scheduled_ns = seen.scheduled_ns
    latest_ns = seen.end_ns if first_ns is None else first_ns
    if scheduled_ns is None or not seen.arrival_ns <= scheduled_ns <= latest_ns:
        return None
    return scheduled_ns


def _emissions_of(seen: Observation) -> Emissions:
    times_ns, tokens = seen.emission_ns, seen.emission_tokens
    if tokens and min(tokens) > 0:
        return Emissions(times_ns, tokens)
    some = [pair for pair in zip(times_ns, tokens, strict=True) if pair[1] > 0]
    return Emissions([time_ns for time_ns, _ in some], [count for _, count in some])
