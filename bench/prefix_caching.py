"""Measure what prefix caching saves on shared system prompts, from the server's own spans.

    python bench/prefix_caching.py --pairs 7 --json build/bench/prefix_caching.json

Two `evenkeel serve` run the demo model at the same time, one with `--no-enable-prefix-caching`.
Both get the same questions after the same system prompt of about 2,000 tokens, one request at a
time and in random order. TTFT is `evenkeel.ttft_s` of each request's span; the hit tokens are
`gen_ai.usage.cache_read.input_tokens`. The result is over the pairs: median ratio of TTFT p50.
"""

import argparse
import random
import statistics
import sys
import tempfile
import uuid
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.report import write_report  # noqa: E402
from tests.fixtures.otlp_receiver import OtlpReceiver  # noqa: E402
from tests.fixtures.served_model import ServedModel, serve  # noqa: E402

SYSTEM = "please help me with order number 123 " * 190
TARGET_RATIO = 0.4


@dataclass(frozen=True, slots=True)
class Side:
    """One server in one pair."""

    ttft_p50_ms: float
    hit_ratio: float


def ask(served: ServedModel, number: int, tenant: str) -> None:
    body = {
        "model": served.model,
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"Where is order {number}?"},
        ],
        "max_tokens": 4,
        "ignore_eos": True,
    }
    headers = {"x-evenkeel-tenant": tenant}
    url = f"{served.url}/v1/chat/completions"
    httpx.post(url, json=body, headers=headers, timeout=60).raise_for_status()


def read(served: ServedModel, tenant: str, count: int) -> Side:
    spans = [s.attributes for s in served.wait_for_requests(count, evenkeel__tenant=tenant)]
    cached = sum(s["gen_ai.usage.cache_read.input_tokens"] for s in spans)
    return Side(
        statistics.median(s["evenkeel.ttft_s"] for s in spans) * 1e3,
        cached / sum(s["gen_ai.usage.input_tokens"] for s in spans),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--requests", type=int, default=16, help="of each server in a pair")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    order = random.Random(args.seed)
    number = 1000
    pairs = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ek-")))
        sides = {}
        for name, flags in (("cached", ()), ("plain", ("--no-enable-prefix-caching",))):
            receiver = OtlpReceiver()
            stack.callback(receiver.stop)
            (folder / name).mkdir()
            sides[name] = stack.enter_context(serve(folder / name, receiver, *flags))
        for served in sides.values():
            for _ in range(3):
                ask(served, number, "warm-up")
        for pair in range(args.pairs):
            tenant = f"pair-{uuid.uuid4().hex[:8]}"
            for _ in range(args.requests):
                number += 1
                for name in order.sample(sorted(sides), 2):
                    ask(sides[name], number, tenant)
            found = {name: read(served, tenant, args.requests) for name, served in sides.items()}
            pairs.append(found)
            print(
                f"pair {pair + 1}/{args.pairs}: TTFT p50 {found['cached'].ttft_p50_ms:.1f} ms "
                f"({found['cached'].hit_ratio:.0%} of the prompt cached), without "
                f"{found['plain'].ttft_p50_ms:.1f} ms",
                flush=True,
            )
    ratios = [pair["cached"].ttft_p50_ms / pair["plain"].ttft_p50_ms for pair in pairs]
    ratio = statistics.median(ratios)
    print(
        f"TTFT p50 with prefix caching: {1 - ratio:.0%} lower "
        f"(pairs {1 - max(ratios):.0%} to {1 - min(ratios):.0%}); target 60%"
    )
    rows = [{name: asdict(side) for name, side in pair.items()} for pair in pairs]
    write_report(args.json, {"ttft_ratio": ratio, "pairs": rows})
    return 0 if ratio <= TARGET_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
