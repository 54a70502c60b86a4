"""Measure what evaluation runs cost and how often they are right; for bench/evals.py.

Simulated noise: TTFT is lognormal between items (sd of the logarithm 0.5), with lognormal noise per
request (sd 0.15), a slow drift of the machine (random walk), and 2% of requests stalled by
20-200 ms. Accuracy: 80% correct; 5% of the answers flip between two runs of the same side.
"""

import asyncio
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from evenkeel_evals.ask.answers import Answer, AnsweredPair
from evenkeel_evals.ask.client import Call, ChatClient, Reply
from evenkeel_evals.ask.schedule import interleave
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.dataset.dataset import Item, Message
from evenkeel_evals.scorers.base import Label, Score, make_scorer
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.gate_verdicts import OVERALL, judge
from evenkeel_evals.verdict.gates import parse_gates

GATES = "accuracy>=-1%, p95_ttft<=+5%, shift_ttft<=+3%"
SLICES = ("plain", "long", "multi-turn", "extraction", "special")


def make_items(num_items: int) -> list[Item]:
    scorer = make_scorer("exact", "x")
    return [
        Item(str(i), (Message("user", "?"),), "x", scorer, (SLICES[i % len(SLICES)],), f"c{i // 4}")
        for i in range(num_items)
    ]


def simulate(
    items: list[Item], seed: int, slower: Callable[[float], float] = lambda seconds: seconds
) -> list[AnsweredPair]:
    """Return a run in which B differs from A only by `slower`, applied to its TTFT."""
    generator = np.random.default_rng(seed)
    base = {item.id: 0.05 * math.exp(generator.normal(0, 0.5)) for item in items}
    right = {item.id: bool(generator.random() < 0.8) for item in items}
    drift = np.exp(np.cumsum(generator.normal(0, 0.01, size=2 * len(items))))
    pairs = []
    for planned in interleave(items, seed):
        answers = {}
        for place, letter in enumerate(planned.order):
            ttft = base[planned.item.id] * math.exp(generator.normal(0, 0.15))
            ttft *= float(drift[2 * planned.index + place])
            if generator.random() < 0.02:
                ttft += generator.uniform(0.02, 0.2)
            ttft = slower(ttft) if letter == "B" else ttft
            is_right = right[planned.item.id] != bool(generator.random() < 0.05)
            answers[letter] = Answer(
                Reply(0, 0, text="x", ttft_s=ttft, e2e_s=ttft * 2, output_tokens=10),
                Score(float(is_right), Label.RIGHT if is_right else Label.WRONG),
                "0" * 32,
                "0" * 16,
            )
        pairs.append(
            AnsweredPair(planned.index, planned.item, planned.first, answers["A"], answers["B"])
        )
    return pairs


def share_of_false_alarms(num_runs: int, num_items: int) -> float:
    gates, items = parse_gates(GATES), make_items(num_items)
    alarms = sum(
        judge(gates, simulate(items, seed), seed).verdict is Verdict.REGRESSED
        for seed in range(num_runs)
    )
    return alarms / num_runs


def share_found(num_runs: int, num_items: int) -> float:
    gates, items = parse_gates("p95_ttft<=+5%"), make_items(num_items)
    found = 0
    for seed in range(num_runs):
        results = judge(gates, simulate(items, 10_000 + seed, lambda s: s * 1.1), seed).results
        found += any(r.verdict is Verdict.REGRESSED and r.slice_name == OVERALL for r in results)
    return found / num_runs


def seconds_to_judge(num_items: int) -> float:
    gates, pairs = parse_gates(GATES), simulate(make_items(num_items), 1)
    started = time.perf_counter()
    judge(gates, pairs, 0)
    return time.perf_counter() - started


async def client_overhead_s(num_requests: int, concurrency: int) -> float:
    """Return CPU seconds a request of 20 chunks costs the client; the server is its own process."""
    program = Path(__file__).with_name("sse_server.py")
    server = await asyncio.create_subprocess_exec(
        sys.executable, str(program), stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    port = int(await server.stdout.readline())
    side = Side("bench", f"http://127.0.0.1:{port}", "m", "p", "1", None, {"max_tokens": 20})
    call = Call(side, [{"role": "user", "content": "?"}], "1" * 32, "2" * 16, "s", None)
    try:
        async with ChatClient(concurrency, 30.0) as client:
            await asyncio.gather(*(client.ask(call) for _ in range(concurrency)))
            started = time.process_time()
            todo = iter(range(num_requests))

            async def work() -> None:
                for _ in todo:
                    reply = await client.ask(call)
                    assert reply.error is None, reply.error

            await asyncio.gather(*(work() for _ in range(concurrency)))
            return (time.process_time() - started) / num_requests
    finally:
        server.terminate()
        await server.wait()
