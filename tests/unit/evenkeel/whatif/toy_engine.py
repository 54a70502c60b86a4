"""An engine that takes each step by itself, and what the store would have of its work."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from evenkeel.whatif.batching import BatchLimits, StepSpeed, Task

ORIGIN = {"model": "m", "service": "s", "instance": "i", "engine": 0}
# Fixed 10 ms, 1 ms per request, 1 us per context token; with prompts 20 ms, and 1 ms per token.
SPEED = StepSpeed((0.010, 0.001, 1e-6, 0.0005), (0.020, 0.001, 1e-6, 0.0005, 0.001, 1e-7))


@dataclass(slots=True)
class Served:
    """What an engine did.

    Attributes:
        busy_s: Seconds in steps.
        requests: Rows of `engine_requests`.
        runs: Rows of `engine_runs`.
    """

    busy_s: float = 0.0
    requests: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class _Seat:
    number: int
    task: Task
    computed: int
    left: int
    first_s: float = 0.0

    @property
    def is_decoding(self) -> bool:
        return self.computed >= self.task.prompt

    @property
    def context(self) -> int:
        return self.task.prompt + self.task.steps - self.left


def serve(
    tasks: Sequence[Task], limits: BatchLimits, speed: StepSpeed = SPEED, tenants: str = "a"
) -> Served:
    """Serve requests; their tenants are the letters of `tenants` in turn."""
    served = Served()
    now_s = 0.0
    coming = list(enumerate(tasks))
    waiting: list[_Seat] = []
    running: list[_Seat] = []
    while coming or waiting or running:
        while coming and coming[0][1].arrival_s <= now_s:
            number, task = coming.pop(0)
            waiting.append(_Seat(number, task, task.cached, task.steps))
        if not waiting and not running:
            now_s = coming[0][1].arrival_s
            continue
        decoding = [seat for seat in running if seat.is_decoding]
        chunks: list[tuple[_Seat, int]] = []
        left = limits.budget - len(decoding)
        prefilling = [seat for seat in running if not seat.is_decoding]
        while left >= 1 and (prefilling or (waiting and len(running) < limits.seats)):
            seat = prefilling.pop(0) if prefilling else waiting.pop(0)
            if seat not in running:
                running.append(seat)
            size = int(min(seat.task.prompt - seat.computed, left))
            chunks.append((seat, size))
            left -= size
        seconds = _step_s(decoding, chunks, speed)
        served.runs.append(_run(now_s, seconds, decoding, chunks, len(running), len(waiting)))
        served.busy_s += seconds
        now_s += seconds
        for seat in decoding:
            seat.left -= 1
        for seat, size in chunks:
            seat.computed += size
            seat.first_s = now_s
        for seat in running:
            if seat.is_decoding and not seat.left:
                served.requests.append(_request(seat, now_s, tenants))
        running = [seat for seat in running if not seat.is_decoding or seat.left]
        now_s += speed.gap_s
    served.requests.sort(key=lambda row: float(row["time_s"]))
    return served


def some_tasks(chosen: random.Random, num: int, within_s: float = 8.0) -> list[Task]:
    """Return requests at random times."""
    times_s = sorted(chosen.uniform(0.0, within_s) for _ in range(num))
    return [
        Task(at_s, chosen.randint(2, 200), chosen.randint(0, 1), chosen.randint(0, 60))
        for at_s in times_s
    ]


def _step_s(decoding: list[_Seat], chunks: list[tuple[_Seat, int]], speed: StepSpeed) -> float:
    fixed, each, read = (speed.mixed if chunks else speed.decode)[:3]
    pairs = sum(size * (seat.computed + (size + 1) / 2) for seat, size in chunks)
    seconds = fixed + each * len(decoding) + read * sum(seat.context for seat in decoding)
    return seconds + speed.mixed[4] * sum(size for _, size in chunks) + speed.mixed[5] * pairs


def _run(
    now_s: float,
    seconds: float,
    decoding: list[_Seat],
    chunks: list[tuple[_Seat, int]],
    num_running: int,
    num_waiting: int,
) -> dict[str, Any]:
    return {
        **ORIGIN,
        "time_s": now_s,
        "duration_s": seconds,
        "busy_s": seconds,
        "num_steps": 1,
        "num_running": num_running,
        "num_waiting": num_waiting,
        "held_by": "seats" if num_waiting else "",
        "prefill_tokens": sum(size for _, size in chunks),
        "decode_tokens": len(decoding),
        "drafted_tokens": 0,
        "num_preempted": 0,
        "blocks_live": 0,
        "blocks_total": math.ceil(1e6),
        "prefilling_request_id": [f"r{seat.number}" for seat, _ in chunks],
        "prefilling_tokens": [size for _, size in chunks],
    }


def _request(seat: _Seat, end_s: float, tenants: str) -> dict[str, Any]:
    task = seat.task
    return {
        "time_s": task.arrival_s,
        "service": ORIGIN["service"],
        "request_id": f"r{seat.number}",
        "tenant": tenants[seat.number % len(tenants)],
        "input_tokens": task.prompt,
        "cached_tokens": task.cached,
        "output_tokens": task.steps + 1,
        "drafted_tokens": None,
        "accepted_tokens": None,
        "ttft_s": seat.first_s - task.arrival_s,
        "e2e_s": end_s - task.arrival_s,
    }
