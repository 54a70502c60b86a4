"""Measure what the cache costs requests that miss it; for bench/cache.py.

Rounds on one server alternate between a route with the cache off and one where it serves. The
result is the ratio of throughput with and without it, in output tokens per second, for each pair of
rounds. All requests are new. Answers are not truncated, because truncated ones are never cached.

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
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

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


def run_round(url: str, route: str, texts: Sequence[str]) -> float:
    """Ask all of them, CLIENTS at a time; returns the output tokens per second."""
    address = urlsplit(url).netloc
    parts = [texts[start::CLIENTS] for start in range(CLIENTS)]
    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        num_tokens = sum(pool.map(lambda part: _ask_all(address, route, part), parts))
    return num_tokens / (time.perf_counter() - began)


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
    rates: list[tuple[float, float]] = []
    before: dict[str, float] = {}
    for number in range(pairs + 1):
        routes = ["off", "serve"]
        order.shuffle(routes)
        found = {
            route: run_round(url, route, [questions.draw() for _ in range(requests)])
            for route in routes
        }
        if number:
            rates.append((found["off"], found["serve"]))
        else:  # The first pair warms up.
            before = _read(url, "embeddings")
    after, outcomes = _read(url, "embeddings"), _read(url, "requests")
    answered = {name: outcomes[name] for name in ("exact", "semantic") if outcomes.get(name)}
    if answered:
        raise SystemExit(f"cache: all of {kind} should have missed, the cache answered {answered}")
    ratios = [on / off for off, on in rates]
    means = [
        statistics.median(np.random.default_rng(seed).choice(ratios, len(ratios)))
        for seed in range(2000)
    ]
    return {
        "pairs": len(rates),
        "requests_per_round": requests,
        "off_tokens_per_s": statistics.median(off for off, _ in rates),
        "on_tokens_per_s": statistics.median(on for _, on in rates),
        "ratio": statistics.median(ratios),
        "ratio_ci95": [float(q) for q in np.quantile(means, [0.025, 0.975])],
        "ratios": ratios,
        "embeddings": {k: v - before.get(k, 0) for k, v in after.items()},
    }


def _read(url: str, name: str) -> dict[str, float]:
    """Return a count of the cache's from the metrics page, by the value of its only label."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    found = [line for line in lines if line.startswith(f"evenkeel_cache_{name}_total{{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in found}
