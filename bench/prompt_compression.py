"""What shortening a long history saves, on first sight and as the next turn of a cached chat.

    python bench/prompt_compression.py --json build/bench/prompt_compression.json

One `evenkeel serve demo --compression`; the same chats of some 3,000 tokens go to a route that
shortens histories and to one that does not, in random order. First sight: the server knows nothing
of the chat. Next turn: it has just answered the turn before, so the prefix cache has most of the
history. TTFT is `evenkeel.ttft_s`, the hook's own time `evenkeel.ledger.ttft.host.compression`. The
field claims 40% less, and 800 ms saved by cutting a prompt of 4,000 tokens in half.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.demo_load import Ask, demo_server, new_tenant, percentile, save, send, spans_of, spread

POLICY = 'routes = ["short"]\nmin_tokens = 512\n'
# What people tell a help desk besides their question, and what it answers.
STORIES = (
    "The weather was so grey that we stayed at home.",
    "We had tea and talked for hours in the kitchen.",
    "It was a quiet evening with friends and old music.",
    "Our dog slept on the carpet the whole afternoon.",
    "The garden looks lovely at this time of the year.",
    "Everybody here enjoys the long walks by the river.",
)
FACT = "My order is {number}."
ROUTES = ("short", "full")
NEXT_TURN = [
    {"role": "assistant", "content": "It is on its way to you."},
    {"role": "user", "content": "When does the parcel arrive?"},
]


def history(number: int, choose: random.Random, turns: int) -> list[dict[str, str]]:
    """Return a chat that no other number has, with one fact per turn that must stay."""
    chat = [{"role": "system", "content": f"You are help desk {number}. Be brief."}]
    for turn in range(turns):
        story = " ".join(choose.choices(STORIES, k=16))
        chat.append({"role": "user", "content": f"{FACT.format(number=number + turn)} {story}"})
        chat.append({"role": "assistant", "content": "That sounds lovely. We are glad to hear it."})
    chat.append({"role": "user", "content": "Where is my order?"})
    return chat


def one_round(
    served: Any, chats: list[list[dict[str, str]]], choose: random.Random, again: bool
) -> dict[str, float]:
    """Return what the round's chats took on both routes; `again` has seen the turn before."""
    tenants = {route: new_tenant() for route in ROUTES}
    for chat in chats:
        for route in choose.sample(ROUTES, 2):
            # Its own first words: nothing of the other route's chat is in the prefix cache.
            own = [{**chat[0], "content": f"{route} {chat[0]['content']}"}, *chat[1:]]
            if again:
                send(served, Ask(own, 4, route=route), "turn-before")
                own += NEXT_TURN
            send(served, Ask(own, 4, route=route), tenants[route])
    found = {route: spans_of(served, tenant, len(chats)) for route, tenant in tenants.items()}
    verdicts = {span["evenkeel.compression.verdict"] for span in found["short"]}
    if verdicts != {"sent"}:
        raise SystemExit(f"histories were not shortened: {verdicts}")
    ttft = {r: percentile([s["evenkeel.ttft_s"] for s in found[r]], 0.5) for r in ROUTES}
    tokens = {r: sum(s["gen_ai.usage.input_tokens"] for s in found[r]) for r in ROUTES}
    cached = {r: sum(s["gen_ai.usage.cache_read.input_tokens"] for s in found[r]) for r in ROUTES}
    return {
        "ttft_ratio": ttft["short"] / ttft["full"],
        "ttft_short_s": ttft["short"],
        "ttft_full_s": ttft["full"],
        "tokens_lower": 1 - tokens["short"] / tokens["full"],
        "cached_short": cached["short"] / tokens["short"],
        "cached_full": cached["full"] / tokens["full"],
        "input_tokens": tokens["full"] / len(chats),
        "hook_s": percentile(
            [s["evenkeel.ledger.ttft.host.compression"] for s in found["short"]], 0.5
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=10, help="of each route in a round")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    choose, number = random.Random(args.seed), 1000
    figures: dict[str, list[dict[str, float]]] = {"first sight": [], "next turn": []}
    with tempfile.TemporaryDirectory(prefix="ek-") as folder:
        policy = Path(folder) / "compression.toml"
        policy.write_text(POLICY, encoding="utf-8")
        with demo_server("--compression", str(policy), "--enable-prefix-caching") as served:
            for _ in range(args.rounds):
                for name in choose.sample(sorted(figures), 2):
                    chats = []
                    for _ in range(args.requests):
                        number += 100
                        chats.append(history(number, choose, args.turns))
                    figures[name].append(one_round(served, chats, choose, name == "next turn"))
    for name, rounds in figures.items():
        each = {key: [one[key] for one in rounds] for key in rounds[0]}
        milliseconds = {key: [v * 1e3 for v in values] for key, values in each.items()}
        print(
            f"{name}: prompts of {spread(each['input_tokens'], ' tokens', '{:,.0f}'.format)}"
            f" shorter by {spread(each['tokens_lower'], '', '{:.0%}'.format)}; TTFT p50"
            f" {spread(each['ttft_ratio'], ' times')}:"
            f" {spread(milliseconds['ttft_short_s'], ' ms', '{:.1f}'.format)} instead of"
            f" {spread(milliseconds['ttft_full_s'], ' ms', '{:.1f}'.format)}; prompt cached"
            f" {spread(each['cached_short'], '', '{:.0%}'.format)} and"
            f" {spread(each['cached_full'], '', '{:.0%}'.format)}; the hook itself"
            f" {spread(milliseconds['hook_s'], ' ms', '{:.1f}'.format)}",
            flush=True,
        )
    save(args.json, {"prompt_compression": figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())
