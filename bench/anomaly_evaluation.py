"""Measure the cost of the default rules on anomalies over stored requests. Prints, writes JSON.

    python bench/anomaly_evaluation.py --requests 10000000 --json build/bench/anomaly_cost.json

Requests are generated inside the store, spread evenly over nine days, of 2 models, 50 tenants and 2
routes: 200 cohorts, as many as a rule judges. Every evaluation reads the newest windows of all.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.report import write_report
from evenkeel.slo.file.anomalies import default_anomalies
from evenkeel_collector.slo.rule_evaluator import RuleEvaluator
from evenkeel_collector.slo.store import SloStore
from evenkeel_collector.store.storage import open_embedded

SECOND_NS = 10**9
DAYS = 9
PIECE = 1_000_000
INSERT = """
INSERT INTO requests (time, trace_id, span_id, service, request_id, model, tenant, route, status,
    finish_reason, e2e_s, input_tokens, output_tokens, reasoning_tokens, visible_tokens,
    repeated_share, tool_calls_failed, sample_weight)
SELECT fromUnixTimestamp64Nano(toInt64({from_ns:Int64} + (number * {step_ns:Float64})), 'UTC'),
    toString(number), toString(number), 'bench', toString(number),
    concat('model-', toString(rand(4) % 2)),
    concat('tenant-', toString(rand(5) % 50)),
    concat('route-', toString(rand(6) % 2)), 'ok', if(rand(7) % 50 = 0, 'length', 'stop'), 1,
    toUInt32(exp(6 + (rand(1) % 1000) / 500)), toUInt32(exp(4 + (rand(2) % 1000) / 500)),
    rand(3) % 200, 50, (rand(8) % 100) / 200, 0, 1
FROM numbers({first:UInt64}, {count:UInt64})
"""


def fill(client: Any, num: int, now_ns: int) -> float:
    """Insert requests over the last days; return how long it took."""
    began = time.monotonic()
    from_ns = now_ns - DAYS * 86400 * SECOND_NS
    for first in range(0, num, PIECE):
        client.command(
            INSERT,
            parameters={
                "from_ns": from_ns,
                "step_ns": (now_ns - from_ns) / num,
                "first": first,
                "count": min(PIECE, num - first),
            },
        )
    return time.monotonic() - began


def measure(client: Any, now_ns: int, cycles: int) -> dict[str, Any]:
    """Return the time of the cycles that read the past, and of those after."""
    failures: list[Exception] = []
    rules = [rule for rule in default_anomalies() if rule.name != "stalled-requests"]
    evaluator = RuleEvaluator(SloStore(client), failures.append)
    loading: list[float] = []
    first_s, at_ns = 0.0, now_ns
    while not loading or evaluator.is_loading:
        began = time.monotonic()
        evaluator.conditions(rules, {}, at_ns)
        took = time.monotonic() - began
        if first_s:
            loading.append(took)
        first_s = first_s or took
        at_ns += 5 * SECOND_NS
    took_s, cpu_s = [], []
    for _ in range(cycles):
        at_ns += 30 * SECOND_NS
        began, cpu = time.monotonic(), time.process_time()
        evaluator.conditions(rules, {}, at_ns)
        took_s.append(time.monotonic() - began)
        cpu_s.append(time.process_time() - cpu)
    if failures:
        raise failures[0]
    return {
        "cohorts": evaluator.num_cohorts,
        "first_cycle_s": first_s,
        "cycles_that_read_the_past": len(loading),
        "such_a_cycle_s": {"median": statistics.median(loading), "most": max(loading)},
        "reading_all_s": sum(loading),
        "evaluation_s": {"median": statistics.median(took_s), "most": max(took_s)},
        "cpu_s_of_an_evaluation": statistics.median(cpu_s),
        "share_of_a_core": statistics.median(cpu_s) / 30,
    }


def main() -> int:
    """Fill a store and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--cycles", type=int, default=30, help="evaluations after the past is read")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    args = parser.parse_args()
    # The newest requests end as the measurement ends.
    now_ns = time.time_ns()
    with tempfile.TemporaryDirectory() as folder:
        storage = open_embedded(Path(folder))
        client = storage.connect()
        filled_s = fill(client, args.requests, now_ns + (args.cycles + 5) * 30 * SECOND_NS)
        found = {
            "requests": args.requests,
            "days": DAYS,
            "fill_s": round(filled_s, 1),
            **measure(client, now_ns, args.cycles),
        }
        client.close()
        storage.close()
    print(json.dumps(found, indent=1))
    write_report(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
