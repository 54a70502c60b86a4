"""Measure an evaluation cycle of many SLOs over stored requests. Prints a table, writes JSON.

    python bench/slo_evaluation.py --requests 20000000 --json build/bench/slo_cycle.json
    python bench/slo_evaluation.py --requests 20000000 --store build/slo --slos 0    # only fill
    python bench/slo_evaluation.py --requests 20000000 --store build/slo --select groups

Requests are generated inside the store, spread evenly over the last thirty days. Nothing burns, so
the cost of firing alerts is not included.
"""

import argparse
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.report import write_report
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.slo.evaluator import Evaluator
from evenkeel_collector.slo.store import SloStore
from evenkeel_collector.slo.track_updates import LONG_LOOK_EVERY_NS
from evenkeel_collector.store.storage import open_embedded

SECOND_NS = 10**9
PERIOD_S = 30 * 86400
INSERT = """
INSERT INTO requests (time, trace_id, span_id, service, request_id, model, tenant, status,
    ttft_s, tpot_s, itl_p99_s, stall_s, e2e_s, queue_s, prefill_s, decode_s, input_tokens,
    sample_weight)
SELECT fromUnixTimestamp64Nano(toInt64({from_ns:Int64} + (number * {step_ns:Float64})), 'UTC'),
    toString(number), toString(number), 'bench', toString(number),
    concat('model-', toString(number % 4)), concat('tenant-', toString(number % 200)),
    if(number % 500 = 0, 'error', 'ok'), 0.05 + (rand(1) % 1000) / 2500,
    0.02, 0.05, 0.1, 1 + (rand(2) % 1000) / 300, 0.01, 0.04, 1, rand(3) % 2000, 1
FROM numbers({first:UInt64}, {count:UInt64})
"""
SLO = """---
apiVersion: openslo/v1
kind: SLO
metadata: {{name: slo-{number}}}
spec:
  indicator: {{{indicator}, {select}}}
  objectives: [{{target: 0.95{value}}}]
  timeWindow: [{{duration: 30d, isRolling: true}}]
"""
# How SLOs choose their requests; `groups` is one SLO, for each of 200 tenants.
SELECTS = {
    "values": "select: {{model: model-{model}, tenant: tenant-{tenant}}}",
    "patterns": "select: {{tenant: {{matches: 'tenant-{tenant}.?', not: 'tenant-{tenant}'}}}}",
    "lists": "select: {{tenant: [tenant-{tenant}, tenant-1{tenant}, tenant-{number}]}}",
    "groups": "groupBy: [tenant]",
}
INDICATORS = (
    ("metric: ttft", ", value: 0.5"),
    ("metric: availability", ""),
    ("metric: e2e", ", value: 5"),
    ("all: {ttft: 0.5, tpot: 0.1, stall: 1}", ""),
)


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def fill(client: Any, num_requests: int, now_ns: int) -> None:
    step_ns = PERIOD_S * SECOND_NS / num_requests
    from_ns = now_ns - PERIOD_S * SECOND_NS
    # A day's worth at a time: an insert may touch a hundred partitions at most.
    chunk = max(num_requests // 30, 1)
    for first in range(0, num_requests, chunk):
        count = min(chunk, num_requests - first)
        client.command(
            INSERT,
            parameters={"from_ns": from_ns, "step_ns": step_ns, "first": first, "count": count},
        )


def measure(
    num_requests: int, num_slos: int, num_cycles: int, folder: Path, select: str
) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    storage = open_embedded(folder / "store")
    try:
        client = storage.connect()
        now_ns = time.time_ns()
        if client.command("SELECT count() FROM requests") == 0:
            fill(client, num_requests, now_ns)
        if not num_slos:
            return {"requests": num_requests}
        path = folder / "slos.yaml"
        texts = []
        for number in range(1 if select == "groups" else num_slos):
            indicator, value = INDICATORS[number % len(INDICATORS)]
            texts.append(
                SLO.format(
                    number=number,
                    indicator=indicator,
                    value=value,
                    select=SELECTS[select].format(
                        model=number % 4, tenant=number % 20, number=number
                    ),
                )
            )
        path.write_text("".join(texts))
        evaluator = Evaluator(
            read_slo_file(path), SloStore(client), AlertBook(folder / "alerts.db")
        )
        began = time.monotonic()
        verdicts = evaluator.cycle(now_ns)
        cold_s = time.monotonic() - began
        costs = []
        for cycle in range(1, num_cycles + 1):
            before = cpu_s()
            evaluator.cycle(now_ns + cycle * 5 * SECOND_NS)
            costs.append(cpu_s() - before)
        late_costs = []
        for cycle in range(num_cycles + 3, num_cycles + 15, 3):
            # As of an exporter that batches for 90 s.
            at_ns = now_ns + cycle * 5 * SECOND_NS
            late = {"from_ns": at_ns - 90 * SECOND_NS, "step_ns": 1e6, "first": 0, "count": 500}
            client.command(INSERT, parameters=late)
            before = cpu_s()
            evaluator.cycle(at_ns)
            late_costs.append(cpu_s() - before)
        before = cpu_s()
        evaluator.cycle(now_ns + LONG_LOOK_EVERY_NS + (num_cycles + 20) * 5 * SECOND_NS)
        long_look_s = cpu_s() - before
        return {
            "requests": client.command("SELECT count() FROM requests"),
            "select": select,
            "slos": len(verdicts),
            "slos_with_data": sum(verdict.has_data for verdict in verdicts.values()),
            "cold_start_s": round(cold_s, 2),
            "cycle_cpu_s_median": round(statistics.median(costs), 4),
            "cycle_cpu_s_max": round(max(costs), 4),
            "late_cycle_cpu_s_median": round(statistics.median(late_costs), 4),
            "long_look_cpu_s": round(long_look_s, 4),
        }
    finally:
        storage.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--slos", type=int, default=200)
    parser.add_argument("--select", choices=SELECTS, default="values")
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--store", type=Path, help="fill this folder, or reuse it if it is filled")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = args.store or Path(folder)
        figures = measure(args.requests, args.slos, args.cycles, kept, args.select)
    for name, value in figures.items():
        print(f"{name:24} {value}")
    write_report(args.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
