"""What control does for the interactive class at 1.5 times the load that can be sustained.

    python bench/control.py --pairs 5 --json build/bench/control.json

Two servers with the same flags are up together, one with control, one without. In pairs in random
order, each gets the same open-loop arrivals at 1.5 times the load that can be sustained, which is
measured before each pair: the throughput of a closed loop over the mix (half interactive requests
with short prompts, half batch requests with long ones) at the server without control. Goodput
counts the interactive requests a second whose first token came within the class's limit and whose
answer was complete. Between measurements the kill switch takes control's steps back, so that each
begins with none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.servers import (
    BARE,
    HOOKS,
    MODEL,
    Server,
    add_served,
    describe_machine,
    read_served,
    receiver,
    serve,
    wait_until_ready,
)

LIMIT_S = {"interactive": 0.2, "batch": 30.0}
CONTROL_FILE = """
default_class = "interactive"
max_active = 16
window_s = 2
recover_s = 10
escalate_burn = 5

[classes.interactive]
ttft_s = 0.2
queue_deadline_s = 0.4

[classes.batch]
ttft_s = 30
target = 0.9
"""
SUSTAINED_S = 5.0
# A control file is looked at once a second.
RELOADED_S = 2.0
FILLER = "The parcel was sent on Monday and has not arrived. "


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of the load: when, of which class, how long."""

    at_s: float
    slo_class: str
    number: int


@dataclass(frozen=True, slots=True)
class Goodput:
    """One server under one load.

    Attributes:
        interactive: Interactive requests a second within their limit.
        batch: Batch requests a second within theirs.
        interactive_ttft_p50_s: Of those that were served.
        refused: Requests answered with 429 or 503.
    """

    interactive: float
    batch: float
    interactive_ttft_p50_s: float
    refused: int


async def ask(server: Server, slo_class: str, number: int) -> float | None:
    """Return the time to the first token of one request; None if it was refused."""
    is_batch = slo_class == "batch"
    question = f"Order {number}: where is it? " + (FILLER * 60 if is_batch else "")
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": 96 if is_batch else 24,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
        f"x-evenkeel-slo-class: {slo_class}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head.encode() + body)
    first, last = None, b""
    try:
        while data := await reader.read(1 << 16):
            if first is None and b"data: " in data:
                first = time.perf_counter()
            last = (last + data)[-64:]
    finally:
        writer.close()
    return first - started if first is not None and b"[DONE]" in last else None


async def find_sustainable(server: Server, seconds: float) -> float:
    """Return the requests a second that a closed loop of 16 clients gets through."""
    until = time.perf_counter() + seconds
    numbers = iter(range(10_000_000, 20_000_000))
    done = 0

    async def client() -> None:
        nonlocal done
        while time.perf_counter() < until:
            number = next(numbers)
            await ask(server, "batch" if number % 2 else "interactive", number)
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(16)))
    return done / (time.perf_counter() - started)


def make_load(rate: float, seconds: float, seed: int) -> list[Asked]:
    """Return Poisson arrivals, half of each class."""
    random_ = random.Random(seed)
    at_s, load = 0.0, []
    while at_s < seconds:
        at_s += random_.expovariate(rate)
        slo_class = random_.choice(("interactive", "batch"))
        load.append(Asked(at_s, slo_class, random_.randrange(10_000_000)))
    return load


async def measure(server: Server, load: list[Asked], seconds: float) -> Goodput:
    """Send the load and wait for its end."""
    started = asyncio.get_running_loop().time()

    async def one(asked: Asked) -> tuple[str, float | None]:
        await asyncio.sleep(started + asked.at_s - asyncio.get_running_loop().time())
        return asked.slo_class, await ask(server, asked.slo_class, asked.number)

    answers = await asyncio.gather(*map(one, load))
    served = {c: [t for name, t in answers if name == c and t is not None] for c in LIMIT_S}
    good = {c: sum(t <= LIMIT_S[c] for t in times) / seconds for c, times in served.items()}
    ttfts = served["interactive"]
    return Goodput(
        interactive=good["interactive"],
        batch=good["batch"],
        interactive_ttft_p50_s=statistics.median(ttfts) if ttfts else float("nan"),
        refused=sum(t is None for _, t in answers),
    )


async def compare(
    servers: tuple[Server, Server], control_file: Path, args: argparse.Namespace
) -> tuple[list[float], list[tuple[Goodput, Goodput]]]:
    with_control, without = servers
    for server in servers:
        await find_sustainable(server, 3)
    order = random.Random(args.seed)
    pairs, sustainable = [], []
    for pair in range(args.pairs):
        sustainable.append(await find_sustainable(without, SUSTAINED_S))
        load = make_load(args.load * sustainable[-1], args.seconds, args.seed + pair)
        measured: dict[str, Goodput] = {}
        for server in order.sample(servers, 2):
            measured[server.name] = await measure(server, load, args.seconds)
            control_file.write_text('mode = "off"\n', encoding="utf-8")
            # Meanwhile vLLM empties its queue.
            await asyncio.sleep(args.rest)
            control_file.write_text(CONTROL_FILE, encoding="utf-8")
            await asyncio.sleep(RELOADED_S)
        both = measured[with_control.name], measured[without.name]
        pairs.append(both)
        print(
            f"pair {pair + 1}/{args.pairs}, sustainable {sustainable[-1]:.1f} requests/s: "
            + "  |  ".join(
                f"interactive {g.interactive:5.2f}/s (TTFT p50 {g.interactive_ttft_p50_s:6.3f} s), "
                f"batch {g.batch:5.2f}/s, refused {g.refused}"
                for g in both
            ),
            flush=True,
        )
    return sustainable, pairs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_served(parser)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15.0, help="of load in a measurement")
    parser.add_argument("--rest", type=float, default=8.0, help="seconds between measurements")
    parser.add_argument("--load", type=float, default=1.5, help="times the sustainable load")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="PATH")
    args = parser.parse_args()
    folder = Path("build") / "control"
    folder.mkdir(parents=True, exist_ok=True)
    control_file = folder / "control.toml"
    control_file.write_text(CONTROL_FILE, encoding="utf-8")
    with ExitStack() as stack:
        otlp = stack.enter_context(receiver())
        served, control = read_served(args), ("--control-file", str(control_file))
        servers = (
            stack.enter_context(serve(HOOKS, served, folder, otlp, more_flags=control)),
            stack.enter_context(serve(BARE, served, folder, otlp)),
        )
        for server in servers:
            wait_until_ready(server)
        sustainable, pairs = asyncio.run(compare(servers, control_file, args))
    ratios = [a.interactive / max(b.interactive, 1 / args.seconds) for a, b in pairs]
    middle = statistics.median(ratios)
    print(
        f"\ngoodput of interactive, control against plain, {args.pairs} pairs: "
        f"median {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        report = {
            "sustainable_requests_per_s": sustainable,
            "load": args.load,
            "served": asdict(served),
            "machine": describe_machine(),
            "ratio": {"median": middle, "least": min(ratios), "greatest": max(ratios)},
            "pairs": [{"control": asdict(a), "plain": asdict(b)} for a, b in pairs],
        }
        args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
