"""When a run judges its data: at the end, at five points, or continuously."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from evenkeel.errors import ConfigurationError
from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.stats.betting import anytime_p
from evenkeel_evals.stats.spending import repeated_p
from evenkeel_evals.verdict.effect import Effect
from evenkeel_evals.verdict.gate_verdicts import Judgement, Look, judge
from evenkeel_evals.verdict.gates import AccuracyGate, CostGate, ErrorGate, Gate, LatencyGate
from evenkeel_evals.verdict.measure import measure, value_of
from evenkeel_evals.verdict.repeated_items import has_repeats, measure_items

NUM_SEQUENTIAL = 5
# Looks cost only CPU time here; more of them would hardly stop earlier.
NUM_ANYTIME = 40
PAIRS_BETWEEN = 10


class StoppingRule(StrEnum):
    """How often a run may reach its verdict.

    FIXED: once, at the end. SEQUENTIAL: at five points, with O'Brien-Fleming alpha spending.
    ANYTIME: after any pair, by e-values; for accuracy, preference and shifts.
    """

    FIXED = "fixed"
    SEQUENTIAL = "sequential"
    ANYTIME = "anytime"


def plan_looks(mode: StoppingRule, gates: Sequence[Gate], num_pairs: int) -> list[Look]:
    """Return the looks of a run.

    Raises:
        ConfigurationError: If a gate cannot be judged in this mode.
    """
    count = 1
    if mode is StoppingRule.SEQUENTIAL:
        count = min(NUM_SEQUENTIAL, max(1, num_pairs // PAIRS_BETWEEN))
    elif mode is StoppingRule.ANYTIME:
        for gate in gates:
            if isinstance(gate, CostGate):
                raise ConfigurationError(
                    f"gate {gate.text} cannot be judged at any time; use --mode sequential"
                )
            if isinstance(gate, LatencyGate) and gate.quantile is not None:
                raise ConfigurationError(
                    f"gate {gate.text} cannot be judged at any time; use shift_{gate.metric}, or "
                    "--mode sequential"
                )
        count = min(NUM_ANYTIME, max(1, num_pairs // PAIRS_BETWEEN))
    ends = [math.ceil(num_pairs * (k + 1) / count) for k in range(count)]
    return [Look(k + 1, count, end) for k, end in enumerate(ends)]


def judge_once(gates: Sequence[Gate], pairs: Sequence[AnsweredPair], seed: int) -> Judgement:
    """Judge a complete set of pairs; repeats of an item count once, with their mean."""
    return judge(gates, pairs, seed, measure_items if has_repeats(pairs) else measure)


def judge_look(
    mode: StoppingRule, look: Look, gates: Sequence[Gate], pairs: Sequence[AnsweredPair], seed: int
) -> Judgement:
    """Judge the pairs available at a look, at the level that the mode allots to it."""
    if mode is StoppingRule.ANYTIME:
        return replace(judge(gates, pairs, seed, _measure_anytime), look=look)
    if look.num_looks == 1:
        return replace(judge_once(gates, pairs, seed), look=look)
    # Decided once for all slices: a small slice may contain no repeats by chance.
    measure_all = measure_items if has_repeats(pairs) else measure

    def measure_look(gate: Gate, members: Sequence[AnsweredPair], seed: int) -> Effect:
        effect = measure_all(gate, members, seed)

        def at_look(p: float | None) -> float | None:
            return None if p is None else repeated_p(p, look.number, look.num_looks)

        return replace(
            effect,
            p_worse=at_look(effect.p_worse),
            p_better=at_look(effect.p_better),
            p_beyond=at_look(effect.p_beyond),
        )

    return replace(judge(gates, pairs, seed, measure_look), look=look)


def _measure_anytime(gate: Gate, pairs: Sequence[AnsweredPair], seed: int) -> Effect:
    """Return the effect with anytime-valid evidence; for shifts from the signs of log(B/A).

    One bet is made per cluster, on the mean of its items, once all of them have been asked.
    """
    effect = measure(gate, pairs, seed)
    if effect.estimate is None or effect.p_worse is None or isinstance(gate, CostGate):
        return effect
    if isinstance(gate, AccuracyGate | ErrorGate):
        value, sign = value_of(gate), -1.0 if isinstance(gate, ErrorGate) else 1.0
        both = [(pair, value(pair)) for pair in pairs]
        gains = _by_cluster([(p, sign * (w[1] - w[0])) for p, w in both if w is not None])
        return replace(
            effect,
            p_worse=anytime_p([-x for x in gains], 0.0),
            p_better=anytime_p(gains, 0.0),
            p_beyond=effect.p_beyond
            if isinstance(gate, ErrorGate)
            else anytime_p(gains, -gate.margin),
        )
    found = [(pair, ab) for pair in pairs if (ab := pair.latencies_s(gate.metric)) is not None]
    signs = _by_cluster([(pair, _sign(b - a)) for pair, (a, b) in found])
    within = [
        # A timed-out call may have taken any longer time.
        (pair, -1.0 if pair.b.has_timed_out and a < b else _sign(a * (1 + gate.margin) - b))
        for pair, (a, b) in found
    ]
    return replace(
        effect,
        p_worse=anytime_p(signs, 0.0),
        p_better=anytime_p([-x for x in signs], 0.0),
        p_beyond=anytime_p(_by_cluster(within), 0.0),
    )


def _by_cluster(values: Sequence[tuple[AnsweredPair, float]]) -> list[float]:
    """Return the mean of each cluster, in order of arrival.

    Clusters are asked one after the other, so all but the last are complete.
    """
    clusters: dict[str, list[float]] = {}
    for pair, value in values:
        clusters.setdefault(pair.item.cluster_id, []).append(value)
    if len(clusters) < len(values):
        clusters.popitem()
    return [sum(members) / len(members) for members in clusters.values()]


def _sign(value: float) -> float:
    return math.copysign(1.0, value) if value else 0.0
