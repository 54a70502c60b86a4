"""Measure what a tenant's row filters and views cost, on the queries of dashboard pages.

    python bench/tenant_page.py --requests 1000000 --json build/tenant_page.json

Fills a store with a day of requests and spans of six tenants, and runs each query several times,
with access to all rows and as one tenant; prints the medians in milliseconds. The tenant has a
sixth of the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.dashboard_store import INSERT
from evenkeel.store import read_query
from evenkeel_collector.query.engine import Query, QueryEngine, QueryLimits
from evenkeel_collector.store.storage import open_embedded
from tests.queries import query

TENANT = "tenant-3"
CHUNK = 500_000
DAY_S = 86_400
NO_FILTER = {"model": "", "tenant": "", "prompt": "", "slo_class": ""}
LATENCY = {**NO_FILTER, "measure": "ttft", "definition": "ours", "dimension": "model",
           "one_in": "1", "column": "ttft_s", "step_s": "600",
           "cohorts": "['model-0', 'model-1']"}  # fmt: skip
PAGES = {
    "health, 24 h": ("range_contents_1m", "health_counts_1m", "health_percentiles_1m", "slo_now",
                     "alerts", "newest_in_range"),
    "health, 1 h": ("range_contents", "health", "slo_now", "alerts", "newest_in_range"),
    "latency, 24 h": ("latency_cohorts_1m", "latency_series_1m", "latency_heatmap_1m",
                      "newest_in_range"),
    "latency, 1 h": ("latency_cohorts", "latency_series", "latency_heatmap", "newest_in_range"),
    "requests, 1 h": ("slowest_requests",),
    "one request": ("request", "request_spans"),
    "an attribute of all spans": ("",),
}  # fmt: skip
ATTRIBUTE = "SELECT count() FROM spans WHERE SpanAttributes['gen_ai.request.model'] = 'model-1'"
SPANS = """INSERT INTO spans (Timestamp, TraceId, SpanName, ServiceName, SpanAttributes)
SELECT fromUnixTimestamp64Nano(toInt64({begin_ns} + number * {gap_ns}), 'UTC'),
    lower(hex(sipHash128(number))), 'chat', 'fleet',
    map('evenkeel.tenant', concat('tenant-', toString(number % 6)),
        'gen_ai.request.model', concat('model-', toString(number % 2)),
        'gen_ai.operation.name', 'chat', 'gen_ai.response.id', toString(number))
FROM numbers({first}, {count}) SETTINGS max_partitions_per_insert_block = 1000"""


def main() -> int:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        begin_ns = (time.time_ns() // 10**9 - DAY_S) * 10**9
        figures = _measure(Path(folder), begin_ns, args.requests, args.times)
    for name, figure in figures.items():
        print(f"{name:32} everybody {figure['everybody_ms']:8.1f} ms, "
              f"tenant {figure['tenant_ms']:8.1f} ms")  # fmt: skip
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        machine = {"machine": platform.machine(), "cores": os.cpu_count()}
        settings = {"requests": args.requests, "times": args.times}
        args.json.write_text(json.dumps({**machine, **settings, "pages": figures}, indent=2))
    return 0


def _measure(folder: Path, begin_ns: int, total: int, times: int) -> dict[str, dict[str, float]]:
    storage = open_embedded(folder)
    client = storage.connect()
    gap_ns = DAY_S * 10**9 // total
    for first in range(0, total, CHUNK):
        piece = {"begin_ns": begin_ns, "gap_ns": gap_ns, "first": first,
                 "count": min(CHUNK, total - first)}  # fmt: skip
        client.command(INSERT.format(**piece))
        client.command(SPANS.format(**piece))
    end_ms = begin_ns // 10**6 + DAY_S * 1000
    engine = QueryEngine(folder, QueryLimits())
    figures = {}
    for page, names in PAGES.items():
        hours = 1 if "1 h" in page else 24
        parameters = {
            **LATENCY, "from_ms": str(end_ms - hours * 3_600_000), "to_ms": str(end_ms),
            "before_ms": str(end_ms - 2 * hours * 3_600_000), "data_from_ms": "0",
            "rank_by": "ttft", "limit": "40",
            "names": "['gen_ai.operation.name', 'gen_ai.usage.input_tokens']",
            "trace_id": client.command("SELECT lower(hex(sipHash128(toUInt64(999))))"),
            "id": client.command("SELECT concat('chatcmpl-', lower(hex(sipHash64(999, 1))))"),
            "near_ms": str(begin_ns // 10**6),
        }  # fmt: skip
        figures[page] = {
            "everybody_ms": _median_ms(engine, names, parameters, None, times),
            "tenant_ms": _median_ms(engine, names, parameters, TENANT, times),
        }
    engine.close()
    client.close()
    storage.close()
    return figures


def _median_ms(
    engine: QueryEngine,
    names: tuple[str, ...],
    parameters: dict[str, str],
    tenant: str | None,
    times: int,
) -> float:
    took_ms = []
    for _ in range(times):
        begin_s = time.perf_counter()
        for name in names:
            sql = read_query(query(name)) if name else ATTRIBUTE
            engine.run(Query(sql, "evenkeel", {}, parameters, "Native", tenant))
        took_ms.append(1000 * (time.perf_counter() - begin_s))
    return statistics.median(took_ms)


if __name__ == "__main__":
    sys.exit(main())
