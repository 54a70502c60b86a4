"""Measure goodput with and without control, under ten loads of 0.8 to 3 times capacity.

    python bench/control.py --json build/bench/control.json                     some 45 minutes
    python bench/control.py --pairs 1 --seconds 4 --loads 2 --json build/c.json a short run

Two `evenkeel serve` with the same flags run at the same time, one with control, one without. In
each round every load is sent to both, in random order, with the same open-loop Poisson arrivals; a
measurement ends when the last request is answered. The capacity is measured in each round for each
mix: the throughput of 16 closed-loop clients, without control.

A request is good if its answer is complete and its first token came within the limit of its class;
goodput is the sum over all classes. The ratio of a load compares the sums over all rounds; its
lower bound is the 5th percentile of a bootstrap over rounds.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from bench.servers import (
    HOOKS,
    Server,
    add_served,
    chat_request,
    describe_machine,
    read_served,
    receiver,
    serve,
    wait_until_ready,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """The requests of a class: their limit, sentences of filler and answer length."""

    limit_s: float
    sentences: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Load:
    """A mix of classes at a multiple of its capacity."""

    mix: str
    times: float

    @property
    def name(self) -> str:
        """The name of the load."""
        return f"{self.mix}, {self.times:g} times"


KINDS = {"interactive": Kind(0.2, 0, 24), "chat": Kind(0.5, 15, 64), "batch": Kind(30.0, 60, 96)}
MIXES: Mapping[str, Mapping[str, float]] = {
    "half interactive, half batch": {"interactive": 0.5, "batch": 0.5},
    "mostly batch": {"interactive": 0.2, "batch": 0.8},
    "mostly interactive": {"interactive": 0.8, "batch": 0.2},
    "three classes": {"interactive": 0.3, "chat": 0.4, "batch": 0.3},
    "chat only": {"chat": 1.0},
}
# The first is the one whose top class is judged.
LOADS = (
    Load("half interactive, half batch", 1.5),
    Load("half interactive, half batch", 0.8),
    Load("half interactive, half batch", 1.0),
    Load("half interactive, half batch", 3.0),
    Load("mostly batch", 1.5),
    Load("mostly batch", 2.0),
    Load("mostly interactive", 1.5),
    Load("mostly interactive", 2.0),
    Load("three classes", 2.0),
    Load("chat only", 1.5),
)
CONTROL_FILE = 'default_class = "chat"\nwindow_s = 5\n' + "".join(
    f"[classes.{name}]\nttft_s = {kind.limit_s}\n" for name, kind in KINDS.items()
)
NUM_CLIENTS = 16
FILLER = "The parcel was sent on Monday and has not arrived. "
LEAST_RATIO, TOP_TIMES, TOP_RATIO = 0.97, 1.5, 0.95
NUM_RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one request: seconds to its first token and to its end, None if missing."""

    slo_class: str
    status: int
    ttft_s: float | None
    end_s: float | None

    @property
    def is_good(self) -> bool:
        """Whether it was answered in full, its first token within the limit of its class."""
        limit_s = KINDS[self.slo_class].limit_s
        return self.end_s is not None and self.ttft_s is not None and self.ttft_s <= limit_s


@dataclass(frozen=True, slots=True)
class Measured:
    """One server under one load; counts by class.

    Attributes:
        completed_per_s: Requests a second whose answer ended while the load was on.
    """

    asked: dict[str, int]
    good: dict[str, int]
    refused: dict[str, int]
    completed_per_s: float

    @property
    def num_good(self) -> int:
        """Good requests of all classes."""
        return sum(self.good.values())


@dataclass(frozen=True, slots=True)
class Pair:
    """One load at both servers."""

    load: str
    sustainable_per_s: float
    control: Measured
    plain: Measured


async def ask(server: Server, slo_class: str, number: int) -> Answer:
    """Send one request and read its answer to the end."""
    kind = KINDS[slo_class]
    question = f"Order {number}: where is it? " + FILLER * kind.sentences
    request = chat_request(question, kind.tokens, f"x-evenkeel-slo-class: {slo_class}")
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    status, first, last = 0, None, b""
    try:
        while data := await reader.read(1 << 16):
            if not status:
                status = int(data.split(None, 2)[1])
            if first is None and b"data: " in data:
                first = time.perf_counter() - started
            last = (last + data)[-64:]
    finally:
        writer.close()
    end_s = time.perf_counter() - started if b"[DONE]" in last else None
    return Answer(slo_class, status, first, end_s)


async def find_sustainable(server: Server, mix: str, seconds: float, seed: int) -> float:
    """Return the requests per second of a closed loop of clients."""
    until = time.perf_counter() + seconds
    random_ = random.Random(seed)
    done = 0

    async def client() -> None:
        nonlocal done
        while time.perf_counter() < until:
            slo_class = random_.choices(*choices(mix))[0]
            await ask(server, slo_class, random_.randrange(10_000_000))
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(NUM_CLIENTS)))
    return done / (time.perf_counter() - started)


def choices(mix: str) -> tuple[list[str], list[float]]:
    return list(MIXES[mix]), list(MIXES[mix].values())


async def measure(server: Server, mix: str, rate: float, seconds: float, seed: int) -> Measured:
    """Send Poisson arrivals and wait for every answer."""
    random_ = random.Random(seed)
    asked: list[tuple[float, asyncio.Task[Answer]]] = []
    started, at_s = time.perf_counter(), 0.0
    while (at_s := at_s + random_.expovariate(rate)) < seconds:
        slo_class = random_.choices(*choices(mix))[0]
        number = random_.randrange(10_000_000)
        await asyncio.sleep(max(0.0, started + at_s - time.perf_counter()))
        asked.append((at_s, asyncio.create_task(ask(server, slo_class, number))))
    answers = [(at_s, await task) for at_s, task in asked]
    return Measured(
        asked=dict(Counter(a.slo_class for _, a in answers)),
        good=dict(Counter(a.slo_class for _, a in answers if a.is_good)),
        refused=dict(Counter(a.slo_class for _, a in answers if a.status in (429, 503))),
        completed_per_s=sum(
            a.end_s is not None and at_s + a.end_s <= seconds for at_s, a in answers
        )
        / seconds,
    )


async def compare(with_control: Server, plain: Server, args: argparse.Namespace) -> list[Pair]:
    servers = (with_control, plain)
    loads = LOADS[: args.loads]
    order = random.Random(args.seed)
    # Never send a server the same prompt twice: its prefix cache would answer it.
    for server in servers:
        await find_sustainable(server, loads[0].mix, args.sustain, order.getrandbits(32))
    pairs = []
    for round_ in range(args.pairs):
        sustainable: dict[str, float] = {}
        for load in order.sample(loads, len(loads)):
            if load.mix not in sustainable:
                sustainable[load.mix] = await find_sustainable(
                    plain, load.mix, args.sustain, order.getrandbits(32)
                )
            rate = load.times * sustainable[load.mix]
            seed = order.getrandbits(32)
            measured = {}
            for server in order.sample(servers, 2):
                measured[server.port] = await measure(server, load.mix, rate, args.seconds, seed)
            pair = Pair(
                load.name,
                sustainable[load.mix],
                measured[with_control.port],
                measured[plain.port],
            )
            pairs.append(pair)
            print(f"{round_ + 1}/{args.pairs} {load.name}: {describe(pair)}", flush=True)
    return pairs


def describe(pair: Pair) -> str:
    sides = [
        f"good {side.good} of {side.asked}, refused {side.refused}, "
        f"{side.completed_per_s:.1f} completed/s"
        for side in (pair.control, pair.plain)
    ]
    return f"sustainable {pair.sustainable_per_s:.1f}/s; control {sides[0]}; plain {sides[1]}"


def ratio_of(pairs: Sequence[Pair]) -> float:
    return sum(p.control.num_good for p in pairs) / max(1, sum(p.plain.num_good for p in pairs))


def lower_bound(pairs: Sequence[Pair], seed: int) -> float:
    """Return the 5th percentile of the ratio over resampled rounds."""
    random_ = random.Random(seed)
    drawn = sorted(ratio_of(random_.choices(pairs, k=len(pairs))) for _ in range(NUM_RESAMPLES))
    return drawn[NUM_RESAMPLES // 20]


def judge_top_class(pairs: Sequence[Pair], mix: str) -> dict[str, object]:
    """Return how many requests of the highest class were in time, with control and without."""
    top = min(MIXES[mix], key=lambda name: KINDS[name].limit_s)
    asked = sum(p.control.asked.get(top, 0) for p in pairs)
    good, plain = (
        sum(side.good.get(top, 0) for side in sides)
        for sides in ([p.control for p in pairs], [p.plain for p in pairs])
    )
    is_met = 0 < good >= min(TOP_TIMES * plain, TOP_RATIO * asked)
    return {"class": top, "asked": asked, "control": good, "plain": plain, "is_met": is_met}


def summarise(pairs: Sequence[Pair], seed: int) -> list[dict[str, object]]:
    """Return one row per load: the ratio and its bound, the top class, completed requests."""
    rows: list[dict[str, object]] = []
    for load in LOADS:
        own = [pair for pair in pairs if pair.load == load.name]
        if not own:
            continue
        lower = lower_bound(own, seed)
        control, plain = (
            sum(side.completed_per_s for side in sides) / len(own)
            for sides in ([p.control for p in own], [p.plain for p in own])
        )
        rows.append(
            {
                "load": load.name,
                "ratio": ratio_of(own),
                "lower95": lower,
                "is_met": lower >= LEAST_RATIO,
                "top": judge_top_class(own, load.mix),
                "completed_per_s": {"control": control, "plain": plain},
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_served(parser)
    parser.add_argument("--pairs", type=int, default=5, help="rounds over all loads")
    parser.add_argument("--seconds", type=float, default=15.0, help="load per measurement")
    parser.add_argument("--sustain", type=float, default=5.0, help="seconds of the closed loop")
    parser.add_argument("--loads", type=int, default=len(LOADS), help="only the first N loads")
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
            stack.enter_context(serve(HOOKS, served, folder / "on", otlp, more_flags=control)),
            stack.enter_context(serve(HOOKS, served, folder / "off", otlp)),
        )
        for server in servers:
            wait_until_ready(server)
        pairs = asyncio.run(compare(*servers, args))
    rows = summarise(pairs, args.seed)
    print(f"\ngoodput with control over without, {args.pairs} rounds, lower bound of 95%:")
    for row in rows:
        print(
            f"{row['load']:36} {row['ratio']:.3f}, {row['lower95']:.3f} or more  "
            f"{'met' if row['is_met'] else 'MISSED'}; top class {row['top']}"
        )
    report = {
        "served": asdict(served),
        "machine": describe_machine(),
        "seconds": args.seconds,
        "loads": rows,
        "pairs": [asdict(pair) for pair in pairs],
    }
    write_report(args.json, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
