r"""Measure all figures of evaluation runs. Prints a table, writes JSON.

    python bench/evals.py --json build/evals.json
    python bench/evals.py --parts noise --runs 1000      # one part, under ten minutes

Parts: `cost` (client and analysis), `noise` (false alarms and power on recorded noise), `simulated`
(the same on simulated noise), `kills` (bench/eval_kills.py). bench/eval_noise.json holds what four
A/A runs of the demo model over golden_datasets/support measured on two otherwise idle cores:

    cd golden_datasets/support && evenkeel eval calibrate . --side sides/full.toml --runs 4 \
        --concurrency 1 --report ../../build/aa
    python bench/evals.py --record build/aa              # writes bench/eval_noise.json

A run without a change is one of them with the sides swapped at random within every pair. For power,
1,000 pairs are drawn from all four, also swapped, and B is made slower. Both are judged by the same
code as every run.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.eval_kills import kill_runs
from bench.eval_runs import (
    GATES,
    client_overhead_s,
    seconds_to_judge,
    share_found,
    share_of_false_alarms,
)
from bench.report import write_report
from evenkeel_evals.ask.answers import Answer, AnsweredPair
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.ask.journal import FILE_NAME, Journal
from evenkeel_evals.ask.recorded_run import RecordedRun
from evenkeel_evals.dataset.dataset import Item, Message
from evenkeel_evals.scorers.base import Label, Score, make_scorer
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.gate_verdicts import OVERALL, judge
from evenkeel_evals.verdict.gates import parse_gates

ROOT = Path(__file__).parents[1]
NOISE = Path(__file__).with_name("eval_noise.json")
DATASET = ROOT / "golden_datasets" / "support" / "support.jsonl"
PARTS = ("cost", "noise", "simulated", "kills")
SLOWER = 1.1
NUM_PAIRS = 1000

Runs = list[list[AnsweredPair]]


def record(folder: Path) -> None:
    """Write the latencies and scores of A/A runs, without texts."""
    items = [json.loads(line) for line in DATASET.read_text(encoding="utf-8").splitlines()]
    tags = {item["id"]: (item.get("cluster_id") or item["id"], item["tags"]) for item in items}
    runs = []
    for path in sorted(folder.glob(f"aa-*/{FILE_NAME}")):
        with Journal(path) as journal:
            recorded = RecordedRun(journal)
            sides = [recorded.answers_of(letter) for letter in "AB"]
        runs.append(
            [
                [*tags[item], *_numbers(a), *_numbers(b)]
                for item in sides[0]
                for a, b in zip(sides[0][item], sides[1][item], strict=True)
            ]
        )
    NOISE.write_text(json.dumps(runs, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{len(runs)} runs, {sum(map(len, runs))} pairs in {NOISE.name}")


def _numbers(answer: Answer) -> list[float | None]:
    times = (answer.reply.ttft_s, answer.reply.e2e_s)
    return [*(None if t is None else round(t, 6) for t in times), answer.score.value]


def read_noise() -> Runs:
    scorer = make_scorer("exact", "x")

    def answer(ttft_s: float | None, e2e_s: float | None, value: float | None) -> Answer:
        if value is None:
            return Answer(Reply(0, 0, error="none"), Score.unscored("none"), "0" * 32, "0" * 16)
        label = Label.RIGHT if value >= 1 else Label.WRONG
        reply = Reply(0, 0, text="x", ttft_s=ttft_s, e2e_s=e2e_s, output_tokens=1)
        return Answer(reply, Score(value, label), "0" * 32, "0" * 16)

    runs: Runs = []
    for rows in json.loads(NOISE.read_text(encoding="utf-8")):
        pairs = []
        for i, (cluster, tags, *numbers) in enumerate(rows):
            item = Item(str(i), (Message("user", "?"),), "x", scorer, tuple(tags), cluster)
            pairs.append(AnsweredPair(i, item, "A", answer(*numbers[:3]), answer(*numbers[3:])))
        runs.append(pairs)
    return runs


def swapped(
    pairs: list[AnsweredPair], generator: np.random.Generator, factor: float = 1.0
) -> list[AnsweredPair]:
    """Return the pairs with sides swapped at random, and B's TTFT times a factor."""
    found = []
    for pair, flip in zip(pairs, generator.random(len(pairs)) < 0.5, strict=True):
        a, b = (pair.b, pair.a) if flip else (pair.a, pair.b)
        ttft_s = None if b.reply.ttft_s is None else b.reply.ttft_s * factor
        reply = Reply(0, 0, b.reply.text, b.reply.error, ttft_s, b.reply.e2e_s, output_tokens=1)
        slower = Answer(reply, b.score, b.trace_id, b.span_id)
        found.append(AnsweredPair(pair.index, pair.item, pair.first, a, slower))
    return found


def on_recorded_noise(num_runs: int) -> dict[str, float]:
    runs, gates = read_noise(), parse_gates(GATES)
    generator = np.random.default_rng(6)
    alarms = sum(
        judge(gates, swapped(runs[k % len(runs)], generator), k).verdict is Verdict.REGRESSED
        for k in range(num_runs)
    )
    pool = [pair for run in runs for pair in run]
    p95, num_found, num_tries = parse_gates("p95_ttft<=+5%"), 0, max(1, num_runs // 5)
    for k in range(num_tries):
        drawn = generator.choice(len(pool), size=NUM_PAIRS, replace=False)
        pairs = swapped([pool[i] for i in drawn], generator, SLOWER)
        results = judge(p95, pairs, k).results
        num_found += any(
            r.verdict is Verdict.REGRESSED and r.slice_name == OVERALL for r in results
        )
    return {
        "recorded_aa_false_regressed_ratio_456_pairs": alarms / num_runs,
        "recorded_aa_runs": float(num_runs),
        "recorded_p95_plus_10_percent_found_ratio_1000_pairs": num_found / num_tries,
        "recorded_p95_runs": float(num_tries),
    }


def cost() -> dict[str, float]:
    return {
        "client_cpu_s_per_request_at_32": asyncio.run(client_overhead_s(2000, 32)),
        "judge_10000_pairs_s": seconds_to_judge(10_000),
    }


def simulated(num_runs: int) -> dict[str, float]:
    num_tries = max(1, num_runs // 5)
    return {
        "simulated_aa_false_regressed_ratio_300_pairs": share_of_false_alarms(num_runs, 300),
        "simulated_aa_runs": float(num_runs),
        "simulated_p95_plus_10_percent_found_ratio_1000_pairs": share_found(num_tries, NUM_PAIRS),
        "simulated_p95_runs": float(num_tries),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.record is not None:
        record(args.record)
        return
    figures: dict[str, float] = {}
    for part in args.parts:
        started = time.perf_counter()
        if part == "cost":
            figures |= cost()
        elif part == "noise":
            figures |= on_recorded_noise(args.runs)
        elif part == "simulated":
            figures |= simulated(args.runs)
        else:
            total = kill_runs(args.kills, args.seed)
            figures |= {f"kill_{name}": float(value) for name, value in total.items()}
        figures[f"{part}_took_s"] = time.perf_counter() - started
    for name, value in figures.items():
        print(f"{name:55} {value:.4g}", flush=True)
    write_report(args.json, figures)


if __name__ == "__main__":
    main()
