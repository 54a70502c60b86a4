"""Measure what the cache costs requests that miss it; for bench/cache.py.

Rounds on one server alternate between a route with the cache off and one where it serves. The
result is the ratio of throughput with and without it, in output tokens per second, for each pair of
rounds, and the CPU time that a request takes longer with it. All requests are new. Answers are not
truncated, because truncated ones are never cached.

- `unlike`: random words; nothing is near.
- `numbered`: one question with a different number each time; all are near, a guard rejects each.
- `related`: the dataset's questions, each with two extra words: many are near, none is served.
"""

import json
import random
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil

CLIENTS = 16
MOST_ANSWER_TOKENS = 96
_LETTERS = "abcdefghijklmnoprstuvw"


class Questions:
    """Generates new questions of one kind.

    Args:
        kind: One of the kinds above.
        dataset: Questions of the dataset.
    """

    def __init__(self, kind: str, dataset: Sequence[str]) -> None:
        self._kind = kind
        self._dataset = dataset
        self._order = random.Random(5)
        self._number = 0

    def draw(self) -> str:
        """Return the next one."""
        self._number += 1
        if self._kind == "numbered":
            return f"What does part number {self._number} of the catalogue look like?"
        if self._kind == "unlike":
            return " ".join(self._word() for _ in range(9)) + "?"
        question = self._dataset[self._number % len(self._dataset)]
        return f"{self._word()} {self._word()}: {question}"

    def _word(self) -> str:
        return "".join(self._order.choices(_LETTERS, k=6))


@dataclass(frozen=True, slots=True)
class Round:
    """What one round took.

    Attributes:
        tokens_per_s: Output tokens per second.
        request_ms: Duration of the round, divided by its requests.
        server_ms: CPU time of the server and its exporter per request.
        engine_ms: CPU time of the engine per request.
    """

    tokens_per_s: float
    request_ms: float
    server_ms: float
    engine_ms: float


def run_round(url: str, route: str, texts: Sequence[str]) -> Round:
    """Ask all of them, CLIENTS at a time."""
    address = urlsplit(url).netloc
    parts = [texts[start::CLIENTS] for start in range(CLIENTS)]
    server_s, engine_s = _cpu_seconds()
    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        num_tokens = sum(pool.map(lambda part: _ask_all(address, route, part), parts))
    took_s = time.perf_counter() - began
    server_end_s, engine_end_s = _cpu_seconds()
    each_ms = 1000 / len(texts)
    return Round(
        num_tokens / took_s,
        took_s * each_ms,
        (server_end_s - server_s) * each_ms,
        (engine_end_s - engine_s) * each_ms,
    )


def _cpu_seconds() -> tuple[float, float]:
    """Return the CPU time so far of the server's processes, and of its engine's."""
    server_s = engine_s = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            used = process.cpu_times()
            if "EngineCore" in process.name() or "EngineCore" in " ".join(process.cmdline()):
                engine_s += used.user + used.system
            else:
                server_s += used.user + used.system
    return server_s, engine_s


def _ask_all(address: str, route: str, texts: Sequence[str]) -> int:
    """Return the output tokens."""
    num_tokens = 0
    connection = HTTPConnection(address, timeout=120)
    headers = {"content-type": "application/json", "x-evenkeel-route": route}
    for text in texts:
        body = {
            "model": "support",
            "messages": [{"role": "user", "content": text}],
            "temperature": 0,
            "max_tokens": MOST_ANSWER_TOKENS,
        }
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        data = response.read()
        if response.status != 200:
            raise SystemExit(f"cache: {response.status} {data.decode()}")
        num_tokens += json.loads(data)["usage"]["completion_tokens"]
    connection.close()
    return num_tokens


def measure_misses(
    url: str, kind: str, dataset: Sequence[str], pairs: int, requests: int
) -> dict[str, Any]:
    """Return throughput with the cache over throughput without, of each pair of rounds."""
    questions = Questions(kind, dataset)
    order = random.Random(11)
    rounds: list[tuple[Round, Round]] = []
    before: dict[str, dict[str, float]] = {}
    for number in range(pairs + 1):
        routes = ["off", "serve"]
        order.shuffle(routes)
        found = {
            route: run_round(url, route, [questions.draw() for _ in range(requests)])
            for route in routes
        }
        if number:
            rounds.append((found["off"], found["serve"]))
        else:  # The first pair warms up.
            before = {name: _read(url, name) for name in ("embeddings", "requests")}
    counts = {
        name: {value: n - before[name].get(value, 0) for value, n in _read(url, name).items()}
        for name in before
    }
    outcomes = counts["requests"]
    answered = {name: outcomes[name] for name in ("exact", "semantic") if outcomes.get(name)}
    if answered:
        raise SystemExit(f"cache: all of {kind} should have missed, the cache answered {answered}")
    ratios = [on.tokens_per_s / off.tokens_per_s for off, on in rounds]
    means = [
        statistics.median(np.random.default_rng(seed).choice(ratios, len(ratios)))
        for seed in range(2000)
    ]
    return {
        "pairs": len(rounds),
        "requests_per_round": requests,
        "off_tokens_per_s": statistics.median(off.tokens_per_s for off, _ in rounds),
        "on_tokens_per_s": statistics.median(on.tokens_per_s for _, on in rounds),
        "off_request_ms": statistics.median(off.request_ms for off, _ in rounds),
        "server_ms": statistics.median(on.server_ms - off.server_ms for off, on in rounds),
        "engine_ms": statistics.median(on.engine_ms - off.engine_ms for off, on in rounds),
        "ratio": statistics.median(ratios),
        "ratio_ci95": [float(q) for q in np.quantile(means, [0.025, 0.975])],
        "ratios": ratios,
        "embeddings": counts["embeddings"],
        "outcomes": outcomes,
        # The cache gave each of these a draft that the model could use.
        "verified_ratio": outcomes.get("verified", 0) / (len(rounds) * requests),
    }


def _read(url: str, name: str) -> dict[str, float]:
    """Return a count of the cache's from the metrics page, by the value of its only label."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    found = [line for line in lines if line.startswith(f"evenkeel_cache_{name}_total{{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in found}
