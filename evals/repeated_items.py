"""Items that were asked several times: each counts once, with the mean of its repeats.

Repeats of one item are not independent: taken for items, they would make every interval too short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import binom, norm

from evals.answers import AnsweredPair
from evals.effects import Effect, measure_latencies
from evals.gates import AccuracyGate, Gate, LatencyGate, PreferenceGate
from evals.stats.clusters import clustered_mean
from evals.stats.inputs import Floats

Z95 = float(norm.ppf(0.975))
_WORTH = {"A": -1.0, "B": 1.0, "tie": 0.0}


def has_repeats(pairs: Sequence[AnsweredPair]) -> bool:
    """Return whether an item is among the pairs more than once."""
    return len({pair.item.id for pair in pairs}) < len(pairs)


def measure_items(gate: Gate, pairs: Sequence[AnsweredPair], seed: int) -> Effect:
    """Return the effect of a gate over items, each with the mean of its repeats.

    Accuracy and preference: mean of the items' B − A; direction by the exact sign test over the
    items that moved; interval and margin with the cluster-robust normal error. Latency: each
    item's geometric means, measured as single pairs are.
    """
    items: dict[str, list[AnsweredPair]] = {}
    for pair in pairs:
        items.setdefault(pair.item.id, []).append(pair)
    if isinstance(gate, LatencyGate):
        a, b = _latencies(gate, list(items.values()))
        return measure_latencies(gate, a, b, seed)
    if isinstance(gate, PreferenceGate):
        return _shares(gate, list(items.values()), _preferred)
    return _shares(gate, list(items.values()), _right)


def _latencies(gate: LatencyGate, items: Sequence[Sequence[AnsweredPair]]) -> tuple[Floats, Floats]:
    a, b = [], []
    for repeats in items:
        known = [both for pair in repeats if (both := pair.latencies_s(gate.metric)) is not None]
        if known:
            means = np.exp(np.log(known).mean(axis=0))
            a.append(float(means[0]))
            b.append(float(means[1]))
    return np.array(a), np.array(b)


def _right(pair: AnsweredPair) -> tuple[float, float] | None:
    return (
        (float(bool(pair.a.is_right)), float(bool(pair.b.is_right))) if pair.is_measured else None
    )


def _preferred(pair: AnsweredPair) -> tuple[float, float] | None:
    if pair.preference is None:
        return None
    return float(pair.preference == "A"), float(pair.preference == "B")


def _shares(
    gate: AccuracyGate,
    items: Sequence[Sequence[AnsweredPair]],
    score: Callable[[AnsweredPair], tuple[float, float] | None],
) -> Effect:
    means: list[tuple[str, float, float]] = []
    for repeats in items:
        known = [both for pair in repeats if (both := score(pair)) is not None]
        if known:
            a, b = (sum(side) / len(known) for side in zip(*known, strict=True))
            means.append((repeats[0].item.cluster_id, a, b))
    if not means:
        return Effect(0, None, None, note="no item was scored on both sides")
    changes = [b - a for _, a, b in means]
    lost, gained = sum(d < 0 for d in changes), sum(d > 0 for d in changes)
    spread = clustered_mean(changes, [cluster for cluster, _, _ in means])
    error = spread.se_cr1
    # Without any spread the normal limit says nothing: a margin of 0 changes in n, rule of three.
    floor = 3 / len(means) / Z95
    width = max(error or 0.0, floor)
    return Effect(
        num_pairs=len(means),
        baseline=sum(a for _, a, _ in means) / len(means),
        candidate=sum(b for _, _, b in means) / len(means),
        estimate=spread.mean,
        lower=max(-1.0, spread.mean - Z95 * width),
        upper=min(1.0, spread.mean + Z95 * width),
        p_worse=float(binom.sf(lost - 1, lost + gained, 0.5)),
        p_better=float(binom.sf(gained - 1, lost + gained, 0.5)),
        p_beyond=float(norm.sf((spread.mean + gate.margin) / width)),
        note=f"means of repeats: {lost} items lost, {gained} gained; sign test",
    )
