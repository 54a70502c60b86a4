"""Splits a latency change by cause: queue, prefill, longer answers, slower decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evenkeel_evals.ask.answers import Answer, AnsweredPair, LatencyMetric, ServerTimes
from evenkeel_evals.verdict.gates import Gate, LatencyGate, name_of
from evenkeel_evals.verdict.latency_effects import pairs_around

QUEUE, PREFILL, LONGER, SPEED, ELSEWHERE = (
    "queue",
    "prefill",
    "longer answers",
    "decode speed",
    "network and client",
)
# Parts below half a percent of the baseline are not mentioned.
SHOWN_FROM = 0.005


@dataclass(frozen=True, slots=True)
class LatencySplit:
    """The change of one latency, split by cause.

    Attributes:
        metric: The gate's measure, such as p95_e2e.
        num_pairs: Pairs with spans of both requests; for a quantile, those around it.
        change: mean(B)/mean(A) − 1 over these pairs.
        parts: The change by cause; the parts add up to `change`.
    """

    metric: str
    num_pairs: int
    change: float
    parts: Mapping[str, float]

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    def describe(self) -> str:
        """Return one line, the largest cause first."""
        ordered = sorted(self.parts.items(), key=lambda part: -abs(part[1]))
        shown = [f"{x * 100:+.1f} from {name}" for name, x in ordered if abs(x) >= SHOWN_FROM]
        causes = ", ".join(shown) or "no cause above half a percent"
        return f"{self.metric}, mean of {self.num_pairs} pairs: {self.change * 100:+.1f}%: {causes}"


def split_latency(
    gate: Gate, pairs: Sequence[AnsweredPair], times: Mapping[str, ServerTimes]
) -> LatencySplit | None:
    """Return a latency change split by cause; None if too little is known.

    Decoding n tokens takes (n − 1)·g. Its change is averaged over both orders of changing length
    and speed: Δn·(gA + gB)/2 is due to length, Δg·(nA + nB − 2)/2 to speed; the two add up
    exactly.

    Args:
        gate: A latency gate; other gates have no split.
        pairs: The pairs of a run.
        times: Server times by trace id.
    """
    if not isinstance(gate, LatencyGate) or gate.metric is LatencyMetric.TPOT:
        return None
    known = [
        (both, times[pair.a.trace_id], times[pair.b.trace_id])
        for pair in pairs
        if (both := pair.latencies_s(gate.metric)) is not None
        if pair.a.trace_id in times and pair.b.trace_id in times
    ]
    if len(known) < 10:
        return None
    if gate.quantile is not None:
        a, b = (np.array([both[side] for both, _, _ in known]) for side in (0, 1))
        known = [known[i] for i in pairs_around(gate.quantile, a, b)]
    total = sum(both[0] for both, _, _ in known)
    parts: dict[str, float] = {}
    for (client_a, client_b), a_times, b_times in known:
        causes = _causes(gate.metric, a_times, b_times)
        causes[ELSEWHERE] = client_b - client_a - sum(causes.values())
        for name, seconds in causes.items():
            parts[name] = parts.get(name, 0.0) + seconds / total
    change = sum(both[1] for both, _, _ in known) / total - 1
    return LatencySplit(name_of(gate), len(known), change, parts)


def _causes(metric: LatencyMetric, a: ServerTimes, b: ServerTimes) -> dict[str, float]:
    causes = {QUEUE: b.queue_s - a.queue_s, PREFILL: b.prefill_s - a.prefill_s}
    if metric is LatencyMetric.TTFT:
        return causes
    gaps_a, gaps_b = max(0, a.output_tokens - 1), max(0, b.output_tokens - 1)
    if not gaps_a or not gaps_b:
        # One token has no speed: the whole change is due to length.
        return {**causes, LONGER: b.decode_s - a.decode_s, SPEED: 0.0}
    gap_a, gap_b = a.decode_s / gaps_a, b.decode_s / gaps_b
    return {
        **causes,
        LONGER: (gaps_b - gaps_a) * (gap_a + gap_b) / 2,
        SPEED: (gap_b - gap_a) * (gaps_a + gaps_b) / 2,
    }


def trace_ids(pairs: Sequence[AnsweredPair]) -> set[str]:
    """Return the trace ids of all answers received."""
    answers: list[Answer] = [answer for pair in pairs for answer in (pair.a, pair.b)]
    return {
        answer.trace_id
        for answer in answers
        if answer.reply.error is None and not answer.reply.is_cached
    }
