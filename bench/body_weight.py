"""Measure what it costs to count bodies before they are parsed, and the worst that are accepted.

Counting: CPU microseconds per span at the door (`Signal.is_light`, and `weigh` where it is not).
Worst: CPU seconds and peak memory, beyond the body's own, of counting and parsing one body, each in
a process of its own.
"""

import argparse
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint

from bench.report import write_report
from bench.servers import describe_machine
from evenkeel.privacy.cpu_budget import OverBudgetError
from evenkeel_collector.intake.body_weight import TooManyError, weigh_protobuf
from evenkeel_collector.intake.otlp_body import check_protobuf
from evenkeel_collector.intake.otlp_json import check_json
from evenkeel_collector.intake.otlp_logs import check_logs_protobuf
from evenkeel_collector.intake.otlp_metrics import check_metrics_json, check_metrics_protobuf
from evenkeel_collector.intake.signals import PROTOBUF, SIGNALS
from tests.fixtures.otlp_payload import key_values, trace_request
from tests.hostile.dense_bodies import SPAN, wrap

TRACES = SIGNALS[0]
ATTRIBUTES = {f"name.{index}": "x" * 20 for index in range(10)}
SIZES = (64, 512, 1_000, 8_192)


def points(number: int) -> Any:
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    point = NumberDataPoint(as_double=1.5, time_unix_nano=1_700_000_000_000_000_000)
    point.attributes.extend(key_values({"model_name": "llama-3", "engine": "0", "pod": "gpu-17"}))
    metrics.add(name="vllm.requests").gauge.data_points.extend([point] * number)
    return request


WORST: Mapping[str, tuple[Callable[[bytes], object], Callable[[], bytes]]] = {
    "8 MiB of empty events": (check_protobuf, lambda: wrap(b"\x5a\0" * ((4 << 20) - 20), *SPAN)),
    "1,000,000 empty maps": (
        check_protobuf,
        lambda: wrap(b"\x0a\x02\x32\0" * 990_000, 0x2A, 0x12, 0x4A, *SPAN),
    ),
    "249,000 points": (check_metrics_protobuf, lambda: points(249_000).SerializeToString()),
    "70,000 points in JSON": (
        check_metrics_json,
        lambda: MessageToJson(points(70_000), indent=None).encode(),
    ),
    "200,000 empty spans in JSON": (
        check_json,
        lambda: b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * 200_000 + b"{}]}]}]}",
    ),
    "refused: 20 MiB of empty records": (
        check_logs_protobuf,
        lambda: wrap(b"\x12\0" * (10 << 20), 0x12, 0x0A),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    counting = {str(number): count_cost(number, args.runs) for number in SIZES}
    for number, (low, median, high) in counting.items():
        print(f"{number:>6} spans: {median:.2f} µs per span ({low:.2f} to {high:.2f})")
    worst = {name: in_own_process(name) for name in WORST}
    for name, (outcome, cpu_s, num_bytes, size) in worst.items():
        used = f"{cpu_s:6.2f} s {num_bytes / 1e6:6.0f} MB"
        print(f"{name:34} {size / 2**20:5.1f} MiB {outcome:9} {used}")
    report = {"machine": describe_machine(), "counting_us": counting, "worst": worst}
    write_report(args.json, report)


def count_cost(num_spans: int, num_runs: int) -> tuple[float, float, float]:
    """Return the least, median and most CPU microseconds per span."""
    body = trace_request(num_spans, ATTRIBUTES).SerializeToString()
    costs = []
    for _ in range(num_runs):
        began_s = time.thread_time()
        if not TRACES.is_light(PROTOBUF, body):
            TRACES.weigh(PROTOBUF, body)
        costs.append((time.thread_time() - began_s) / num_spans * 1e6)
    return min(costs), statistics.median(costs), max(costs)


def in_own_process(name: str) -> tuple[str, float, int, int]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(take, (name,))


def take(name: str) -> tuple[str, float, int, int]:
    """Return what became of a body, the CPU seconds, the bytes beyond its own, and its own."""
    check, build = WORST[name]
    body = build()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_s = time.process_time()
    outcome = "accepted"
    try:
        if check in (check_protobuf, check_logs_protobuf):
            weigh_protobuf(TRACES.request if check is check_protobuf else SIGNALS[2].request, body)
        elif check is check_metrics_protobuf:
            weigh_protobuf(SIGNALS[1].request, body)
        check(body)
    except (TooManyError, OverBudgetError):
        outcome = "refused"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return outcome, time.process_time() - began_s, (peak - before) * 1024, len(body)


if __name__ == "__main__":
    main()
