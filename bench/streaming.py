"""How much sooner a reader sees the first words of a streamed answer, and what streaming costs.

    python bench/streaming.py --json build/bench/streaming.json

One `evenkeel serve demo`, one request at a time, the same questions streamed and not, in random
order. At the client: until the first text; not streamed, that is the whole answer. On the server:
`evenkeel.ttft_s` of the streamed request's span, `evenkeel.e2e_s` of both. The field claims a TTFT
97% lower at P90 (Amazon Bedrock, Llama 3.1 70B) and 10 to 100 times sooner as perceived.
"""

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.demo_load import (
    Ask,
    demo_server,
    new_tenant,
    percentile,
    question,
    save,
    send,
    spans_of,
    spread,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=10, help="of each kind in a round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    choose, number, figures = random.Random(args.seed), 0, []
    with demo_server() as served:
        for tokens in args.tokens:
            rounds = []
            for _ in range(args.rounds):
                tenants = {True: new_tenant(), False: new_tenant()}
                first: dict[bool, list[float]] = {True: [], False: []}
                for _ in range(args.requests):
                    number += 1
                    for streams in choose.sample([True, False], 2):
                        ask = Ask(question(number), tokens, streams)
                        first[streams].append(send(served, ask, tenants[streams]).first_s)
                spans = {s: spans_of(served, t, args.requests) for s, t in tenants.items()}
                ttft = [span["evenkeel.ttft_s"] for span in spans[True]]
                whole = {s: [span["evenkeel.e2e_s"] for span in spans[s]] for s in spans}
                rounds.append(
                    {
                        "sooner": percentile(first[False], 0.5) / percentile(first[True], 0.5),
                        "p90_lower": 1
                        - percentile(first[True], 0.9) / percentile(first[False], 0.9),
                        "span_p90_lower": 1 - percentile(ttft, 0.9) / percentile(whole[False], 0.9),
                        "cost": percentile(whole[True], 0.5) / percentile(whole[False], 0.5) - 1,
                        "first_streamed_s": percentile(first[True], 0.5),
                        "first_whole_s": percentile(first[False], 0.5),
                    }
                )
            figures.append({"tokens": tokens, "rounds": rounds})
            each = {name: [one[name] for one in rounds] for name in rounds[0]}
            print(
                f"{tokens} tokens: first text after"
                f" {spread(each['first_streamed_s'], ' s', '{:.3f}'.format)}"
                f" instead of {spread(each['first_whole_s'], ' s', '{:.3f}'.format)},"
                f" {spread(each['sooner'])} times sooner; P90 lower by"
                f" {spread(each['p90_lower'], '', '{:.0%}'.format)},"
                f" by the spans {spread(each['span_p90_lower'], '', '{:.0%}'.format)};"
                f" end to end {spread(each['cost'], '', '{:+.1%}'.format)}",
                flush=True,
            )
    save(args.json, {"streaming": figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())
