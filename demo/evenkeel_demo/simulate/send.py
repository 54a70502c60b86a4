"""Sends simulated requests over OTLP/HTTP: as fast as the collector accepts them, or live."""

from __future__ import annotations

import heapq
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from evenkeel.errors import CannotMeasureError
from evenkeel.otlp_sender import Send, deliver, open_sender
from evenkeel.otlp_target import read_http_target
from evenkeel.outside_text import drawn_on
from evenkeel.secret_text import hide_password
from evenkeel.settings import read_otel
from evenkeel_demo.simulate.otlp import encode
from evenkeel_demo.simulate.requests import FleetPlan, SimulatedRequest, generate

if TYPE_CHECKING:
    from rich.progress import TaskID

LIVE_INTERVAL_S = 0.5


@dataclass(slots=True)
class Sent:
    """What the collector accepted."""

    num_requests: int = 0
    num_spans: int = 0
    num_bytes: int = 0
    wall_s: float = 0.0
    num_by_status: dict[str, int] = field(default_factory=dict)


def send(plan: FleetPlan, endpoint: str, *, is_live: bool, shows_progress: bool) -> Sent:
    """Send every request of the plan and return what was accepted.

    Raises:
        ConfigurationError: If the endpoint is not a valid address.
        CannotMeasureError: If the collector cannot be reached, refuses, or stays overloaded.
    """
    sent = Sent()
    statuses: Counter[str] = Counter()
    batches = _due_batches(plan) if is_live else generate(plan)
    start_s = time.monotonic()
    progress = _progress(shows_progress)
    target = replace(read_http_target(read_otel(), endpoint), timeout_s=30.0)
    send_batch = open_sender(target)
    with progress:
        task: TaskID = progress.add_task("sending", total=plan.num_requests)
        for batch in batches:
            body, num_spans = encode(batch)
            _deliver(send_batch, target.url, body, num_spans)
            sent.num_requests += len(batch)
            sent.num_spans += num_spans
            sent.num_bytes += len(body)
            statuses.update(request.record.status.value for request in batch)
            progress.advance(task, len(batch))
    sent.wall_s = time.monotonic() - start_s
    sent.num_by_status = dict(sorted(statuses.items()))
    return sent


def _due_batches(plan: FleetPlan) -> Iterator[Sequence[SimulatedRequest]]:
    """Yield requests as they end by the wall clock, twice a second."""
    waiting: list[tuple[int, int, SimulatedRequest]] = []
    for number, request in enumerate(r for block in generate(plan) for r in block):
        while request.arrival_ns > time.time_ns():
            time.sleep(LIVE_INTERVAL_S)
            yield from _ended(waiting)
        end_ns = request.arrival_ns + round((request.record.e2e_s or 0.0) * 1e9)
        heapq.heappush(waiting, (end_ns, number, request))
    while waiting:
        time.sleep(LIVE_INTERVAL_S)
        yield from _ended(waiting)


def _ended(
    waiting: list[tuple[int, int, SimulatedRequest]],
) -> Iterator[Sequence[SimulatedRequest]]:
    batch = []
    now_ns = time.time_ns()
    while waiting and waiting[0][0] <= now_ns:
        batch.append(heapq.heappop(waiting)[2])
    if batch:
        yield batch


def _deliver(send_batch: Send, url: str, body: bytes, num_spans: int) -> None:
    delivery = deliver(send_batch, body, num_spans)
    collector = hide_password(url)
    if delivery.is_unreachable:
        raise CannotMeasureError(
            f"no collector answers at {collector} ({delivery.reason}); start one with: "
            "evenkeel collect, and wait until it has printed its addresses"
        )
    if not delivery.is_done:
        raise CannotMeasureError(
            f"the collector at {collector} stayed overloaded: {delivery.reason}"
        )
    if delivery.reason:
        remedy = ""
        if delivery.reason.startswith(("HTTP 401", "HTTP 403")):
            remedy = "; send a token that may ingest in OTEL_EXPORTER_OTLP_HEADERS"
        raise CannotMeasureError(f"the collector at {collector} refused: {delivery.reason}{remedy}")


def _progress(is_shown: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(file=drawn_on(sys.stderr)),
        disable=not is_shown,
        transient=True,
    )
