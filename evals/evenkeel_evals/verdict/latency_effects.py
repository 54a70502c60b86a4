"""Latency gates: the shift of all pairs, and of the pairs around a quantile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from evenkeel_evals.ask.answers import AnsweredPair, LatencyMetric
from evenkeel_evals.stats.clustered_wilcoxon import shift_of_clusters, tails_of_clusters
from evenkeel_evals.stats.clusters import cluster_codes
from evenkeel_evals.stats.inputs import Floats
from evenkeel_evals.stats.quantiles import harrell_davis_steps, harrell_davis_weights, quantile_ci
from evenkeel_evals.stats.wilcoxon import shift_of_differences
from evenkeel_evals.verdict.effect import Effect
from evenkeel_evals.verdict.gates import LatencyGate

NUM_RESAMPLES = 4000
# Resampled values held in memory at a time.
BLOCK_OF_VALUES = 500_000
MIN_PAIRS = 10


@dataclass(frozen=True, slots=True)
class Latencies:
    """Both sides' latencies, for the pairs that have both.

    Attributes:
        a: The baseline's, in seconds; the timeout for a request that timed out.
        b: The candidate's.
        codes: The cluster of each pair, from 0.
        is_open: Whether only the candidate timed out: its latency is then at least b.
    """

    a: Floats
    b: Floats
    codes: NDArray[np.int64]
    is_open: NDArray[np.bool_]

    @classmethod
    def of(cls, metric: LatencyMetric, pairs: Sequence[AnsweredPair]) -> Self:
        """Return the latencies of the pairs."""
        found = [(p, both) for p in pairs if (both := p.latencies_s(metric)) is not None]
        return cls(
            np.array([a for _, (a, _) in found], dtype=float),
            np.array([b for _, (_, b) in found], dtype=float),
            cluster_codes([pair.item.cluster_id for pair, _ in found]),
            np.array([p.b.has_timed_out and not p.a.has_timed_out for p, _ in found], dtype=bool),
        )

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.a)

    def log_ratios(self) -> Floats:
        """Return log(B/A) of each pair."""
        return np.asarray(np.log(self.b) - np.log(self.a))

    def take(self, chosen: NDArray[np.int64]) -> Latencies:
        """Return a subset of the pairs."""
        codes = cluster_codes(self.codes[chosen].tolist())
        return Latencies(self.a[chosen], self.b[chosen], codes, self.is_open[chosen])


def measure_latencies(gate: LatencyGate, latencies: Latencies, seed: int) -> Effect:
    """Return the effect of a latency gate on paired latencies."""
    if gate.quantile is None:
        return _shift(gate, latencies)
    return _quantile(gate, gate.quantile, latencies, seed)


def estimate_latency(gate: LatencyGate, latencies: Latencies) -> float | None:
    """Return only the estimate of `measure_latencies`; None with too few pairs."""
    if gate.quantile is not None:
        if len(latencies) < min_pairs_for(gate.quantile):
            return None
        latencies = latencies.take(pairs_around(gate.quantile, latencies.a, latencies.b))
    elif len(latencies) < MIN_PAIRS:
        return None
    return math.expm1(shift_of_differences(latencies.log_ratios()).pseudo_median)


def _shift(gate: LatencyGate, found: Latencies) -> Effect:
    """Return the Hodges-Lehmann shift of log(B/A), as a ratio, with Wilcoxon's exact interval."""
    if len(found) < MIN_PAIRS:
        return _too_few(found, f"{MIN_PAIRS} pairs")
    logs, codes = found.log_ratios(), found.codes
    forward = shift_of_clusters(logs, codes)
    faster, slower = tails_of_clusters(logs, codes)
    # A timed-out call may have taken any longer time: it counts as worse than all others.
    far = 1 + float(np.abs(logs).max()) + math.log1p(gate.margin)
    over = np.where(found.is_open, far, logs) - math.log1p(gate.margin)
    low, high = forward.ci95
    return Effect(
        num_pairs=len(found),
        baseline=float(np.median(found.a)),
        candidate=float(np.median(found.b)),
        estimate=math.expm1(forward.pseudo_median),
        lower=None if low is None else math.expm1(low),
        upper=None if high is None else math.expm1(high),
        p_worse=slower,
        p_better=faster,
        p_beyond=tails_of_clusters(over, codes)[0],
        note=_timed_out(found),
    )


def _timed_out(found: Latencies) -> str | None:
    count = int(found.is_open.sum())
    return f"{count} timed out on the candidate only: at least the limit" if count else None


def _quantile(gate: LatencyGate, quantile: float, found: Latencies, seed: int) -> Effect:
    """Return the shift of the pairs around a quantile; to pass, the plain quantile must agree.

    To first and second order, q(B) − q(A) is the mean of b − a over pairs whose midpoint is q. A
    paired test on those pairs detects it far better than two quantiles, each dominated by stalls
    (docs/decisions/0104-paired-quantiles.md). If A and B are exchangeable, the test is exact.
    "Better" and "no worse" also require the ratio of Harrell-Davis quantiles, bootstrapped over
    whole clusters.
    """
    a, b = found.a, found.b
    ranks = quantile_ci(max(len(a), 1), quantile, 0.95)
    if len(a) < MIN_PAIRS or ranks.lower_rank is None or ranks.upper_rank is None:
        return _too_few(found, f"{min_pairs_for(quantile)} pairs")
    weights = harrell_davis_weights(len(a), quantile)
    value_a, value_b = (float(weights @ np.sort(side)) for side in (a, b))
    near = pairs_around(quantile, a, b)
    local = _shift(gate, found.take(near))
    logs = _resampled_log_ratios(found, quantile, np.random.default_rng(seed))
    timed_out = _timed_out(found)
    return replace(
        local,
        num_pairs=len(a),
        baseline=value_a,
        candidate=value_b,
        p_better=max(local.p_better or 0.0, _share(logs >= 0)),
        p_beyond=max(local.p_beyond or 0.0, _share(logs >= math.log1p(gate.margin))),
        note=f"from the {len(near)} pairs around the quantile"
        + (f"; {timed_out}" if timed_out else ""),
    )


def pairs_around(quantile: float, a: Floats, b: Floats) -> NDArray[np.int64]:
    """Return which pairs have their midpoint √(a·b) around a quantile of all midpoints.

    Takes as many ranks on each side as the shorter tail has, so p95 takes the slowest 10% and p50
    all; at least MIN_PAIRS.
    """
    order = np.argsort(np.log(a) + np.log(b), kind="stable")
    share = 2 * min(quantile, 1 - quantile)
    count = min(len(a), max(MIN_PAIRS, math.ceil(share * len(a) - 1e-9)))
    return order[len(a) - count :] if quantile >= 0.5 else order[:count]


def min_pairs_for(quantile: float) -> int:
    """Return the number of pairs at which order statistics bound the quantile at 95%."""
    tail = max(quantile, 1 - quantile)
    return max(MIN_PAIRS, math.ceil(math.log(0.025) / math.log(tail)))


def _resampled_log_ratios(
    found: Latencies, quantile: float, generator: np.random.Generator
) -> Floats:
    """Return log(quantile B / quantile A) for NUM_RESAMPLES resamples of the clusters."""
    n, num_clusters = len(found), int(found.codes.max()) + 1
    sides = _ResampledQuantile(found.a, quantile), _ResampledQuantile(found.b, quantile)
    block = max(1, BLOCK_OF_VALUES // n)
    blocks = []
    for start in range(0, NUM_RESAMPLES, block):
        rows = min(block, NUM_RESAMPLES - start)
        drawn = generator.integers(0, num_clusters, size=(rows, num_clusters))
        drawn += num_clusters * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * num_clusters)
        counts = counts.reshape(rows, num_clusters)[:, found.codes]
        value_a, value_b = (side.of(counts) for side in sides)
        blocks.append(np.log(value_b) - np.log(value_a))
    return np.concatenate(blocks)


class _ResampledQuantile:
    """Harrell-Davis quantiles of resamples, given how often each value was drawn.

    Cumulated in value order, those counts index the cumulative weights, so nothing is sorted
    twice. Values 20 standard errors of a rank below the quantile have no weight in any resample
    and are left out.
    """

    def __init__(self, values: Floats, quantile: float) -> None:
        n = len(values)
        error = math.sqrt(n * quantile * (1 - quantile))
        start = max(0, math.floor(n * quantile - 20 * error))
        self._order = np.argsort(values, kind="stable")[start:]
        self._values = values[self._order]
        self._steps = harrell_davis_steps(n, quantile)

    def of(self, counts: NDArray[np.int64]) -> Floats:
        """Return the quantile for each row of counts."""
        n = counts.shape[1]
        reached = np.cumsum(counts[:, self._order], axis=1)
        totals = counts.sum(axis=1, keepdims=True)
        reached += totals - reached[:, -1:]
        if (totals != n).any():
            # Cluster sizes differ, so not every resample has n pairs.
            reached = np.rint(reached * (n / totals)).astype(np.int64)
        weights = np.diff(self._steps[reached], prepend=0.0)
        return np.asarray(weights @ self._values, dtype=float)


def _share(hits: NDArray[np.bool_]) -> float:
    return (1 + int(np.count_nonzero(hits))) / (1 + len(hits))


def _too_few(found: Latencies, needed: str) -> Effect:
    return Effect(
        num_pairs=len(found),
        baseline=float(np.median(found.a)) if len(found) else None,
        candidate=float(np.median(found.b)) if len(found) else None,
        note=f"{len(found)} of the {needed} needed",
    )
