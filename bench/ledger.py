"""Measure what ledgers cost outside the engine: microseconds per received step and per ledger.

Steps of a steady batch, ten per message, go through the reader's own code; no socket is involved.
"""

import argparse
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.report import write_report  # noqa: E402
from evenkeel_runtime.exporter.step_history import StepHistory  # noqa: E402
from evenkeel_runtime.exporter.step_reader import DEFAULT_MAX_BYTES, DEFAULT_MAX_REQUESTS  # noqa: E402
from evenkeel_runtime.ledger.attribution import DEFAULT_RIVALS, RequestTimes  # noqa: E402
from evenkeel_runtime.wire.steps import ENTRY, STEP, Arrived, decode_batches, encode_batch  # noqa: E402

STEP_NS = 5_000_000
STEPS_A_BATCH = 10
CALLS = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = [measure(batch, steps) for batch in (1, 32, 256) for steps in (100, 1000)]
    print(
        f"{'batch':>5} {'steps':>6} {'received, µs a step':>20} {'ledger, µs':>11} {'+ rivals':>9}"
    )
    for row in rows:
        print(
            f"{row['batch']:>5} {row['steps']:>6} {row['receive_us']:>20.1f} "
            f"{row['ledger_us']:>11.0f} {row['ledger_with_rivals_us']:>9.0f}"
        )
    machine = {"cores": os.cpu_count(), "machine": platform.machine()}
    write_report(args.json, machine | {"rows": rows})
    return 0


def measure(batch: int, steps: int) -> dict[str, Any]:
    history = StepHistory(DEFAULT_MAX_BYTES, DEFAULT_MAX_REQUESTS)
    events = [Arrived(number, 0, 100, f"cmpl-{number}-0-deadbeef") for number in range(batch)]
    history.add(decode_batches([encode_batch(0, 0, 0, [], [], events)])[0][0])
    times_us = []
    for sequence in range(1, steps // STEPS_A_BATCH + 1):
        data = pack_batch(sequence, batch)
        start_ns = time.perf_counter_ns()
        history.add(decode_batches([data])[0][0])
        times_us.append((time.perf_counter_ns() - start_ns) / 1e3 / STEPS_A_BATCH)
    end_ns = (steps + STEPS_A_BATCH) * STEP_NS
    times = RequestTimes(0, end_ns, STEP_NS, end_ns)
    ledger_us: dict[int, list[float]] = {0: [], DEFAULT_RIVALS: []}
    for _ in range(CALLS):
        for max_rivals, calls_us in ledger_us.items():
            start_ns = time.perf_counter_ns()
            request = history.find_request("cmpl-0-0", times, 1)
            assert request is not None
            history.charge(times, request, max_rivals)
            calls_us.append((time.perf_counter_ns() - start_ns) / 1e3)
    return {
        "batch": batch,
        "steps": steps,
        "receive_us": statistics.median(times_us),
        "ledger_us": statistics.median(ledger_us[0]),
        "ledger_with_rivals_us": statistics.median(ledger_us[DEFAULT_RIVALS]),
    }


def pack_batch(sequence: int, batch: int) -> bytes:
    steps, entries = [], []
    for i in range(STEPS_A_BATCH):
        number = sequence * STEPS_A_BATCH + i
        start_ns = number * STEP_NS
        end_ns = start_ns + STEP_NS - number % 7 * 100_000
        state = (batch, 0, 0, 0, 0, 0, 1000, 500, 500)
        steps.append(STEP.pack(number, start_ns, end_ns, 0, 0, batch, 0, 0, *state, batch, 0))
        entries += [ENTRY.pack(n, 100 + number, 0, 0, 1, 0, 0, 1, 0, 0) for n in range(batch)]
    return encode_batch(0, sequence, 0, steps, entries, [])


if __name__ == "__main__":
    sys.exit(main())
