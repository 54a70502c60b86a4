"""Compare the hooks' cost with bare vLLM and vLLM with its own tracing, in interleaved pairs.

    python bench/overhead.py --pairs 7 --json build/bench/overhead.json

Four servers run the demo model with the same flags at the same time: `evenkeel serve` with all
hooks (requests, steps, ledgers, exporter), the same with only the request hook, bare vLLM, and vLLM
with its own `--otlp-traces-endpoint`. A pair is a series of short blocks, each run on one server
after the other in random order: throughput at a fixed concurrency, then TTFT one request at a time.
A server's figure in a pair is the median of its blocks, so that short disturbances do not count.
Spans are sent to a receiver in a separate process. The result is over the pairs, against bare vLLM:
median ratio of throughput, median difference of the TTFT medians. `--control` compares two bare
servers and shows how much of a difference is noise. The demo model has 2 million parameters: a
request of 64 tokens takes 30 ms of all cores, and the server spends as much time on HTTP as on the
model; `--weights` serves random weights with the shape of larger models. On a GPU:
`--gpu --weights 7b --concurrency 32 --tokens 128 --requests 64`.
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from bench.servers import (
    BARE,
    HOOKS,
    REQUESTS,
    SECOND,
    TRACING,
    Server,
    add_served,
    chat_request,
    describe_machine,
    read_served,
    receiver,
    refuse_silence,
    serve,
    wait_until_ready,
)

CPU_FIGURES = ("http_cpu_ms", "engine_cpu_ms", "exporter_cpu_ms")
QUESTION = "How do I change the delivery address of order {number}?"
# Longer than spans wait to be sent: what a block leaves behind counts as its own.
SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    """The load of each measurement."""

    concurrency: int
    blocks: int
    requests: int
    tokens: int
    probes: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of one server; CPU milliseconds are per request, by process."""

    tokens_per_s: float
    ttft_p50_ms: float
    http_cpu_ms: float
    engine_cpu_ms: float
    exporter_cpu_ms: float


async def ask(port: int, number: int, tokens: int) -> float:
    """Stream one answer with this number of tokens; return the seconds to its first bytes."""
    request = chat_request(QUESTION.format(number=number), tokens)
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    first = None
    last = b""
    while data := await reader.read(1 << 16):
        if first is None and b"data: " in data:
            first = time.perf_counter()
        last = (last + data)[-64:]
    writer.close()
    if first is None or b"[DONE]" not in last:
        raise SystemExit(f"overhead: an answer was not complete: {last!r}")
    return first - started


async def measure(
    server: Server, load: Load, numbers: Iterator[int], settle_s: float = SETTLE_S
) -> Sample:
    """Measure one server once.

    Args:
        server: The server.
        load: How much is asked.
        numbers: Makes each question another one.
        settle_s: How long CPU time counts after the last answer.
    """
    slots = asyncio.Semaphore(load.concurrency)

    async def one() -> None:
        async with slots:
            await ask(server.port, next(numbers), load.tokens)

    cpu_before = server.cpu_s()
    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(load.requests)))
    elapsed = time.perf_counter() - started
    await asyncio.sleep(settle_s)
    cpu = server.cpu_s().less(cpu_before)
    ttfts = [await ask(server.port, next(numbers), 2) for _ in range(load.probes)]
    return Sample(
        tokens_per_s=load.requests * load.tokens / elapsed,
        ttft_p50_ms=statistics.median(ttfts) * 1e3,
        http_cpu_ms=cpu.http / load.requests * 1e3,
        engine_cpu_ms=cpu.engine / load.requests * 1e3,
        exporter_cpu_ms=cpu.exporter / load.requests * 1e3,
    )


def median_of(blocks: list[Sample]) -> Sample:
    """Return the median of each figure over the blocks of one server in one pair."""
    return Sample(
        *(statistics.median(figure) for figure in zip(*map(astuple, blocks), strict=True))
    )


async def compare(
    servers: list[Server], load: Load, pairs: int, seed: int
) -> list[dict[str, Sample]]:
    order = random.Random(seed)
    numbers = iter(range(100_000, 10_000_000))
    for server in servers:
        await measure(server, replace(load, requests=4 * load.concurrency), numbers)
    results = []
    for pair in range(pairs):
        blocks: dict[str, list[Sample]] = {server.name: [] for server in servers}
        for _ in range(load.blocks):
            for server in order.sample(servers, len(servers)):
                blocks[server.name].append(await measure(server, load, numbers))
        results.append({name: median_of(samples) for name, samples in blocks.items()})
        line = "  |  ".join(f"{name} {_describe(s)}" for name, s in results[-1].items())
        print(f"pair {pair + 1}/{pairs}: {line}", flush=True)
    return results


def _describe(sample: Sample) -> str:
    return f"{sample.tokens_per_s:7.0f} tokens/s  TTFT p50 {sample.ttft_p50_ms:6.2f} ms"


def summarize(results: list[dict[str, Sample]], name: str) -> dict[str, dict[str, float]]:
    """Return median, minimum and maximum over the pairs of one server against the bare one."""
    pairs = [(result[name], result[BARE]) for result in results]
    figures = {
        "throughput_ratio": [a.tokens_per_s / b.tokens_per_s for a, b in pairs],
        "ttft_p50_difference_ms": [a.ttft_p50_ms - b.ttft_p50_ms for a, b in pairs],
    }
    for cpu in CPU_FIGURES:
        figures[f"{cpu}_difference"] = [getattr(a, cpu) - getattr(b, cpu) for a, b in pairs]
    return {
        name: {"median": statistics.median(v), "least": min(v), "greatest": max(v)}
        for name, v in figures.items()
    }


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the flags of what is served, and how much is measured."""
    add_served(parser)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=9, help="of each server in a pair")
    parser.add_argument("--requests", type=int, default=48, help="in a block")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--probes", type=int, default=16, help="requests for a TTFT median")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="PATH")


def read_load(args: argparse.Namespace) -> Load:
    """Return the load given by the flags of `add_load`."""
    return Load(args.concurrency, args.blocks, args.requests, args.tokens, args.probes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_load(parser)
    parser.add_argument("--speculate", action="store_true", help="with the draft model")
    parser.add_argument("--control", action="store_true", help="two bare servers, and no other")
    args = parser.parse_args()
    load = read_load(args)
    folder = Path("build") / "overhead"
    with ExitStack() as stack:
        otlp = stack.enter_context(receiver())
        senders = () if args.control else (HOOKS, REQUESTS, TRACING)
        names = (SECOND, BARE) if args.control else (*senders, BARE)
        servers = [
            stack.enter_context(serve(n, read_served(args), folder, otlp, args.speculate))
            for n in names
        ]
        for server in servers:
            wait_until_ready(server)
        results = asyncio.run(compare(servers, load, args.pairs, args.seed))
        for name in senders:
            refuse_silence(otlp, name)
    summary = {name: summarize(results, name) for name in names if name != BARE}
    for name, figures in summary.items():
        print(f"\n{name} against bare vLLM, {args.pairs} pairs, median (least to greatest):")
        for figure, v in figures.items():
            print(f"  {figure:36} {v['median']:8.4f}  ({v['least']:.4f} to {v['greatest']:.4f})")
    report = {
        "load": asdict(load),
        "served": asdict(read_served(args)),
        "machine": describe_machine(),
        "control": args.control,
        "speculates": args.speculate,
        "summary": summary,
        "pairs": [{name: asdict(s) for name, s in result.items()} for result in results],
    }
    write_report(args.json, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
