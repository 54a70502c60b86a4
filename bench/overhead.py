"""What the hooks cost against vLLM bare and vLLM with its own tracing, in interleaved pairs.

    python bench/overhead.py --pairs 7 --json build/bench/overhead.json

Four servers run the demo model with the same flags and are up together: `evenkeel serve` with all
hooks (requests, steps, ledgers, exporter) and with the request hook alone, vLLM's own entry bare,
and the same with vLLM's own `--otlp-traces-endpoint`. A pair is a row of short blocks, each of them
asked of one server after the other, in random order: throughput at a fixed concurrency, then TTFT
one request at a time. A server's figure in a pair is the median of its blocks, so that a moment in
which the machine did something else is outvoted. Spans go to a receiver in a process of its own.
The verdict is over the pairs, against bare vLLM: median ratio of throughput, median difference of
the TTFT medians. `--control` compares two bare servers and shows how much of a difference is noise.
The demo model has 2 million parameters: a request of 64 tokens takes 30 ms of all cores, and the
server is busy with HTTP as much as with the model. `--large` serves 115 million random weights.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

import psutil

from runtime.demo_model.checkpoint import draft_path, target_path
from runtime.small_machine import EXECUTOR

MODEL = "support"
QUESTION = "How do I change the delivery address of order {number}?"
READY_TIMEOUT_S = 180.0
SETTLE_S = 0.1
HOOKS, REQUESTS, BARE, TRACING, SECOND = "hooks", "requests", "bare", "tracing", "second bare"
# `--large`: the demo model's tokenizer with 12 layers of width 768, as GPT-2 and OPT-125M have.
LARGE = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
}
# In the step hook's place, so that only requests are observed.
OWN_SCHEDULER = ("--scheduler-cls", "vllm.v1.core.sched.scheduler.Scheduler")


@dataclass(frozen=True, slots=True)
class Load:
    """How much is asked in each measurement."""

    concurrency: int
    blocks: int
    requests: int
    tokens: int
    probes: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One server, measured once."""

    tokens_per_s: float
    ttft_p50_ms: float
    cpu_ms_per_request: float


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; CPU time is that of the HTTP process and the exporter, not the engine."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    def cpu_s(self) -> float:
        """CPU seconds so far of all its processes but the engine."""
        total = 0.0
        own = psutil.Process(self.process.pid)
        for process in (own, *own.children()):
            if process.name().startswith("VLLM::"):
                continue
            times = process.cpu_times()
            total += times.user + times.system
        return total


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def receiver() -> Iterator[str]:
    """A process that takes every OTLP body and looks at none; it tells how many came to a path."""
    port = free_port()
    code = (
        "from collections import Counter\n"
        "from http.server import *\n"
        "bodies = Counter()\n"
        "class H(BaseHTTPRequestHandler):\n"
        "    protocol_version = 'HTTP/1.1'\n"
        "    def do_POST(self):\n"
        "        self.rfile.read(int(self.headers['content-length']))\n"
        "        bodies[self.path] += 1\n"
        "        self.send_response(200)\n"
        "        self.send_header('content-length', '0')\n"
        "        self.end_headers()\n"
        "    def do_GET(self):\n"
        "        body = str(bodies[self.path]).encode()\n"
        "        self.send_response(200)\n"
        "        self.send_header('content-length', str(len(body)))\n"
        "        self.end_headers()\n"
        "        self.wfile.write(body)\n"
        "    def log_message(self, *_): pass\n"
        f"ThreadingHTTPServer(('127.0.0.1', {port}), H).serve_forever()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def serve(
    name: str,
    speculates: bool,
    folder: Path,
    otlp: str,
    more_flags: tuple[str, ...] = (),
    hooked: tuple[str, ...] = ("evenkeel", "serve"),
) -> Iterator[Server]:
    """A server that starts; any other name than those of the hooks and `TRACING` is bare."""
    port = free_port()
    flags = ["--served-model-name", MODEL, "--enforce-eager", "--no-use-tqdm-on-load"]
    flags += ["--disable-uvicorn-access-log", "--uvicorn-log-level", "warning"]
    # As `evenkeel serve` chooses on few cores; without it, polling makes throughput a lottery.
    flags += ["--distributed-executor-backend", EXECUTOR]
    if speculates:
        draft = {
            "method": "draft_model",
            "model": str(draft_path()),
            "num_speculative_tokens": 4,
        }
        flags += ["--speculative-config", json.dumps(draft)]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    if name in (HOOKS, REQUESTS):
        command = [*hooked, str(target_path())]
        flags += ["--otlp-endpoint", f"{otlp}/{name}", "--data-dir", str(folder / name)]
        flags += OWN_SCHEDULER if name == REQUESTS else ()
    else:
        command = ["vllm.entrypoints.openai.api_server", "--model", str(target_path())]
    environment = dict(os.environ) | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        # Where this package is installed, its plugin would be in the bare server as well.
        "VLLM_PLUGINS": "none",
    }
    if name == TRACING:
        environment["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
        flags += ["--otlp-traces-endpoint", f"{otlp}/{name}/v1/traces"]
    process = subprocess.Popen(
        [sys.executable, "-m", *command, *address, *flags, *more_flags],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield Server(name, port, process)
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(15)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def refuse_silence(otlp: str, name: str) -> None:
    """End here if a server that should have sent spans sent none: its cost would be a lie."""
    with urllib.request.urlopen(f"{otlp}/{name}/v1/traces") as answer:
        if int(answer.read()) == 0:
            raise SystemExit(f"overhead: no span came from {name!r}")


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
            return
        time.sleep(0.2)
    raise SystemExit("overhead: a server did not start; run `evenkeel serve demo` to see why")


async def ask(port: int, number: int, tokens: int) -> float:
    """Stream one answer of so many tokens; return the seconds to its first bytes."""
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": QUESTION.format(number=number)}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + body)
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


async def measure(server: Server, load: Load, numbers: Iterator[int]) -> Sample:
    slots = asyncio.Semaphore(load.concurrency)

    async def one() -> None:
        async with slots:
            await ask(server.port, next(numbers), load.tokens)

    cpu_before = server.cpu_s()
    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(load.requests)))
    elapsed = time.perf_counter() - started
    await asyncio.sleep(SETTLE_S)
    cpu_s = server.cpu_s() - cpu_before
    ttfts = [await ask(server.port, next(numbers), 2) for _ in range(load.probes)]
    return Sample(
        tokens_per_s=load.requests * load.tokens / elapsed,
        ttft_p50_ms=statistics.median(ttfts) * 1e3,
        cpu_ms_per_request=cpu_s / load.requests * 1e3,
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
    """Return median, least and greatest over the pairs of one server against the bare one."""
    pairs = [(result[name], result[BARE]) for result in results]
    figures = {
        "throughput_ratio": [a.tokens_per_s / b.tokens_per_s for a, b in pairs],
        "ttft_p50_difference_ms": [a.ttft_p50_ms - b.ttft_p50_ms for a, b in pairs],
        "http_cpu_difference_ms_per_request": [
            a.cpu_ms_per_request - b.cpu_ms_per_request for a, b in pairs
        ],
    }
    return {
        name: {"median": statistics.median(v), "least": min(v), "greatest": max(v)}
        for name, v in figures.items()
    }


def model_flags(is_large: bool) -> tuple[str, ...]:
    """Return what has vLLM serve 115 million random weights in the demo model's place."""
    return ("--load-format", "dummy", "--hf-overrides", json.dumps(LARGE)) if is_large else ()


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the flags of what is served, and how much is measured."""
    parser.add_argument("--large", action="store_true", help="115 million random weights instead")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=9, help="of each server in a pair")
    parser.add_argument("--requests", type=int, default=48, help="in a block")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--probes", type=int, default=16, help="requests for a TTFT median")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="PATH")


def read_load(args: argparse.Namespace) -> Load:
    """Return what the flags of `add_load` say."""
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
        flags = model_flags(args.large)
        servers = [
            stack.enter_context(serve(n, args.speculate, folder, otlp, flags)) for n in names
        ]
        for server in servers:
            wait_until_ready(server.process, server.port)
        results = asyncio.run(compare(servers, load, args.pairs, args.seed))
        for name in senders:
            refuse_silence(otlp, name)
    summary = {name: summarize(results, name) for name in names if name != BARE}
    for name, figures in summary.items():
        print(f"\n{name} against bare vLLM, {args.pairs} pairs, median (least to greatest):")
        for figure, v in figures.items():
            print(f"  {figure:36} {v['median']:8.4f}  ({v['least']:.4f} to {v['greatest']:.4f})")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        report = {
            "load": asdict(load),
            "model": LARGE if args.large else "demo",
            "control": args.control,
            "speculates": args.speculate,
            "summary": summary,
            "pairs": [{name: asdict(s) for name, s in result.items()} for result in results],
        }
        args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
