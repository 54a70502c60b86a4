"""Measure the hooks' cost within one server, switching them off and on between blocks.

    python bench/overhead_switch.py --pairs 7 --json build/bench/overhead_switch.json

Two identical servers differ by a few percent for their whole lifetime, because of their memory
layout, so `bench/overhead.py` needs many starts to resolve one percent. Here a signal makes one
`evenkeel serve` bypass its hooks: the middlewares pass requests on, the engine client is called
directly, the scheduler is vLLM's own class, and the exporter process is paused. What remains is one
call per middleware and request, and idle threads. The third server is vLLM with its own tracing,
switched in the same way. All run at the same time and are measured in turn. A pair is a series of
short blocks of one server, off and on in random order, each preceded by warm-up requests; its
figure is the median over neighbouring blocks, since the speed of the machine varies. CPU
milliseconds per request are printed for each process: they vary less than throughput on a busy
machine.
"""

import argparse
import asyncio
import random
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.overhead import (
    CPU_FIGURES,
    Load,
    Sample,
    add_load,
    measure,
    median_of,
    read_load,
)
from bench.report import write_report
from bench.servers import (
    HOOKS,
    REQUESTS,
    TRACING,
    Server,
    describe_machine,
    read_served,
    receiver,
    refuse_silence,
    serve,
    wait_until_ready,
)

OFF, ON = signal.SIGUSR1, signal.SIGUSR2
# Longer than the exporter waits: a measured block begins and ends with as much left to it.
WARM_S = 1.5
SERVERS = (HOOKS, REQUESTS, TRACING)
APP_CLASSES = (
    ("evenkeel_runtime.request.arrival", "ArrivalMiddleware"),
    ("evenkeel_runtime.request.prompts", "PromptMiddleware"),
    ("evenkeel_runtime.serve.own_pages", "OwnPagesMiddleware"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one pair: medians over its neighbouring blocks, with the hooks against without."""

    throughput_ratio: float
    ttft_p50_difference_ms: float
    http_cpu_difference_ms: float
    engine_cpu_difference_ms: float
    exporter_cpu_difference_ms: float

    def __str__(self) -> str:
        return (
            f"ratio {self.throughput_ratio:.3f}, TTFT p50 {self.ttft_p50_difference_ms:+.2f} ms, "
            f"CPU a request: HTTP {self.http_cpu_difference_ms:+.2f}, "
            f"engine {self.engine_cpu_difference_ms:+.2f}, "
            f"exporter {self.exporter_cpu_difference_ms:+.2f} ms"
        )


def run_server(arguments: list[str]) -> int:
    """Run `evenkeel serve` with hooks that a signal switches."""
    import importlib

    from evenkeel.cli import main as run
    from evenkeel_runtime.adapter.engine_client import ObservedEngine
    from evenkeel_runtime.serve import step_channel

    is_on = True

    def switch(number: int, _: Any) -> None:
        nonlocal is_on
        is_on = number == ON

    def past(own: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        def call(middleware: Any, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
            if is_on:
                return own(middleware, scope, receive, send)
            rest: Awaitable[None] = middleware._app(scope, receive, send)
            return rest

        return call

    for module, name in APP_CLASSES:
        each = getattr(importlib.import_module(module), name)
        each.__call__ = past(each.__call__)
    generate = ObservedEngine.generate

    def switched(engine: Any, *args: Any, **options: Any) -> Any:
        return (generate if is_on else engine._engine.generate)(
            *((engine, *args) if is_on else args), **options
        )

    ObservedEngine.generate = switched  # type: ignore[method-assign, assignment]
    step_channel.SCHEDULER_CLASS = "bench.overhead_switch.scheduler"
    for number in (OFF, ON):
        signal.signal(number, switch)
    return run(["serve", *arguments])


def run_traced(arguments: list[str]) -> int:
    """Run vLLM's own server with its tracing, which a signal switches."""
    from vllm.entrypoints.launchers.api_server.entry import main as run
    from vllm.v1.engine import output_processor

    make = output_processor.OutputProcessor.__init__

    def watch(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        for number in (OFF, ON):
            signal.signal(number, lambda n, _: setattr(self, "tracing_enabled", n == ON))

    output_processor.OutputProcessor.__init__ = watch
    sys.argv[1:] = arguments
    run()
    return 0


def scheduler(*args: Any, **options: Any) -> Any:
    """Return the step hook's scheduler, which a signal makes vLLM's own and back."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    from evenkeel_runtime.adapter.scheduler import LedgerScheduler

    instance = LedgerScheduler(*args, **options)
    hooked = type(instance)
    bare = AsyncScheduler if isinstance(instance, AsyncScheduler) else Scheduler

    def switch(number: int, _: Any) -> None:
        instance.__class__ = hooked if number == ON else bare

    for number in (OFF, ON):
        signal.signal(number, switch)
    return instance


def switch_server(server: Server, number: signal.Signals) -> None:
    """Switch the hooks of a server that has nothing to do."""
    own = psutil.Process(server.process.pid)
    own.send_signal(number)
    for process in own.children():
        if process.name().startswith("VLLM::Engine") and server.name == HOOKS:
            process.send_signal(number)
        elif "evenkeel_runtime.exporter.process" in process.cmdline():
            process.send_signal(signal.SIGCONT if number == ON else signal.SIGSTOP)


async def compare(
    servers: list[Server], load: Load, pairs: int, seed: int
) -> dict[str, list[Difference]]:
    """Return the hooks' effect in each pair of each server."""
    order = random.Random(seed)
    numbers = iter(range(100_000, 10_000_000))
    warm = {server.name: await _warm_up(server, load, numbers) for server in servers}
    results: dict[str, list[Difference]] = {server.name: [] for server in servers}
    for pair in range(pairs):
        for server in order.sample(servers, len(servers)):
            blocks = []
            for _ in range(load.blocks):
                block = {}
                for side in order.sample(("on", "off"), 2):
                    block[side] = await _measure_switched(
                        server, side, warm[server.name], load, numbers
                    )
                blocks.append((block["on"], block["off"]))
            difference = _difference(blocks)
            results[server.name].append(difference)
            without = median_of([off for _, off in blocks])
            print(
                f"{server.name:8} pair {pair + 1}/{pairs}: without "
                f"{without.tokens_per_s:5.0f} tokens/s, CPU {without.http_cpu_ms:.2f} and "
                f"{without.engine_cpu_ms:.2f} ms; {difference}",
                flush=True,
            )
    return results


async def _warm_up(server: Server, load: Load, numbers: Iterator[int]) -> Load:
    """Return the load that comes before each block: `WARM_S` of it."""
    started = time.perf_counter()
    await measure(server, replace(load, requests=8 * load.concurrency), numbers)
    per_s = 8 * load.concurrency / (time.perf_counter() - started)
    return replace(load, requests=max(load.concurrency, round(per_s * WARM_S)), probes=1)


def _difference(blocks: list[tuple[Sample, Sample]]) -> Difference:
    """Return the medians over blocks with the hooks on, and off."""
    return Difference(
        statistics.median(on.tokens_per_s / off.tokens_per_s for on, off in blocks),
        *(
            statistics.median(getattr(on, name) - getattr(off, name) for on, off in blocks)
            for name in ("ttft_p50_ms", *CPU_FIGURES)
        ),
    )


async def _measure_switched(
    server: Server, side: str, warm: Load, load: Load, numbers: Iterator[int]
) -> Sample:
    switch_server(server, ON if side == "on" else OFF)
    await measure(server, warm, numbers, settle_s=0.0)
    return await measure(server, load, numbers, settle_s=0.0)


def summarize(results: list[Difference]) -> dict[str, dict[str, float]]:
    """Return median, minimum and maximum over the pairs."""
    figures = {
        each.name: [getattr(result, each.name) for result in results] for each in fields(Difference)
    }
    return {
        name: {"median": statistics.median(v), "least": min(v), "greatest": max(v)}
        for name, v in figures.items()
    }


def main() -> int:
    """Run, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_load(parser)
    parser.add_argument("--only", choices=SERVERS, nargs="+", default=SERVERS, help="(all)")
    parser.set_defaults(requests=96)
    args = parser.parse_args()
    load = read_load(args)
    folder = Path("build") / "overhead_switch"
    with ExitStack() as stack:
        otlp = stack.enter_context(receiver())
        servers = []
        for name in SERVERS:
            if name in args.only:
                entry = ("bench.overhead_switch", "--trace" if name == TRACING else "--serve")
                started = serve(name, read_served(args), folder, otlp, entry=entry)
                servers.append(stack.enter_context(started))
                wait_until_ready(servers[-1])
        results = asyncio.run(compare(servers, load, args.pairs, args.seed))
        for server in servers:
            refuse_silence(otlp, server.name)
    summary = {name: summarize(differences) for name, differences in results.items()}
    for name, figures in summary.items():
        for figure, values in figures.items():
            print(
                f"{name:8} {figure:24} {values['median']:.3f}"
                f" ({values['least']:.3f} to {values['greatest']:.3f})"
            )
    what = {"load": asdict(load), "served": asdict(read_served(args))}
    report = {"machine": describe_machine(), **what, "pairs": args.pairs, "summary": summary}
    write_report(args.json, report)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        sys.exit(run_server(sys.argv[2:]))
    if sys.argv[1:2] == ["--trace"]:
        sys.exit(run_traced(sys.argv[2:]))
    sys.exit(main())
