"""The phases of a request: queue, prefill and decode, from what its server saw."""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel.latency import Emissions
from evenkeel.spans import SPAN_DECODE, SPAN_PREFILL, SPAN_QUEUE
from evenkeel_runtime.wire.observation import Observation


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """One part of a request's time, on the monotonic clock."""

    name: str
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / 1e9


def find_phases(seen: Observation) -> list[PhaseTimes]:
    """Return queue, prefill and decode, as far as the request came; they touch and never overlap.

    queue = arrival → first scheduled, prefill → first token, decode → last token. A request that
    ended within a phase has that phase up to its end. Nothing is returned for a request that never
    reached the engine, and nothing but decode where the engine's schedule time is not known.
    """
    if not seen.reached_engine:
        return []
    first_ns, last_ns = token_times(seen)
    scheduled_ns = _scheduled_time(seen, first_ns)
    phases = []
    if scheduled_ns is not None:
        phases.append(PhaseTimes(SPAN_QUEUE, seen.arrival_ns, scheduled_ns))
        phases.append(PhaseTimes(SPAN_PREFILL, scheduled_ns, first_ns or seen.end_ns))
    elif first_ns is None and seen.scheduled_ns is None:
        phases.append(PhaseTimes(SPAN_QUEUE, seen.arrival_ns, seen.end_ns))
    if first_ns is not None and last_ns is not None:
        phases.append(PhaseTimes(SPAN_DECODE, first_ns, last_ns))
    return phases


def token_times(seen: Observation) -> tuple[int | None, int | None]:
    """Return first and last token time: as emitted where that was seen, else as the engine says."""
    emissions = emissions_of(seen)
    if emissions.time_ns:
        return emissions.time_ns[0], emissions.time_ns[-1]
    first_ns, last_ns = seen.first_token_ns, seen.last_token_ns
    if first_ns is None or last_ns is None:
        return None, None
    # An engine on another host has another monotonic clock: its times say nothing here.
    if not seen.arrival_ns <= first_ns <= last_ns <= seen.end_ns:
        return None, None
    return first_ns, last_ns


def _scheduled_time(seen: Observation, first_ns: int | None) -> int | None:
    scheduled_ns = seen.scheduled_ns
    latest_ns = seen.end_ns if first_ns is None else first_ns
    if scheduled_ns is None or not seen.arrival_ns <= scheduled_ns <= latest_ns:
        return None
    return scheduled_ns


def num_spans(seen: Observation) -> int:
    """Return how many spans `build_request` makes of one request."""
    return 1 if seen.canary is not None else 1 + len(find_phases(seen))


def emissions_of(seen: Observation) -> Emissions:
    """Return the emissions that brought tokens."""
    times_ns, tokens = seen.emission_ns, seen.emission_tokens
    if tokens and min(tokens) > 0:
        return Emissions(times_ns, tokens)
    some = [pair for pair in zip(times_ns, tokens, strict=True) if pair[1] > 0]
    return Emissions([time_ns for time_ns, _ in some], [count for _, count in some])
