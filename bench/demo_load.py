"""A served demo model and requests to it, for benches that compare what the field claims."""

import http.client
import json
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from bench.servers import describe_machine
from tests.fixtures.otlp_receiver import OtlpReceiver, ReceivedSpan
from tests.fixtures.served_model import ServedModel, serve


@dataclass(frozen=True, slots=True)
class Ask:
    """One request.

    Attributes:
        messages: The chat.
        tokens: Length of the answer, always reached.
        streams: Whether the answer is streamed.
        route: Sent as the caller's route.
    """

    messages: Sequence[dict[str, str]]
    tokens: int
    streams: bool = False
    route: str = "bench"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the client saw: seconds to the first text, and to the end."""

    first_s: float
    end_s: float


@contextmanager
def demo_server(*flags: str) -> Iterator[ServedModel]:
    """A real `evenkeel serve demo`, warm, whose spans arrive in this process."""
    receiver = OtlpReceiver()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ek-") as folder,
            serve(Path(folder), receiver, *flags) as served,
        ):
            for number in range(8):
                send(served, Ask(question(number), 32, streams=bool(number % 2)), "warm-up")
            yield served
    finally:
        receiver.stop()


def question(number: int) -> list[dict[str, str]]:
    """Return a short question that no other number has."""
    return [{"role": "user", "content": f"{number}: where is order {number}?"}]


def send(served: ServedModel, ask: Ask, tenant: str) -> Seen:
    """Send a request and read its whole answer.

    Raises:
        RuntimeError: If the server refuses it.
    """
    body = {
        "model": served.model,
        "messages": list(ask.messages),
        "max_tokens": ask.tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": ask.streams,
    }
    headers = {
        "content-type": "application/json",
        "x-evenkeel-tenant": tenant,
        "x-evenkeel-route": ask.route,
    }
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=120)
    began = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"the server answered {answer.status}: {answer.read()[:200]!r}")
    first_s = 0.0
    if ask.streams:
        while line := answer.readline():
            # The first event has the role and no text.
            if not first_s and b'"content":"' in line and b'"content":""' not in line:
                first_s = time.perf_counter() - began
    else:
        answer.read()
    connection.close()
    end_s = time.perf_counter() - began
    return Seen(first_s or end_s, end_s)


def keep_in_flight(
    served: ServedModel, asks: Sequence[Ask], num: int
) -> tuple[float, list[dict[str, Any]]]:
    """Keep `num` requests in flight; return the seconds until all ended, and their spans."""
    tenant = new_tenant()
    with ThreadPoolExecutor(num) as pool:
        began = time.perf_counter()
        list(pool.map(lambda ask: send(served, ask, tenant), asks))
        wall_s = time.perf_counter() - began
    return wall_s, spans_of(served, tenant, len(asks))


def new_tenant() -> str:
    """Return a name by which the spans of one run are found."""
    return f"run-{uuid.uuid4().hex[:12]}"


def spans_of(served: ServedModel, tenant: str, count: int) -> list[dict[str, Any]]:
    """Return the attributes of a run's request spans."""
    spans: list[ReceivedSpan] = served.wait_for_requests(count, evenkeel__tenant=tenant)
    return [span.attributes for span in spans]


def lengths(choose: random.Random, num: int) -> list[int]:
    """Return answer lengths with a long tail, as chats have: median 32 tokens, 5% above 165."""
    return [min(384, max(1, round(choose.lognormvariate(3.47, 1.0)))) for _ in range(num)]


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile, interpolated between neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(
    values: Sequence[float], unit: str = "", show: Callable[[float], str] | None = None
) -> str:
    """Return the median with the smallest and largest value."""
    write = show or (lambda value: f"{value:.2f}")
    middle = write(statistics.median(values))
    return f"{middle}{unit} ({write(min(values))} to {write(max(values))})"


def save(path: Path | None, figures: dict[str, Any]) -> None:
    """Write figures with the machine they were measured on."""
    write_report(path, {"machine": describe_machine(), **figures})
