"""The gate on cost: the ratio of what both sides' answers cost together, as on a bill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from evenkeel_evals.ask.answers import Answer, AnsweredPair
from evenkeel_evals.stats.clusters import cluster_codes, cluster_sums
from evenkeel_evals.stats.inputs import Floats, Interval
from evenkeel_evals.stats.sign_flips import sign_flip_tails
from evenkeel_evals.verdict.effect import Effect
from evenkeel_evals.verdict.gates import CostGate

MIN_PAIRS = 10
# A few answers without a cost are left out; more could be the expensive ones.
MAX_MISSING_RATIO = 0.05


@dataclass(frozen=True, slots=True)
class _Costs:
    """Mean cost of each item on both sides, and its cluster."""

    a: Floats
    b: Floats
    names: list[str]


def measure_costs(gate: CostGate, pairs: Sequence[AnsweredPair]) -> Effect:
    """Return the effect on cost: mean(B) / mean(A) − 1 over items, each with its repeats' mean.

    Direction: signs of B − A flipped for whole clusters, exact if A and B are exchangeable, and
    for "better" also that their sums are below 0 on average. Interval: Fieller's, from the
    clusters' sums (1954, J. R. Stat. Soc. B 16:175). Margin: test that the clusters' sums of
    B − (1 + margin)·A are below 0 on average.
    """
    problem = find_missing(pairs)
    if problem is not None:
        return Effect(0, None, None, note=problem)
    found = _costs(pairs)
    n = len(found.a)
    mean_a, mean_b = (float(side.mean()) if n else None for side in (found.a, found.b))
    if n < MIN_PAIRS:
        return Effect(n, mean_a, mean_b, note=f"{n} of the {MIN_PAIRS} pairs needed")
    if not mean_a and not mean_b:
        note = "both sides cost nothing"
        return Effect(n, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, note=note)
    if not mean_a:
        note = "the baseline costs nothing, so there is no ratio"
        return Effect(n, mean_a, mean_b, note=note)
    codes = cluster_codes(found.names)
    sums_a, sums_b = cluster_sums(found.a, codes), cluster_sums(found.b, codes)
    low, high = _fieller(sums_a, sums_b)
    less, greater = sign_flip_tails(sums_b - sums_a)
    return Effect(
        num_pairs=n,
        baseline=mean_a,
        candidate=mean_b,
        estimate=float(found.b.sum() / found.a.sum()) - 1,
        lower=None if low is None else low - 1,
        upper=None if high is None else high - 1,
        p_worse=greater,
        p_better=max(less, _p_not_below(sums_b - sums_a)),
        p_beyond=_p_not_below(sums_b - (1 + gate.margin) * sums_a),
        note=_note(pairs),
    )


def estimate_cost(pairs: Sequence[AnsweredPair]) -> float | None:
    """Return only the estimate of `measure_costs`."""
    found = _costs(pairs)
    if find_missing(pairs) is not None or len(found.a) < MIN_PAIRS or not found.a.sum():
        return None
    return float(found.b.sum() / found.a.sum()) - 1


def find_missing(pairs: Sequence[AnsweredPair]) -> str | None:
    """Return why the cost of these pairs could not be measured; None if it could."""
    found = [[a for a in (pair.a, pair.b) if _lacks_cost(a)] for pair in pairs]
    num_missing = sum(map(bool, found))
    if num_missing <= MAX_MISSING_RATIO * len(pairs):
        return None
    reasons = [a.cost_problem or "it was not recorded" for missing in found for a in missing]
    commonest = max(sorted(set(reasons)), key=reasons.count)
    return f"{num_missing} of {len(pairs)} pairs have no cost on both sides ({commonest})"


def _lacks_cost(answer: Answer) -> bool:
    return answer.cost is None and not answer.has_failed


def _costs(pairs: Sequence[AnsweredPair]) -> _Costs:
    items: dict[str, list[tuple[float, float]]] = {}
    cluster_of: dict[str, str] = {}
    for pair in pairs:
        if not _is_left_out(pair):
            assert pair.a.cost is not None and pair.b.cost is not None
            items.setdefault(pair.item.id, []).append((pair.a.cost, pair.b.cost))
            cluster_of[pair.item.id] = pair.item.cluster_id
    means = np.array([np.mean(both, axis=0) for both in items.values()], dtype=float)
    means = means.reshape(-1, 2)
    return _Costs(means[:, 0], means[:, 1], [cluster_of[name] for name in items])


def _is_left_out(pair: AnsweredPair) -> bool:
    # A failed request may be cheap, but it is no answer.
    return any(answer.cost is None or answer.has_failed for answer in (pair.a, pair.b))


def _note(pairs: Sequence[AnsweredPair]) -> str | None:
    left_out = sum(map(_is_left_out, pairs))
    return f"{left_out} pairs without a cost on both sides left out" if left_out else None


def _fieller(a: Floats, b: Floats) -> Interval:
    """Return the 95% interval of mean(b) / mean(a); unbounded if a's mean may be 0."""
    count = len(a)
    if count < 2:
        return None, None
    quantile = float(t.isf(0.025, count - 1))
    (var_a, cov), (_, var_b) = quantile**2 / count * np.cov(a, b)
    mean_a, mean_b = float(a.mean()), float(b.mean())
    square, middle, constant = mean_a**2 - var_a, mean_a * mean_b - cov, mean_b**2 - var_b
    if square <= 0:
        return None, None
    # Equal sides have no spread: their root is 0 up to rounding.
    root = math.sqrt(max(0.0, float(middle**2 - square * constant)))
    return float((middle - root) / square), float((middle + root) / square)


def _p_not_below(terms: Floats) -> float:
    """Return the one-sided p against "the mean is 0 or more".

    A t test, with Hall's correction for skewness (1992, J. R. Stat. Soc. B 54:221) where that
    raises p: a sample with too few of a candidate's rare expensive answers looks both cheap and
    certain. T is the mean over the spread, g the skewness; the statistic is
    √n·(((1 + gT/3)³ − 1)/g + g/(6n)).
    """
    mean, count = float(terms.mean()), len(terms)
    if count < 2:
        return 1.0
    spread = float(terms.std())
    if spread <= 1e-12 * abs(mean) or spread == 0:
        return 0.0 if mean < 0 else 1.0
    ratio = mean / spread
    skewness = float((((terms - mean) / spread) ** 3).mean())
    corrected = ratio + skewness * ratio**2 / 3 + skewness**2 * ratio**3 / 27
    corrected += skewness / (6 * count)
    plain = float(t.cdf(math.sqrt(count - 1) * ratio, count - 1))
    return max(plain, float(t.cdf(math.sqrt(count) * corrected, count - 1)))
