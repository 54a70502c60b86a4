"""What continuous batching gains over static batches of the same size.

    python bench/static_batching.py --json build/bench/static_batching.json

One `evenkeel serve demo`. Static: a group of N requests is sent together, and the next group waits
for the slowest of it, as a server with static batches does, but without their padding. Continuous:
N requests are kept in flight, and vLLM refills the batch at every step. The same answer lengths for
both, with a long tail. The field claims 2.1 times the throughput, +40%, and 23 times (OPT-13B on
an A100, Anyscale 2023), and a GPU 50% busy under static batches.
"""

import argparse
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.demo_load import Ask, demo_server, keep_in_flight, lengths, question, save, spread
from tests.fixtures.served_model import ServedModel


def run(served: ServedModel, asks: list[Ask], num: int, is_static: bool) -> dict[str, float]:
    """Return a run's throughput, and the share of the seats that were taken."""
    wall_s, spans = 0.0, list[dict[str, Any]]()
    size = num if is_static else len(asks)
    for start in range(0, len(asks), size):
        took_s, found = keep_in_flight(served, asks[start : start + size], num)
        wall_s += took_s
        spans += found
    tokens = sum(span["gen_ai.usage.output_tokens"] for span in spans)
    inside_s = sum(span["evenkeel.e2e_s"] for span in spans)
    return {"tokens_per_s": tokens / wall_s, "seats_taken": inside_s / wall_s / num}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--groups", type=int, default=10, help="batches in a run")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    choose, number, figures = random.Random(args.seed), 0, []
    with demo_server() as served:
        for num in args.sizes:
            rounds = []
            for _ in range(args.rounds):
                found = {}
                wanted = lengths(choose, num * args.groups)
                for name in choose.sample(["static", "continuous"], 2):
                    asks = []
                    for tokens in wanted:
                        number += 1
                        asks.append(Ask(question(number), tokens))
                    found[name] = run(served, asks, num, name == "static")
                rounds.append(found)
            figures.append({"size": num, "rounds": rounds})
            ratios = [r["continuous"]["tokens_per_s"] / r["static"]["tokens_per_s"] for r in rounds]
            taken = {
                name: spread([r[name]["seats_taken"] for r in rounds], "", "{:.0%}".format)
                for name in ("static", "continuous")
            }
            print(
                f"batches of {num}: continuous over static {spread(ratios)} times the tokens per"
                f" second; seats taken {taken['static']} static, {taken['continuous']} continuous",
                flush=True,
            )
    save(args.json, {"static_batching": figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())
