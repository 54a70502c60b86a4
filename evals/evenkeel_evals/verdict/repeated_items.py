"""Effects over repeated items: each item counts once, with the mean of its repeats.

Repeats of one item are not independent: counted as items, they would make intervals too short.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import norm, t

from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.stats.clusters import cluster_codes, cluster_sums, clustered_mean, design_effect
from evenkeel_evals.stats.sign_flips import sign_flip_tails
from evenkeel_evals.verdict.effect import Effect
from evenkeel_evals.verdict.gates import AccuracyGate, CostGate, ErrorGate, Gate, LatencyGate
from evenkeel_evals.verdict.latency_effects import Latencies, measure_latencies
from evenkeel_evals.verdict.measure import measure, value_of

GUARD_ALPHA = 0.001
Z95 = float(norm.ppf(0.975))


def has_repeats(pairs: Sequence[AnsweredPair]) -> bool:
    """Return whether any item occurs more than once in the pairs."""
    return len({pair.item.id for pair in pairs}) < len(pairs)


def measure_items(gate: Gate, pairs: Sequence[AnsweredPair], seed: int) -> Effect:
    """Return the effect of a gate over items, using the mean of each item's repeats.

    Accuracy and preference: mean of the items' B − A, with direction tested by flipping the signs
    of whole clusters, and interval and margin from the cluster-robust normal error, for the margin
    at least that of a candidate which always loses exactly that share of the items. Latency: each
    item's geometric means, measured like single pairs. Cost: each item's mean. Errors are counted
    per request.
    """
    items: dict[str, list[AnsweredPair]] = {}
    for pair in pairs:
        items.setdefault(pair.item.id, []).append(pair)
    if isinstance(gate, LatencyGate):
        return measure_latencies(gate, _latencies(gate, list(items.values())), seed)
    if isinstance(gate, ErrorGate | CostGate):
        return measure(gate, pairs, seed)
    return _shares(gate, list(items.values()))


def _latencies(gate: LatencyGate, items: Sequence[Sequence[AnsweredPair]]) -> Latencies:
    a, b, clusters, is_open = [], [], [], []
    for repeats in items:
        found = [(p, both) for p in repeats if (both := p.latencies_s(gate.metric)) is not None]
        if found:
            means = np.exp(np.log([both for _, both in found]).mean(axis=0))
            a.append(float(means[0]))
            b.append(float(means[1]))
            clusters.append(repeats[0].item.cluster_id)
            is_open.append(any(p.b.has_timed_out and not p.a.has_timed_out for p, _ in found))
    return Latencies(
        np.array(a, dtype=float),
        np.array(b, dtype=float),
        cluster_codes(clusters),
        np.array(is_open, dtype=bool),
    )


def _shares(gate: AccuracyGate, items: Sequence[Sequence[AnsweredPair]]) -> Effect:
    value = value_of(gate)
    names: list[str] = []
    means: list[tuple[float, float]] = []
    for repeats in items:
        known = [both for pair in repeats if (both := value(pair)) is not None]
        if known:
            a, b = (sum(side) / len(known) for side in zip(*known, strict=True))
            names.append(repeats[0].item.cluster_id)
            means.append((a, b))
    if not means:
        return Effect(0, None, None, note="no item has a score on both sides")
    values = np.array(means)
    changes, codes = values[:, 1] - values[:, 0], cluster_codes(names)
    num_clusters = int(codes.max()) + 1
    lost, gained = int((changes < 0).sum()), int((changes > 0).sum())
    spread = clustered_mean(changes.tolist(), names)
    # Without any spread the normal limit is useless: use the rule of three for 0 changes in n.
    floor = 3 / num_clusters / Z95
    width = max(spread.se_cr1 or 0.0, floor)
    is_single = num_clusters == len(means)
    z = Z95 if is_single or num_clusters < 2 else float(t.isf(0.025, num_clusters - 1))
    less, greater = sign_flip_tails(cluster_sums(changes, codes))
    # With few losses the spread is too small just when it misses losses: at the margin, whole
    # items may be lost, as in the score test of single items.
    lost_at_margin = gate.margin * (1 - gate.margin)
    num_effective = len(means) / design_effect(changes, values[:, 0], codes)
    at_margin = max(width, math.sqrt(lost_at_margin / num_effective))
    beyond = (spread.mean + gate.margin) / at_margin
    return Effect(
        num_pairs=len(means),
        baseline=float(values[:, 0].mean()),
        candidate=float(values[:, 1].mean()),
        estimate=spread.mean,
        lower=max(-1.0, spread.mean - z * width),
        upper=min(1.0, spread.mean + z * width),
        p_worse=less,
        p_better=greater,
        p_beyond=float(
            norm.sf(beyond) if is_single or num_clusters < 2 else t.sf(beyond, num_clusters - 1)
        ),
        note=f"means of repeats: {lost} items lost, {gained} gained; signs flipped by cluster",
    )


def repeats_for(num_items: int) -> int:
    """Return how often a lost item is repeated on both sides.

    An item that passes with probability θ on either side looks broken after the run and k repeats
    with probability (θ(1 − θ))^(k+1), at most 4^−(k+1) for any θ. Over n items of an unchanged
    candidate, the guard therefore fires with probability at most n·4^−(k+1); k is the smallest
    number for which that is at most 0.1%.
    """
    return max(1, math.ceil(math.log(num_items / GUARD_ALPHA, 4)) - 1)


def find_lost(pairs: Sequence[AnsweredPair]) -> list[AnsweredPair]:
    """Return the first pair that the baseline got right and the candidate wrong, for each item.

    Left out are items that the baseline also got wrong or the candidate right in another repeat.
    """
    cleared = {p.item.id for p in pairs if p.a.is_right is False or p.b.is_right is True}
    lost: dict[str, AnsweredPair] = {}
    for pair in pairs:
        is_lost = pair.a.is_right is True and pair.b.is_right is False
        if is_lost and pair.item.id not in cleared:
            lost.setdefault(pair.item.id, pair)
    return list(lost.values())
