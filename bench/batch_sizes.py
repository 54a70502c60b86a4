"""Throughput and latency by the number of requests in the batch.

    python bench/batch_sizes.py --json build/bench/batch_sizes.json

One `evenkeel serve demo`; 1 to 32 requests are kept in flight, sizes in random order in every
round, answers of 64 tokens. Latencies are those of the spans: `evenkeel.ttft_s`, `evenkeel.tpot_s`,
`evenkeel.e2e_s`. The field claims 976 ms per request at 1 and 126 ms at 8, sweet spots of 4 to 8, 8
to 16 and 8 to 32, and that 32 is too many.
"""

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.demo_load import Ask, demo_server, keep_in_flight, percentile, question, save, spread

TOKENS = 64


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--waves", type=int, default=16, help="requests of a run, in batches")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    choose, number = random.Random(args.seed), 0
    runs: dict[int, list[dict[str, float]]] = {size: [] for size in args.sizes}
    with demo_server("--max-num-seqs", str(max(args.sizes))) as served:
        for _ in range(args.rounds):
            for size in choose.sample(args.sizes, len(args.sizes)):
                asks = []
                for _ in range(max(16, size * args.waves)):
                    number += 1
                    asks.append(Ask(question(number), TOKENS))
                wall_s, spans = keep_in_flight(served, asks, size)
                run = {
                    "per_request_s": wall_s / len(asks),
                    "tokens_per_s": TOKENS * len(asks) / wall_s,
                }
                for name in ("ttft", "tpot", "e2e"):
                    values = [span[f"evenkeel.{name}_s"] for span in spans]
                    run |= {
                        f"{name}_p50_s": percentile(values, 0.5),
                        f"{name}_p99_s": percentile(values, 0.99),
                    }
                runs[size].append(run)
    for size, found in runs.items():
        each = {name: [run[name] * 1e3 for run in found] for name in found[0]}
        tokens = [run["tokens_per_s"] for run in found]
        print(
            f"{size:2} in flight: {spread(tokens, ' tokens/s', '{:,.0f}'.format)};"
            f" {spread(each['per_request_s'], ' ms', '{:.1f}'.format)} per request;"
            f" TTFT p50 {spread(each['ttft_p50_s'], ' ms', '{:.1f}'.format)},"
            f" p99 {spread(each['ttft_p99_s'], ' ms', '{:.1f}'.format)};"
            f" TPOT p50 {spread(each['tpot_p50_s'], ' ms')};"
            f" end to end p99 {spread(each['e2e_p99_s'], ' ms', '{:.0f}'.format)}",
            flush=True,
        )
    save(
        args.json, {"batch_sizes": [{"size": size, "runs": found} for size, found in runs.items()]}
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
