"""Measure how often an unchanged candidate gets a verdict if items are not independent.

    python bench/unchanged_runs.py --json build/unchanged_runs.json     some ten minutes on one core
    python bench/unchanged_runs.py --runs 100                           a short run

300 items in clusters of 1, 5 and 20, whose changes have a correlation of 0, 0.5 and 1 within a
cluster: an item takes its cluster's value with the square root of that as its probability. A and B
are equal, so "better", "worse" and "regressed" are false alarms; at most 64 of 1,000 runs may give
one (5% plus the scatter of 1,000 runs). For the same clusters it also measures how often an
unchanged candidate is shown to be no worse in accuracy and in latency, and how often one that loses
a tenth of its answers and a tenth of its speed is detected.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from evenkeel_evals.ask.answers import Answer, AnsweredPair
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.dataset.dataset import Item, Message
from evenkeel_evals.scorers.base import Label, Score, make_scorer
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.gate_verdicts import OVERALL, Judgement, judge
from evenkeel_evals.verdict.gates import parse_gates, with_errors

GATES = with_errors(parse_gates("accuracy>=-5%, p95_ttft<=+10%, shift_ttft<=+5%"))
NUM_ITEMS = 300
SIZES, CORRELATIONS = (1, 5, 20), (0.0, 0.5, 1.0)
LIMIT = 0.064
FALSE = (Verdict.BETTER, Verdict.WORSE, Verdict.REGRESSED)
SCORER = make_scorer("exact", "x")


def simulate(
    size: int, correlation: float, seed: int, lost: float = 0.0, slower: float = 1.0
) -> list[AnsweredPair]:
    """Return a run; B loses a share of its right answers and takes longer by a factor."""
    generator = np.random.default_rng(seed)
    num_clusters = NUM_ITEMS // size
    cluster = np.arange(NUM_ITEMS) // size
    is_shared = generator.random(NUM_ITEMS) < np.sqrt(correlation)

    def draw_right() -> np.ndarray:
        common, own = generator.random(num_clusters), generator.random(NUM_ITEMS)
        return np.where(is_shared, common[cluster], own) < 0.8

    def draw_noise() -> np.ndarray:
        common, own = generator.normal(size=num_clusters), generator.normal(size=NUM_ITEMS)
        return np.where(is_shared, common[cluster], own) * 0.1

    right_a, right_b = draw_right(), draw_right() & (generator.random(NUM_ITEMS) >= lost)
    base = generator.normal(-3, 0.5, NUM_ITEMS)
    ttft_a, ttft_b = np.exp(base + draw_noise()), np.exp(base + draw_noise()) * slower

    def answer(is_right: bool, ttft_s: float) -> Answer:
        label = Label.RIGHT if is_right else Label.WRONG
        reply = Reply(0, 0, text="x", ttft_s=ttft_s, e2e_s=ttft_s * 2, output_tokens=10)
        return Answer(reply, Score(float(is_right), label), "0" * 32, "0" * 16)

    return [
        AnsweredPair(
            i,
            Item(str(i), (Message("user", "?"),), "x", SCORER, (), f"c{cluster[i]}"),
            "A",
            answer(bool(right_a[i]), float(ttft_a[i])),
            answer(bool(right_b[i]), float(ttft_b[i])),
        )
        for i in range(NUM_ITEMS)
    ]


def verdict_of(judgement: Judgement, metric: str) -> Verdict:
    results = judgement.results
    return next(r.verdict for r in results if r.slice_name == OVERALL and r.metric == metric)


def measure(size: int, correlation: float, num_runs: int) -> dict[str, float]:
    found: Counter[str] = Counter()
    for seed in range(num_runs):
        unchanged = judge(GATES, simulate(size, correlation, seed), seed)
        found["false"] += unchanged.verdict in FALSE
        for metric in ("accuracy", "shift_ttft"):
            found[f"{metric} passed"] += verdict_of(unchanged, metric) is Verdict.NO_WORSE
    num_tries = max(1, num_runs // 5)
    for seed in range(num_tries):
        pairs = simulate(size, correlation, 10**6 + seed, lost=0.1, slower=1.1)
        changed = judge(GATES, pairs, seed)
        for metric in ("accuracy", "shift_ttft"):
            found[f"{metric} found"] += verdict_of(changed, metric) is Verdict.REGRESSED
    return {
        "unchanged_with_a_verdict": found["false"] / num_runs,
        "unchanged_accuracy_no_worse": found["accuracy passed"] / num_runs,
        "unchanged_shift_no_worse": found["shift_ttft passed"] / num_runs,
        "accuracy_loss_found": found["accuracy found"] / num_tries,
        "shift_found": found["shift_ttft found"] / num_tries,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--json", type=Path, metavar="PATH")
    args = parser.parse_args()
    figures = []
    for size in SIZES:
        for correlation in CORRELATIONS:
            started = time.perf_counter()
            found = measure(size, correlation, args.runs)
            figures.append({"size": size, "correlation": correlation, **found})
            print(
                f"clusters of {size:2}, correlation {correlation:.1f}: "
                + ", ".join(f"{name} {value:.3f}" for name, value in found.items())
                + f" ({time.perf_counter() - started:.0f} s)",
                flush=True,
            )
    worst = max(figure["unchanged_with_a_verdict"] for figure in figures)
    print(f"at most {worst * 1000:.0f} of 1,000 unchanged runs got a verdict (limit 64)")
    record = {"num_runs": args.runs, "limit": LIMIT, "figures": figures}
    write_report(args.json, record)
    return 0 if worst <= LIMIT or args.runs < 1000 else 1


if __name__ == "__main__":
    sys.exit(main())
