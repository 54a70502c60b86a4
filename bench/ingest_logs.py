"""Measure the cost of a log record from the wire to the queryable row, beside that of a span.

Alternates collectors that get spans with collectors that get log records of the same size
(bench/ingest.py), and prints the ratio of their CPU per row.

    python bench/ingest_logs.py                                # the full run
    python bench/ingest_logs.py --records 20000 --rounds 1     # a smoke run
"""

import argparse
import random
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.ingest import SPAN_BYTES, SPANS, BodySeries, run
from bench.report import write_report

MAX_RATIO = 1.2


def build_body(num_records: int, seed: int) -> bytes:
    """Return an OTLP request of records of about 838 bytes each, a line of text in each."""
    rng = random.Random(seed)
    request = ExportLogsServiceRequest()
    resource_logs = request.resource_logs.add()
    resource_logs.resource.attributes.add(key="service.name").value.string_value = "bench"
    scope_logs = resource_logs.scope_logs.add()
    scope_logs.scope.name = "bench"
    now_ns = time.time_ns()
    for index in range(num_records):
        record = scope_logs.log_records.add(
            time_unix_nano=now_ns + index,
            observed_time_unix_nano=now_ns + index,
            severity_number=9,
            severity_text="INFO",
            trace_id=rng.randbytes(16),
            span_id=rng.randbytes(8),
        )
        record.body.string_value = (
            f"request {index} took {rng.random():.3f} s and gave {rng.randrange(999)} tokens"
        )
        number = 0
        while record.ByteSize() < SPAN_BYTES - 40:
            pair = record.attributes.add(key=f"bench.attribute.{number}")
            pair.value.string_value = f"{rng.getrandbits(64):016x}"
            number += 1
    return request.SerializeToString()


RECORDS = BodySeries("/v1/logs", "logs", build_body)


def main() -> int:
    """Run, print the table, write the JSON; exit 1 if a record was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--records-a-request", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--senders", type=int, default=2)
    parser.add_argument("--json", type=Path, default=Path("build/bench/ingest_logs.json"))
    args = parser.parse_args()
    rounds: list[dict[str, object]] = []
    ratios: list[float] = []
    is_exact = True
    for number in range(args.rounds):
        figures = {
            series.table: run(args.records, args.records_a_request, args.senders, series)
            for series in (SPANS, RECORDS)
        }
        for each in figures.values():
            is_exact &= each.stored == each.spans + 2 * args.records_a_request
        ratio = figures["logs"].cpu_us_a_span / figures["spans"].cpu_us_a_span
        ratios.append(ratio)
        rounds.append({"ratio": ratio, **{name: asdict(each) for name, each in figures.items()}})
        print(
            f"round {number + 1}: {figures['spans'].cpu_us_a_span:.1f} µs CPU a span, "
            f"{figures['logs'].cpu_us_a_span:.1f} a log record, {ratio:.2f} times"
        )
    ratios.sort()
    median = statistics.median(ratios)
    found = {"ratio": median, "ratios": ratios, "wanted_at_most": MAX_RATIO, "rounds": rounds}
    write_report(args.json, found)
    print(
        f"a log record costs {median:.2f} times a span ({ratios[0]:.2f} to {ratios[-1]:.2f}, "
        f"wanted at most {MAX_RATIO}); stored exactly once: {'yes' if is_exact else 'NO'}"
    )
    return 0 if is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
