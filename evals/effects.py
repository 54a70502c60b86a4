"""One gate on one set of pairs: the effect, its interval, and evidence in both directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from evals.answers import AnsweredPair
from evals.gates import AccuracyGate, Gate, LatencyGate, PreferenceGate
from evals.stats.binary import paired_binary
from evals.stats.clusters import clustered_mean
from evals.stats.inputs import Floats
from evals.stats.noninferiority import noninferior_accuracy
from evals.stats.quantiles import harrell_davis_steps, harrell_davis_weights, quantile_ci
from evals.stats.shift import shift_of_differences

NUM_RESAMPLES = 4000
# Resampled values held in memory at a time.
BLOCK_OF_VALUES = 500_000
MIN_PAIRS = 10


@dataclass(frozen=True, slots=True)
class Effect:
    """What one set of pairs shows about one gate.

    Accuracy effects are B − A as a fraction of the pairs; latency effects are B/A − 1.

    Attributes:
        num_pairs: Pairs that have the measure on both sides.
        baseline: A's value: accuracy, or seconds.
        candidate: B's value.
        estimate: The effect; None if it could not be measured.
        lower: Lower limit of the 95 % interval.
        upper: Upper limit.
        p_worse: One-sided p against «B is not worse».
        p_better: One-sided p against «B is not better».
        p_beyond: One-sided p against «B is worse by the margin or more».
        note: What a reader must know besides.
    """

    num_pairs: int
    baseline: float | None
    candidate: float | None
    estimate: float | None = None
    lower: float | None = None
    upper: float | None = None
    p_worse: float | None = None
    p_better: float | None = None
    p_beyond: float | None = None
    note: str | None = None


def measure(gate: Gate, pairs: Sequence[AnsweredPair], seed: int) -> Effect:
    """Return the effect of one gate on these pairs; with too few of them it says so."""
    if isinstance(gate, PreferenceGate):
        return _preference(gate, pairs)
    if isinstance(gate, AccuracyGate):
        return _accuracy(gate, pairs)
    a, b = _latencies(gate, pairs)
    return measure_latencies(gate, a, b, seed)


def measure_latencies(gate: LatencyGate, a: Floats, b: Floats, seed: int) -> Effect:
    """Return the effect of a latency gate on paired latencies in seconds."""
    if gate.quantile is None:
        return _shift(gate, a, b)
    return _quantile(gate, gate.quantile, a, b, seed)


def estimate(gate: Gate, pairs: Sequence[AnsweredPair]) -> float | None:
    """Return only the effect that `measure` would, at a fraction of its cost; None without one."""
    if isinstance(gate, PreferenceGate):
        judged = [p.preference for p in pairs if p.preference is not None]
        return (judged.count("B") - judged.count("A")) / len(judged) if judged else None
    if isinstance(gate, AccuracyGate):
        scored = [p for p in pairs if p.is_measured]
        changes = [int(bool(p.b.is_right)) - int(bool(p.a.is_right)) for p in scored]
        return sum(changes) / len(changes) if changes else None
    a, b = _latencies(gate, pairs)
    if gate.quantile is None:
        if len(a) < MIN_PAIRS:
            return None
        return math.expm1(shift_of_differences(np.log(b) - np.log(a)).pseudo_median)
    if len(a) < min_pairs_for(gate.quantile):
        return None
    near = pairs_around(gate.quantile, a, b)
    return math.expm1(shift_of_differences(np.log(b[near]) - np.log(a[near])).pseudo_median)


def _latencies(gate: LatencyGate, pairs: Sequence[AnsweredPair]) -> tuple[Floats, Floats]:
    found = (pair.latencies_s(gate.metric) for pair in pairs)
    measured = [both for both in found if both is not None]
    return np.array([x for x, _ in measured]), np.array([y for _, y in measured])


def _accuracy(gate: AccuracyGate, pairs: Sequence[AnsweredPair]) -> Effect:
    """Exact McNemar for direction, score test for the margin, Tango's interval.

    Items of one cluster are not independent, so the margin must also hold for the normal limit
    with the cluster-robust error.
    """
    scored = [p for p in pairs if p.is_measured]
    if not scored:
        return Effect(0, None, None, note="no pair scored on both sides")
    rights = [(p.item.cluster_id, bool(p.a.is_right), bool(p.b.is_right)) for p in scored]
    return _paired(gate, rights, ("lost", "gained"))


def _preference(gate: PreferenceGate, pairs: Sequence[AnsweredPair]) -> Effect:
    """Count who was preferred: a pair that A wins is one that B lost, and a tie is neither."""
    judged = [p for p in pairs if p.preference is not None]
    if not judged:
        return Effect(0, None, None, note="no pair was judged; give --judge")
    wins = [(p.item.cluster_id, p.preference == "A", p.preference == "B") for p in judged]
    return _paired(gate, wins, ("for the baseline", "for the candidate"))


def _paired(
    gate: AccuracyGate, rights: Sequence[tuple[str, bool, bool]], words: tuple[str, str]
) -> Effect:
    n = len(rights)
    n11 = sum(a and b for _, a, b in rights)
    n10 = sum(a and not b for _, a, b in rights)
    n01 = sum(b and not a for _, a, b in rights)
    table = paired_binary(n11, n10, n01, n - n11 - n10 - n01)
    low, high = table.ci95.tango
    p_beyond = noninferior_accuracy(n, n10, n01, gate.margin).p
    clustered = clustered_mean(
        [int(b) - int(a) for _, a, b in rights],
        [cluster for cluster, _, _ in rights],
    )
    if clustered.se_cr1:
        p_beyond = max(p_beyond, float(norm.sf((table.delta + gate.margin) / clustered.se_cr1)))
    return Effect(
        num_pairs=n,
        baseline=(n11 + n10) / n,
        candidate=(n11 + n01) / n,
        estimate=table.delta,
        lower=low,
        upper=high,
        p_worse=float(binom.sf(n10 - 1, n10 + n01, 0.5)),
        p_better=float(binom.sf(n01 - 1, n10 + n01, 0.5)),
        p_beyond=p_beyond,
        note=f"{n10} {words[0]}, {n01} {words[1]}; exact McNemar p = {table.p_exact:.2g}",
    )


def _shift(gate: LatencyGate, a: Floats, b: Floats) -> Effect:
    """Return the Hodges-Lehmann shift of log(B/A), as a ratio, with Wilcoxon's exact interval."""
    if len(a) < MIN_PAIRS:
        return _too_few(a, b, f"{MIN_PAIRS} pairs")
    logs = np.log(b) - np.log(a)
    forward = shift_of_differences(logs)
    backward = shift_of_differences(-logs)
    beyond = shift_of_differences(math.log1p(gate.margin) - logs)
    low, high = forward.ci95
    return Effect(
        num_pairs=len(a),
        baseline=float(np.median(a)),
        candidate=float(np.median(b)),
        estimate=math.expm1(forward.pseudo_median),
        lower=None if low is None else math.expm1(low),
        upper=None if high is None else math.expm1(high),
        p_worse=forward.p_greater,
        p_better=backward.p_greater,
        p_beyond=beyond.p_greater,
    )


def _quantile(gate: LatencyGate, quantile: float, a: Floats, b: Floats, seed: int) -> Effect:
    """Return the shift of the pairs around the quantile; to pass, the plain quantile must agree.

    To first and second order q(B) − q(A) is the mean of b − a over pairs whose middle is q, which
    a paired test on those pairs sees far better than two quantiles, each ruled by whatever stalled
    (docs/decisions/0104-paired-quantiles.md). With A and B exchangeable the test is exact. «Better»
    and «no worse» also take the ratio of Harrell-Davis quantiles, bootstrapped over whole pairs.
    """
    ranks = quantile_ci(max(len(a), 1), quantile, 0.95)
    if len(a) < MIN_PAIRS or ranks.lower_rank is None or ranks.upper_rank is None:
        return _too_few(a, b, f"{min_pairs_for(quantile)} pairs")
    weights = harrell_davis_weights(len(a), quantile)
    value_a, value_b = (float(weights @ np.sort(side)) for side in (a, b))
    near = pairs_around(quantile, a, b)
    local = _shift(gate, a[near], b[near])
    logs = _resampled_log_ratios(a, b, quantile, np.random.default_rng(seed))
    return replace(
        local,
        num_pairs=len(a),
        baseline=value_a,
        candidate=value_b,
        p_better=max(local.p_better or 0.0, _share(logs >= 0)),
        p_beyond=max(local.p_beyond or 0.0, _share(logs >= math.log1p(gate.margin))),
        note=f"from the {len(near)} pairs around the quantile",
    )


def pairs_around(quantile: float, a: Floats, b: Floats) -> NDArray[np.int64]:
    """Return which pairs have their middle √(a·b) around a quantile of all middles.

    As many ranks on each side as the shorter tail has, so p95 takes the slowest 10 %, p50 all; at
    least MIN_PAIRS.
    """
    order = np.argsort(np.log(a) + np.log(b), kind="stable")
    share = 2 * min(quantile, 1 - quantile)
    count = min(len(a), max(MIN_PAIRS, math.ceil(share * len(a) - 1e-9)))
    return order[len(a) - count :] if quantile >= 0.5 else order[:count]


def min_pairs_for(quantile: float) -> int:
    """Return the pairs from which on order statistics bound the quantile at 95 % on both sides."""
    tail = max(quantile, 1 - quantile)
    return max(MIN_PAIRS, math.ceil(math.log(0.025) / math.log(tail)))


def _resampled_log_ratios(
    a: Floats, b: Floats, quantile: float, generator: np.random.Generator
) -> Floats:
    """Return log(quantile B / quantile A) of NUM_RESAMPLES resamples of the pairs."""
    n = len(a)
    sides = _ResampledQuantile(a, quantile), _ResampledQuantile(b, quantile)
    block = max(1, BLOCK_OF_VALUES // n)
    blocks = []
    for start in range(0, NUM_RESAMPLES, block):
        rows = min(block, NUM_RESAMPLES - start)
        drawn = generator.integers(0, n, size=(rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        value_a, value_b = (side.of(counts) for side in sides)
        blocks.append(np.log(value_b) - np.log(value_a))
    return np.concatenate(blocks)


class _ResampledQuantile:
    """Harrell-Davis quantiles of resamples, given how often each value was drawn.

    Added up in the order of the values, those counts index the cumulative weights, so nothing is
    sorted twice. Values 20 standard errors of a rank below the quantile weigh nothing in any
    resample and are left out.
    """

    def __init__(self, values: Floats, quantile: float) -> None:
        n = len(values)
        error = math.sqrt(n * quantile * (1 - quantile))
        start = max(0, math.floor(n * quantile - 20 * error))
        self._order = np.argsort(values, kind="stable")[start:]
        self._values = values[self._order]
        self._steps = harrell_davis_steps(n, quantile)

    def of(self, counts: NDArray[np.int64]) -> Floats:
        """Return the quantile of each row of counts."""
        reached = np.cumsum(counts[:, self._order], axis=1)
        reached += counts.shape[1] - reached[:, -1:]
        weights = np.diff(self._steps[reached], prepend=0.0)
        return np.asarray(weights @ self._values, dtype=float)


def _share(hits: NDArray[np.bool_]) -> float:
    return (1 + int(np.count_nonzero(hits))) / (1 + len(hits))


def _too_few(a: Floats, b: Floats, needed: str) -> Effect:
    return Effect(
        num_pairs=len(a),
        baseline=float(np.median(a)) if len(a) else None,
        candidate=float(np.median(b)) if len(b) else None,
        note=f"{len(a)} of at least {needed}",
    )
