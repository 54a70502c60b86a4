"""Microseconds that the step hook adds to one engine step.

vLLM's own scheduler and the recording one take turns, each scheduling the same decode batch and
taking back made-up tokens; no model runs. The records go to a reader in another process: batched,
as they are by default, and, as an upper bound, every step by itself.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

PROMPT_TOKENS = 64
INTERVALS_S = (0.05, 0.0)


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
                measure(Path(folder), size, interval_s, args.steps, args.pairs)
                for size in sizes
                for interval_s in INTERVALS_S
            ]
        finally:
            is_over.set()
            reader.join()
    print(
        f"{'batch':>5} {'sent':>10} {'vLLM µs':>9} {'hooked µs':>10}  hook µs: median (quartiles)"
    )
    for row in rows:
        low, mid, high = row["hook_us"]
        print(
            f"{row['batch']:>5} {'batched' if row['interval_s'] else 'every step':>10} "
            f"{row['vllm_us']:>9.1f} {row['hooked_us']:>10.1f}  {mid:.1f} ({low:.1f} to {high:.1f})"
        )
    if args.json:
        machine = {"cores": os.cpu_count(), "machine": platform.machine()}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(machine | {"rows": rows}, indent=2))
    return 0


def read_steps(address: str, is_over: Event) -> None:
    from runtime.step_reader import StepReader

    reader = StepReader(address)
    reader.start()
    is_over.wait()
    reader.close()


def measure(folder: Path, batch: int, interval_s: float, steps: int, pairs: int) -> dict[str, Any]:
    from vllm.v1.core.sched.scheduler import Scheduler

    from runtime.step_hook import LedgerScheduler
    from tests.integration import random_model
    from tests.integration.real_scheduler import build_scheduler

    os.environ["EVENKEEL_STEPS_INTERVAL_S"] = str(interval_s)
    model = folder / "model"
    if not model.exists():
        random_model.build(model, hidden=64, layers=1)
    boxes = [build_scheduler(cls, model, num_blocks=20_000) for cls in (Scheduler, LedgerScheduler)]
    for box in boxes:
        for i in range(batch):
            prompt = [3 + (i * 31 + j) % 500 for j in range(PROMPT_TOKENS)]
            box.add(f"cmpl-{i}-deadbeef", prompt, max_tokens=3900)
        run(box, 50)
    plain, hooked = [], []
    for pair in range(pairs):
        turns = ((boxes[0], plain), (boxes[1], hooked))
        for box, times_us in turns if pair % 2 else reversed(turns):
            times_us.append(run(box, steps))
    boxes[1].scheduler.shutdown()
    added = sorted(b - a for a, b in zip(plain, hooked, strict=True))
    return {
        "batch": batch,
        "interval_s": interval_s,
        "vllm_us": statistics.median(plain),
        "hooked_us": statistics.median(hooked),
        "hook_us": statistics.quantiles(added, n=4),
    }


def run(box: Any, steps: int) -> float:
    """Return the median microseconds of vLLM's and the hook's part of a step."""
    times_us = []
    for _ in range(steps):
        start_ns = time.perf_counter_ns()
        output = box.scheduler.schedule()
        scheduled_ns = time.perf_counter_ns()
        made = box.make_output(output)
        made_ns = time.perf_counter_ns()
        box.scheduler.update_from_output(output, made)
        end_ns = time.perf_counter_ns()
        times_us.append((end_ns - made_ns + scheduled_ns - start_ns) / 1e3)
    return statistics.median(times_us)


if __name__ == "__main__":
    sys.exit(main())
