"""Compare ways to detect a slower p95 in pairs, on the noise of bench/eval_runs.py.

    python bench/quantile_estimators.py --runs 60

B's TTFT is 10% longer, 1,000 pairs, margin 5%, one-sided 2.5%. docs/decisions/0104 explains why.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.eval_runs import make_items, simulate
from bench.report import write_report
from evenkeel_evals.stats.quantiles import harrell_davis_steps
from evenkeel_evals.stats.wilcoxon import shift_of_differences
from evenkeel_evals.verdict.latency_effects import pairs_around

NUM_PAIRS, NUM_RESAMPLES, QUANTILE, MARGIN, ALPHA = 1000, 600, 0.95, 0.05, 0.025
Floats = NDArray[np.float64]
SMOOTHED: dict[str, Any] = {
    "Harrell-Davis": [0.95],
    "averaged over p93 to p97": np.linspace(0.93, 0.97, 9),
    "averaged over p91.5 to p98.5": np.linspace(0.915, 0.985, 15),
}
LOCAL = "Hodges-Lehmann, pairs around p95"


def log_ratio(steps: Floats, a: Floats, b: Floats) -> float:
    weights = np.diff(steps)
    return math.log(float(weights @ np.sort(b)) / float(weights @ np.sort(a)))


def resampled(steps: Floats, values: Floats, counts: NDArray[np.int64]) -> Floats:
    order = np.argsort(values)
    reached = np.cumsum(counts[:, order], axis=1)
    found: Floats = np.diff(steps[reached], prepend=0.0) @ values[order]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    items = make_items(NUM_PAIRS)
    steps = {
        name: np.mean([harrell_davis_steps(NUM_PAIRS, float(q)) for q in quantiles], axis=0)
        for name, quantiles in SMOOTHED.items()
    }
    estimates: dict[str, list[float]] = {name: [] for name in [*steps, LOCAL]}
    found = dict.fromkeys(estimates, 0)

    def take(name: str, estimate: float, p_worse: float) -> None:
        estimates[name].append(estimate)
        found[name] += p_worse <= ALPHA and estimate > math.log1p(MARGIN)

    for seed in range(args.runs):
        pairs = simulate(items, 50_000 + seed, lambda seconds: seconds * 1.1)
        a = np.array([pair.a.reply.ttft_s for pair in pairs], dtype=float)
        b = np.array([pair.b.reply.ttft_s for pair in pairs], dtype=float)
        uniform = np.full(NUM_PAIRS, 1 / NUM_PAIRS)
        counts = np.random.default_rng(seed).multinomial(NUM_PAIRS, uniform, NUM_RESAMPLES)
        for name, edges in steps.items():
            logs = np.log(resampled(edges, b, counts) / resampled(edges, a, counts))
            p_worse = (1 + int(np.count_nonzero(logs <= 0))) / (1 + NUM_RESAMPLES)
            take(name, log_ratio(edges, a, b), p_worse)
        near = pairs_around(QUANTILE, a, b)
        shift = shift_of_differences(np.log(b[near] / a[near]))
        take(LOCAL, shift.pseudo_median, shift.p_greater)
    for name, values in estimates.items():
        spread = f"mean {np.mean(values):.3f}, sd {np.std(values):.3f}"
        print(f"{name:34} {spread}, found {found[name] / args.runs:.0%}")
    if args.json:
        record = {
            name: {"mean": np.mean(v), "sd": np.std(v), "found_ratio": found[name] / args.runs}
            for name, v in estimates.items()
        }
        write_report(args.json, record)


if __name__ == "__main__":
    main()
