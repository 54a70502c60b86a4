"""What drafts cost and save while long prompts crowd the engine.

    python bench/crowded_drafts.py --json build/crowded_drafts.json

The demo's popular questions and prompts of 400 words arrive at random (Poisson), OVERLOAD times as
fast as clients that wait for their answers could send them without drafts. Rounds with and without
drafts, with the same arrivals, take turns on one server, which drafts by itself (`--speculate
auto`); a limit of `draft_tokens = 0` in the control file leaves a round without. Control does
nothing else: all requests are of one class and served in order of arrival, in full steps.

1. `known`: with a cache in mode `draft` that is empty when the round begins.
2. `new`: no cache; drafts come from past answers.

A ratio is the median over pairs of rounds of the figure with drafts over that without; the figures
beside it are medians of their own.
"""

import argparse
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from bench.servers import describe_machine, serve_own
from evenkeel_demo.questions import read_popular

CLIENTS, CROWD = 8, 2
OVERLOAD = 1.1
LONG_WORDS = 400
KINDS = ("known", "new")
# Routes whose names end so have no drafts.
PLAIN = "-plain"
CACHE = "".join(
    f'[[routes]]\nroute = "{route}"\nmode = "draft"\n' for route in ("known", f"known{PLAIN}")
)
CACHE += '[[routes]]\nmode = "off"\n'
# One class with limits that nothing exceeds: control refuses nobody and takes no step.
CONTROL = """
mode = "act"
max_active = 256
default_class = "any"
[classes.any]
ttft_s = 600
queue_deadline_s = 600
"""
CONTROL += "".join(f"[routes.{kind}{PLAIN}]\ndraft_tokens = 0\n" for kind in (*KINDS, "long"))
WORDS = "order parcel refund invoice account password carrier label address payment card".split()


@dataclass(frozen=True, slots=True)
class Rates:
    """Arrivals per second."""

    chats: float
    long: float


@contextmanager
def serve() -> Iterator[str]:
    """Start the server; yield its address."""
    with tempfile.TemporaryDirectory() as folder:
        cache, control = Path(folder) / "cache.toml", Path(folder) / "control.toml"
        cache.write_text(CACHE, encoding="utf-8")
        control.write_text(CONTROL, encoding="utf-8")
        flags = ("--speculate", "auto", "--cache", str(cache), "--control-file", str(control))
        with serve_own("demo", *flags) as url:
            yield url


def ask(client: httpx.Client, text: str, route: str, tenant: str) -> tuple[float, float]:
    """Return the seconds to an answer's first token and to its end."""
    body = {
        "model": "support",
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": 64,
        "stream": True,
    }
    headers = {"x-evenkeel-route": route, "x-evenkeel-tenant": tenant}
    began, first_s = time.perf_counter(), 0.0
    with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        for line in response.iter_lines():
            if '"content":' in line and '"content":""' not in line and not first_s:
                first_s = time.perf_counter() - began
    assert response.status_code == 200 and first_s, (response.status_code, text)
    return first_s, time.perf_counter() - began


def read_texts(order: random.Random) -> list[str]:
    """Return every wording of the popular questions once."""
    texts = [question.messages[-1]["content"] for question in read_popular()]
    return order.sample(texts, len(texts))


def make_long(order: random.Random) -> str:
    """Return a long prompt that the prefix cache does not have."""
    return f"{order.random()} {' '.join(order.choices(WORDS, k=LONG_WORDS))}"


def find_rates(client: httpx.Client) -> Rates:
    """Return rates of chats and long prompts that overload the server if it has no drafts."""
    order, is_over = random.Random(), threading.Event()

    def crowd(prompts: Iterator[str]) -> int:
        count = 0
        while not is_over.is_set():
            ask(client, next(prompts), f"long{PLAIN}", "rates")
            count += 1
        return count

    with ThreadPoolExecutor(CLIENTS + CROWD) as pool:
        prompts = [make_long(order) for _ in range(1000)]
        crowds = [pool.submit(crowd, iter(prompts[place::CROWD])) for place in range(CROWD)]
        began = time.perf_counter()
        texts = read_texts(order)
        try:
            list(pool.map(lambda text: ask(client, text, f"new{PLAIN}", "rates"), texts))
        finally:
            is_over.set()
        took_s = time.perf_counter() - began
    num_long = sum(each.result() for each in crowds)
    return Rates(OVERLOAD * len(texts) / took_s, OVERLOAD * num_long / took_s)


def run_round(
    client: httpx.Client, kind: str, suffix: str, number: int, rates: Rates
) -> dict[str, float]:
    """Let every wording and long prompts arrive, as from a tenant of its own; wait for all."""
    order, tenant = random.Random(f"{kind} {number}"), f"{kind}{suffix}-{number}"
    arrivals: list[tuple[float, str, str]] = []
    at_s = 0.0
    for text in read_texts(order):
        at_s += order.expovariate(rates.chats)
        arrivals.append((at_s, kind, text))
    last_s, at_s = at_s, 0.0
    while (at_s := at_s + order.expovariate(rates.long)) < last_s:
        arrivals.append((at_s, "long", f"{suffix} {make_long(order)}"))
    began = time.perf_counter()

    def wait_and_ask(arrival: tuple[float, str, str]) -> tuple[float, float]:
        at_s, route, text = arrival
        time.sleep(max(began + at_s - time.perf_counter(), 0.0))
        # From when it was due: a client that wakes late has waited, too.
        late_s = time.perf_counter() - began - at_s
        first_s, end_s = ask(client, text, route + suffix, tenant)
        return late_s + first_s, late_s + end_s

    with ThreadPoolExecutor(len(arrivals)) as pool:
        times = list(pool.map(wait_and_ask, arrivals))
    firsts, ends = zip(
        *[t for t, arrival in zip(times, arrivals, strict=True) if arrival[1] == kind], strict=True
    )
    p50, p95 = np.quantile(firsts, [0.5, 0.95])
    return {"ttft_p50_s": p50, "ttft_p95_s": p95, "e2e_p50_s": float(np.median(ends))}


def measure(client: httpx.Client, kind: str, pairs: int, rates: Rates) -> dict[str, Any]:
    """Return the median of each figure with and without drafts, and of their ratios."""
    drafted, plain = [], []
    for number in range(pairs + 1):
        order = ["", PLAIN] if number % 2 else [PLAIN, ""]
        rounds = {suffix: run_round(client, kind, suffix, number, rates) for suffix in order}
        if number:  # The first pair warms up.
            drafted.append(rounds[""])
            plain.append(rounds[PLAIN])
    report: dict[str, Any] = {"pairs": pairs}
    for name in drafted[0]:
        ratios = [a[name] / b[name] for a, b in zip(drafted, plain, strict=True)]
        report[name] = {
            "drafted": statistics.median(row[name] for row in drafted),
            "plain": statistics.median(row[name] for row in plain),
            "ratio": statistics.median(ratios),
            "ratios": ratios,
        }
    return report


def show(kind: str, report: dict[str, Any]) -> None:
    print(f"{kind}: {report['pairs']} pairs of rounds")
    for name, row in report.items():
        if name != "pairs":
            least, most = min(row["ratios"]), max(row["ratios"])
            print(
                f"  {name}: {row['drafted']:.2f} with drafts, {row['plain']:.2f} without: "
                f"{row['ratio']:.2f} times ({least:.2f} to {most:.2f})"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report: dict[str, Any] = {"machine": describe_machine()}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    with serve() as url, httpx.Client(base_url=url, timeout=300, limits=limits) as client:
        find_rates(client)  # Warms up.
        rates = find_rates(client)
        report["arrivals_per_s"] = asdict(rates)
        print(f"arrivals per second: {rates.chats:.1f} chats, {rates.long:.2f} long prompts")
        for kind in KINDS:
            report[kind] = measure(client, kind, arguments.pairs, rates)
            show(kind, report[kind])
    write_report(arguments.json, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
