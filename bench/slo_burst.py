"""Measure how long a receiver waits for 200 alerts of one cycle. Prints a table, writes JSON.

    python bench/slo_burst.py --slos 200 --requests 200000 --json build/bench/slo_burst.json

Real evaluation, gathering and delivery over an embedded store. There is one SLO per tenant, and all
tenants' requests turn bad at once, so each SLO pages. `--others` adds dead, slow and failing
receivers to the healthy one.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from bench.report import write_report
from evenkeel_collector.alerts.book import FILE_NAME, AlertBook
from evenkeel_collector.alerts.evidence_requests import EvidenceBook
from evenkeel_collector.slo import service as slo_service
from evenkeel_collector.slo.context import CollectorContext
from evenkeel_collector.store.storage import Storage, open_embedded
from tests.fixtures.alert_receiver import AlertReceiver, Answer, serve_alerts

SECOND_NS = 10**9
INSERT = """
INSERT INTO requests (time, trace_id, span_id, service, request_id, model, tenant, status,
    ttft_s, e2e_s, queue_s, prefill_s, decode_s, input_tokens, sample_weight)
SELECT fromUnixTimestamp64Nano(toInt64({to_ns:Int64} - number * {step_ns:Float64}), 'UTC'),
    toString(number), toString(number), 'bench', toString(number), 'm',
    concat('tenant-', toString(number % {tenants:UInt64})), 'ok',
    {ttft_s:Float64}, {ttft_s:Float64} + 0.5, {ttft_s:Float64} - 0.05, 0.05, 0.5, 100, 1
FROM numbers({count:UInt64})
"""
ALERTING = """\
apiVersion: evenkeel/v1
kind: Alerting
spec: {{receivers: [{receivers}]}}
"""
SLO = """\
---
apiVersion: openslo/v1
kind: SLO
metadata: {{name: slo-{number}}}
spec:
  indicator: {{metric: ttft, select: {{tenant: tenant-{number}}}}}
  objectives: [{{op: lte, value: 0.5, target: 0.99}}]
  timeWindow: [{{duration: 30d, isRolling: true}}]
"""


def fill(storage: Storage, num_requests: int, num_slos: int, ttft_s: float, span_s: float) -> None:
    """Insert requests of the last `span_s` seconds."""
    client = storage.connect()
    parameters = {
        "to_ns": time.time_ns() - 3 * SECOND_NS,
        "step_ns": span_s * SECOND_NS / num_requests,
        "tenants": num_slos,
        "ttft_s": ttft_s,
        "count": num_requests,
    }
    client.command(INSERT, parameters=parameters)
    client.close()


async def burst(args: argparse.Namespace, folder: Path, healthy: AlertReceiver) -> dict[str, Any]:
    """Let every SLO fire in one cycle and wait for its page."""
    storage = open_embedded(folder / "store")
    path = folder / "slos.yaml"
    stuck = threading.Event()
    try:
        fill(storage, args.requests, args.slos, 0.1, 6 * 3600.0)
        with (
            serve_alerts([Answer(500)] * 100_000) as failing,
            serve_alerts([Answer(held=stuck)] * 100_000) as slow,
        ):
            urls = {"healthy": healthy.url}
            if args.others:
                urls |= {"dead": "http://127.0.0.1:9/", "slow": slow.url, "failing": failing.url}
            receivers = ", ".join(
                f"{{name: {name}, url: '{url}', allowPrivate: true, severities: [page]}}"
                for name, url in urls.items()
            )
            slos = "".join(SLO.format(number=i) for i in range(args.slos))
            path.write_text(ALERTING.format(receivers=receivers) + slos)
            registry = CollectorRegistry()
            context = CollectorContext(
                storage.connect, folder, path, "http://127.0.0.1:8501", registry
            )
            service = slo_service.start(context)
            try:
                figures = await _measure(args, storage, folder, healthy, registry)
            finally:
                stuck.set()
                await service.close()
    finally:
        storage.close()
    return figures


async def _measure(
    args: argparse.Namespace,
    storage: Storage,
    folder: Path,
    healthy: AlertReceiver,
    registry: CollectorRegistry,
) -> dict[str, Any]:
    def num_cycles() -> float:
        return registry.get_sample_value("evenkeel_slo_evaluation_seconds_count") or 0.0

    while num_cycles() < 1:
        await asyncio.sleep(0.1)
    await asyncio.to_thread(fill, storage, args.slos * 200, args.slos, 2.0, 240.0)
    book = AlertBook(folder / FILE_NAME)
    evidence = EvidenceBook(book)
    deadline_s = time.monotonic() + args.limit_s
    arrived: dict[str, float] = {}
    updated: dict[str, float] = {}
    worst_cycle_s, at_cycle, since_s = 0.0, num_cycles(), time.monotonic()
    committed_s = None
    try:
        while time.monotonic() < deadline_s:
            await asyncio.sleep(0.1)
            now_s = time.time()
            if num_cycles() > at_cycle:
                worst_cycle_s = max(worst_cycle_s, time.monotonic() - since_s)
                at_cycle, since_s = num_cycles(), time.monotonic()
            if committed_s is None:
                first = book.connection.exec_driver_sql(
                    "SELECT min(created_ns) FROM outbox WHERE receiver = 'healthy'"
                ).scalar()
                committed_s = None if first is None else first / 1e9
            for received in healthy.accepted():
                if received.body["commonLabels"]["alertname"] != "SloBudgetBurn":
                    continue
                slo = received.body["commonLabels"]["slo"]
                arrived.setdefault(slo, now_s)
                if "bad_requests" in received.body["alerts"][0]["annotations"]:
                    updated.setdefault(slo, now_s)
            if len(arrived) == args.slos and not evidence.awaited():
                break
    finally:
        book.close()
    since = committed_s or 0.0
    late = sorted(at - since for at in arrived.values())
    return {
        "slos": args.slos,
        "pages_arrived": len(arrived),
        "last_page_s": round(late[-1], 2) if late else None,
        "median_page_s": round(late[len(late) // 2], 2) if late else None,
        "with_evidence": len(updated),
        "last_evidence_s": round(max(updated.values()) - since, 2) if updated else None,
        "longest_between_cycles_s": round(worst_cycle_s, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slos", type=int, default=200)
    parser.add_argument("--requests", type=int, default=200_000, help="good ones before")
    parser.add_argument("--others", action="store_true", help="add broken receivers")
    parser.add_argument("--limit-s", type=float, default=180.0)
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serve_alerts() as healthy:
        figures = asyncio.run(burst(args, Path(folder), healthy))
    for name, value in figures.items():
        print(f"{name:26} {value}")
    write_report(args.json, figures)
    last_s = figures["last_page_s"]
    is_good = figures["pages_arrived"] == args.slos and last_s is not None and last_s <= 15
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
