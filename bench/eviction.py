"""Hit ratios of a prefix cache that evicts the least recently used, and of one that evicts by age.

    python bench/eviction.py --trace conversation_trace.jsonl --json build/bench/eviction.json

Replays a recorded trace of requests with the hashes of their prompts' blocks, such as Mooncake's
(github.com/kvcache-ai/Mooncake, Apache-2.0: an hour of chats, 512 tokens per block). A block hits
if it and all before it are cached, as in vLLM. By age, a block goes five minutes after it was
computed, or after it was last used, and the oldest goes first if there is no room. The field claims
20% of hits with a time limit of five minutes and 80% with LRU.
"""

import argparse
import json
import sys
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.demo_load import save

AGE_S = 300.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request of the trace: when it came, and the hashes of its blocks in order."""

    time_s: float
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """How blocks are evicted.

    Attributes:
        age_s: Seconds that a block stays; None until there is no room.
        is_renewed: Whether a use makes a block young again.
    """

    age_s: float | None
    is_renewed: bool


POLICIES = {
    "LRU": Policy(None, True),
    "5 min since use": Policy(AGE_S, True),
    "5 min since computed": Policy(AGE_S, False),
}


def read_trace(path: Path) -> list[Prompt]:
    """Return the prompts of a trace in Mooncake's format, times in milliseconds."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [Prompt(row["timestamp"] / 1000, tuple(row["hash_ids"])) for row in rows]


def hit_ratio(prompts: Sequence[Prompt], policy: Policy, num_blocks: int) -> float:
    """Return the share of all blocks that were found, of a cache of `num_blocks`."""
    # Oldest first: by use where that counts, otherwise by when they were computed.
    since: OrderedDict[int, float] = OrderedDict()
    num_hits, num_asked = 0, 0
    for prompt in prompts:
        while policy.age_s is not None and since:
            block, time_s = next(iter(since.items()))
            if time_s > prompt.time_s - policy.age_s:
                break
            del since[block]
        known = takewhile(since.__contains__, prompt.blocks)
        num_hits += sum(1 for _ in known)
        # The head of a prompt last, so that its tail goes first, as in vLLM.
        for block in reversed(prompt.blocks):
            if block not in since:
                since[block] = prompt.time_s
            elif policy.is_renewed:
                since[block] = prompt.time_s
                since.move_to_end(block)
        num_asked += len(prompt.blocks)
        while len(since) > num_blocks:
            since.popitem(last=False)
    return num_hits / num_asked


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, required=True, help="in Mooncake's format")
    parser.add_argument(
        "--blocks", type=int, nargs="+", default=[1_000, 5_000, 20_000, 1_000_000],
        help="sizes of the cache",
    )  # fmt: skip
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    prompts = read_trace(args.trace)
    asked = [block for prompt in prompts for block in prompt.blocks]
    print(
        f"{len(prompts):,} requests, {len(asked):,} blocks, {len(set(asked)):,} different; at most"
        f" {1 - len(set(asked)) / len(asked):.1%} can hit"
    )
    figures = []
    for num_blocks in args.blocks:
        found = {name: hit_ratio(prompts, p, num_blocks) for name, p in POLICIES.items()}
        figures.append({"blocks": num_blocks, "hit_ratio": found})
        row = ", ".join(f"{name} {ratio:.1%}" for name, ratio in found.items())
        print(f"{num_blocks:>9,} blocks: {row}", flush=True)
    save(args.json, {"trace": args.trace.name, "eviction": figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())
