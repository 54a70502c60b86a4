"""Measure the microseconds per engine step of the step hook, and of vLLM's scheduler.

vLLM's own scheduler and the recording one take turns at scheduling the same decode batch and
processing made-up tokens; no model runs. The hook's calls are timed directly, because the
difference of two schedulers is several times noisier. Records are sent to a reader in another
process, in batches as by default and, as an upper bound, one step at a time. A model would evict
the processor's caches: "cold" reads 64 MiB instead, before the step is scheduled and before its
output is processed.
"""

import argparse
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

from bench.report import write_report

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

PROMPT_TOKENS = 64
COLD_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Way:
    """How records are sent, and what is in the caches."""

    name: str
    interval_s: float
    is_cold: bool


WAYS = (
    Way("batched", 0.05, False),
    Way("batched, cold", 0.05, True),
    Way("every step", 0.0, False),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", default="1,32", help="requests a step (1,32)")
    parser.add_argument("--steps", type=int, default=200, help="steps a turn (200)")
    parser.add_argument("--pairs", type=int, default=9, help="turns of each scheduler (9)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ek-") as folder:
        address = f"ipc://{folder}/steps"
        os.environ |= {"EVENKEEL_STEPS_SOCKET": address, "HF_HUB_OFFLINE": "1"}
        context = multiprocessing.get_context("spawn")
        is_over = context.Event()
        reader = context.Process(target=read_steps, args=(address, is_over))
        reader.start()
        try:
            sizes = [int(size) for size in args.batches.split(",")]
            rows = [
                measure(Path(folder), size, way, args.steps, args.pairs)
                for size in sizes
                for way in WAYS
            ]
        finally:
            is_over.set()
            reader.join()
    print(f"{'batch':>5} {'sent':>13} {'vLLM µs':>9}  hook µs: median (quartiles)")
    for row in rows:
        low, mid, high = row["hook_us"]
        print(
            f"{row['batch']:>5} {row['way']:>13} {row['vllm_us']:>9.1f}  "
            f"{mid:.1f} ({low:.1f} to {high:.1f})"
        )
    machine = {"cores": os.cpu_count(), "machine": platform.machine()}
    write_report(args.json, machine | {"rows": rows})
    return 0


def read_steps(address: str, is_over: Event) -> None:
    from evenkeel_runtime.exporter.step_reader import StepReader

    reader = StepReader(address)
    reader.start()
    is_over.wait()
    reader.close()


def measure(folder: Path, batch: int, way: Way, steps: int, pairs: int) -> dict[str, Any]:
    from vllm.v1.core.sched.scheduler import Scheduler

    from evenkeel_runtime.adapter.scheduler import LedgerScheduler
    from tests.fixtures import random_model
    from tests.fixtures.real_scheduler import build_scheduler

    os.environ["EVENKEEL_STEPS_INTERVAL_S"] = str(way.interval_s)
    model = folder / "model"
    if not model.exists():
        random_model.build(model, hidden=64, layers=1)
    boxes = [build_scheduler(cls, model, num_blocks=20_000) for cls in (Scheduler, LedgerScheduler)]
    clock = watch(boxes[1].scheduler)
    for box in boxes:
        for i in range(batch):
            prompt = [3 + (i * 31 + j) % 500 for j in range(PROMPT_TOKENS)]
            box.add(f"cmpl-{i}-deadbeef", prompt, max_tokens=3900)
        run(box, 50, way.is_cold)
    vllm_us: list[float] = []
    hook_us: list[float] = []
    for pair in range(pairs):
        for box in boxes if pair % 2 else reversed(boxes):
            clock.spent_ns = 0
            took_us = run(box, steps, way.is_cold)
            if box is boxes[0]:
                vllm_us.append(took_us)
            else:
                hook_us.append(clock.spent_ns / steps / 1e3)
    boxes[1].scheduler.shutdown()
    return {
        "batch": batch,
        "way": way.name,
        "interval_s": way.interval_s,
        "vllm_us": statistics.median(vllm_us),
        "hook_us": statistics.quantiles(hook_us, n=4),
    }


@dataclass(slots=True)
class Clock:
    """What the hook's calls took so far."""

    spent_ns: int = 0

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call, its time added here."""

        def run_timed(*args: Any) -> Any:
            start_ns = time.perf_counter_ns()
            result = call(*args)
            self.spent_ns += time.perf_counter_ns() - start_ns
            return result

        return run_timed


def watch(scheduler: Any) -> Clock:
    """Time what a recording scheduler does besides vLLM's work."""
    from evenkeel_runtime.adapter import scheduler as step_hook
    from evenkeel_runtime.engine.recorder import count_emitted

    clock = Clock()
    recorder = scheduler._evenkeel_recorder
    recorder.record_scheduled = clock.timed(recorder.record_scheduled)
    recorder.record_completed = clock.timed(recorder.record_completed)
    vars(step_hook)["count_emitted"] = clock.timed(count_emitted)
    return clock


def run(box: Any, steps: int, is_cold: bool) -> float:
    """Return the mean microseconds of the scheduler's part of a step.

    Not the median: records are packed and sent in one step of many, which has to count.
    """
    memory = np.ones(COLD_BYTES // 8 if is_cold else 0, dtype=np.int64)
    spent_ns = 0
    for _ in range(steps):
        memory.sum()
        start_ns = time.perf_counter_ns()
        output = box.scheduler.schedule()
        scheduled_ns = time.perf_counter_ns()
        made = box.make_output(output)
        memory.sum()
        made_ns = time.perf_counter_ns()
        box.scheduler.update_from_output(output, made)
        spent_ns += time.perf_counter_ns() - made_ns + scheduled_ns - start_ns
    return spent_ns / steps / 1e3


if __name__ == "__main__":
    sys.exit(main())
