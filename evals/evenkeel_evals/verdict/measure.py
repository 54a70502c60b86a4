"""Measures one gate on one set of pairs: effect, interval, and evidence in both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import norm, t

from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.stats.clusters import cluster_codes, cluster_sums, clustered_mean, design_effect
from evenkeel_evals.stats.inputs import Floats
from evenkeel_evals.stats.sign_flips import sign_flip_tails
from evenkeel_evals.stats.tango import score_interval, score_z
from evenkeel_evals.verdict.cost_effects import estimate_cost, measure_costs
from evenkeel_evals.verdict.effect import Effect
from evenkeel_evals.verdict.gates import (
    AccuracyGate,
    CostGate,
    ErrorGate,
    Gate,
    PreferenceGate,
    is_more,
)
from evenkeel_evals.verdict.latency_effects import Latencies, estimate_latency, measure_latencies

# A pair's value on each side, such as 1 for a right answer; None if it does not count.
PairValue = tuple[float, float]


def measure(gate: Gate, pairs: Sequence[AnsweredPair], seed: int) -> Effect:
    """Return the effect of one gate on these pairs; its note says if there are too few."""
    if isinstance(gate, ErrorGate):
        return _errors(gate, pairs)
    if isinstance(gate, PreferenceGate):
        return _preference(gate, pairs)
    if isinstance(gate, AccuracyGate):
        return _accuracy(gate, pairs)
    if isinstance(gate, CostGate):
        return measure_costs(gate, pairs)
    return measure_latencies(gate, Latencies.of(gate.metric, pairs), seed)


def estimate(gate: Gate, pairs: Sequence[AnsweredPair]) -> float | None:
    """Return only the estimate of `measure`, at a fraction of the cost; None if it has none."""
    if isinstance(gate, ErrorGate | AccuracyGate):
        found = [worth for pair in pairs if (worth := value_of(gate)(pair)) is not None]
        return sum(b - a for a, b in found) / len(found) if found else None
    if isinstance(gate, CostGate):
        return estimate_cost(pairs)
    return estimate_latency(gate, Latencies.of(gate.metric, pairs))


def value_of(gate: AccuracyGate | ErrorGate) -> Callable[[AnsweredPair], PairValue | None]:
    """Return a pair's values: for right answers, won preferences, or failed requests."""
    if isinstance(gate, ErrorGate):
        return _failed
    return _preferred if isinstance(gate, PreferenceGate) else _right


def _right(pair: AnsweredPair) -> PairValue | None:
    return (
        (float(bool(pair.a.is_right)), float(bool(pair.b.is_right))) if pair.is_measured else None
    )


def _preferred(pair: AnsweredPair) -> PairValue | None:
    if pair.preference is None:
        return None
    return float(pair.preference == "A"), float(pair.preference == "B")


def _failed(pair: AnsweredPair) -> PairValue:
    return float(pair.a.has_failed), float(pair.b.has_failed)


def _accuracy(gate: AccuracyGate, pairs: Sequence[AnsweredPair]) -> Effect:
    scored = [p for p in pairs if p.is_measured]
    if not scored:
        return Effect(0, None, None, note="no pair has a score on both sides")
    names = [pair.item.cluster_id for pair in scored]
    values = np.array([_right(pair) for pair in scored], dtype=float)
    return _paired(gate.margin, values, names, ("lost", "gained"))


def _preference(gate: PreferenceGate, pairs: Sequence[AnsweredPair]) -> Effect:
    """Measure preference: a win of A is a loss of B, and a tie is neither."""
    judged = [p for p in pairs if p.preference is not None]
    if not judged:
        return Effect(0, None, None, note="no pair was judged; pass --judge")
    names = [pair.item.cluster_id for pair in judged]
    values = np.array([_preferred(pair) for pair in judged], dtype=float)
    return _paired(gate.margin, values, names, ("for the baseline", "for the candidate"))


def _errors(gate: ErrorGate, pairs: Sequence[AnsweredPair]) -> Effect:
    """Measure requests that failed on one side only; an exact test shows if B fails more often.

    The observed difference is compared with the tolerance: a candidate that never fails passes
    with any number of pairs, and one that failed more often than tolerated never does.
    """
    # A cached answer is not a request, and failures are not cached.
    pairs = [pair for pair in pairs if not (pair.a.reply.is_cached or pair.b.reply.is_cached)]
    if not pairs:
        return Effect(
            0, None, None, estimate=0.0, p_beyond=0.0, note="every answer came from the cache"
        )
    failures = np.array([_failed(pair) for pair in pairs])
    shares = failures.mean(axis=0)
    num_more = int(failures[:, 1].sum() - failures[:, 0].sum())
    observed = Effect(
        num_pairs=len(pairs),
        baseline=float(shares[0]),
        candidate=float(shares[1]),
        estimate=num_more / len(pairs),
        p_beyond=1.0 if is_more(num_more / len(pairs), gate.margin) else 0.0,
    )
    if not failures.any():
        return replace(observed, note="no request failed")
    only = (failures[:, 0] > failures[:, 1], failures[:, 1] > failures[:, 0])
    note = f"{only[1].sum()} failed on the candidate only, {only[0].sum()} on the baseline only"
    names = [pair.item.cluster_id for pair in pairs]
    answered = _paired(gate.margin, 1 - failures, names, ("", ""))
    measured = replace(
        observed,
        lower=None if answered.upper is None else 0.0 - answered.upper,
        upper=None if answered.lower is None else 0.0 - answered.lower,
        note=note,
    )
    if num_more <= 0:
        # Nothing to test, so it does not count in the correction of the other gates.
        return measured
    return replace(measured, p_worse=answered.p_worse, p_better=answered.p_better)


def _paired(margin: float, values: Floats, names: Sequence[str], words: tuple[str, str]) -> Effect:
    """Return the effect: exact McNemar for direction, score test for the margin, Tango's interval.

    Items of one cluster are not independent, so signs are flipped for whole clusters, which is
    McNemar's test if each cluster has one item. The interval and the score test use the effective
    number of items, and the margin must also hold with the cluster-robust error.

    Args:
        margin: Largest tolerated loss.
        values: Each pair's values on both sides, 0 or 1; shape (pairs, 2).
        names: The cluster of each pair.
        words: The terms for pairs that only A and that only B has.
    """
    changes, codes = values[:, 1] - values[:, 0], cluster_codes(names)
    n, num_clusters = len(changes), int(codes.max()) + 1
    n10, n01 = int((changes < 0).sum()), int((changes > 0).sum())
    per_item = design_effect(changes, values[:, 0], codes)
    z = float(norm.isf(0.025))
    p_beyond = float(norm.sf(score_z(-margin, n / per_item, n10 / per_item, n01 / per_item)))
    if 1 < num_clusters < n:
        z = float(t.isf(0.025, num_clusters - 1))
        error = clustered_mean(changes.tolist(), names).se_cr1
        if error:
            robust = (float(changes.mean()) + margin) / error
            p_beyond = max(p_beyond, float(t.sf(robust, num_clusters - 1)))
    low, high = score_interval(n / per_item, n10 / per_item, n01 / per_item, z)
    if num_clusters == 1 < n:
        # A single cluster has no spread to estimate an error from.
        low, high, p_beyond = -1.0, 1.0, 1.0
    less, greater = sign_flip_tails(cluster_sums(changes, codes))
    clusters = f" over {num_clusters} clusters" if num_clusters < n else ""
    return Effect(
        num_pairs=n,
        baseline=float(values[:, 0].mean()),
        candidate=float(values[:, 1].mean()),
        estimate=float(changes.mean()),
        lower=low,
        upper=high,
        p_worse=less,
        p_better=greater,
        p_beyond=p_beyond,
        note=f"{n10} {words[0]}, {n01} {words[1]}; exact McNemar{clusters} "
        f"p = {min(1.0, 2 * min(less, greater)):.2g}",
    )
