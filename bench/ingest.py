"""Measure the cost of a span from the wire to the queryable row, and the throughput.

Starts a real `evenkeel collect` in a temporary folder, sends OTLP/HTTP from another process, and
waits until every span can be queried. Prints a table and writes JSON.

    python bench/ingest.py                       # the full run
    python bench/ingest.py --rotel               # also rotel, on the same bodies
    python bench/ingest.py --spans 20000         # a smoke run
"""

import argparse
import http.client
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

import clickhouse_connect
import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.report import write_report

NUM_BODIES = 16
SPAN_BYTES = 838
READY_TIMEOUT_S = 60
DRAIN_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class BodySeries:
    """What is sent: the endpoint, the table it fills, and the maker of bodies."""

    path: str
    table: str
    build: Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Figures:
    """One run; CPU is that of the collector's process, user and system."""

    spans: int
    spans_a_request: int
    bytes_a_span: float
    senders: int
    cpu_us_a_span: float
    spans_per_s: float
    acknowledge_p50_s: float
    acknowledge_p99_s: float
    queryable_after_s: float
    resident_mib: float
    stored: int


def build_body(num_spans: int, seed: int) -> bytes:
    """Return an OTLP request of spans of about 838 bytes each, one in four an LLM request."""
    rng = random.Random(seed)
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.add(key="service.name").value.string_value = "bench"
    scope_spans = resource_spans.scope_spans.add()
    now_ns = time.time_ns()
    for index in range(num_spans):
        span = scope_spans.spans.add(
            trace_id=rng.randbytes(16),
            span_id=rng.randbytes(8),
            name="chat demo" if index % 4 == 0 else "evenkeel.decode",
            kind=2,
            start_time_unix_nano=now_ns + index,
            end_time_unix_nano=now_ns + index + 10_000_000,
        )
        if index % 4 == 0:
            span.attributes.add(key="evenkeel.status").value.string_value = "ok"
            span.attributes.add(key="gen_ai.request.model").value.string_value = "demo"
            span.attributes.add(key="evenkeel.ttft_s").value.double_value = rng.random()
            span.attributes.add(key="gen_ai.usage.input_tokens").value.int_value = 120
        number = 0
        while span.ByteSize() < SPAN_BYTES - 40:
            pair = span.attributes.add(key=f"bench.attribute.{number}")
            pair.value.string_value = f"{rng.getrandbits(64):016x}"
            number += 1
    return request.SerializeToString()


SPANS = BodySeries("/v1/traces", "spans", build_body)


def make_unique(body: bytes) -> bytes:
    """Return the request with an extra empty resource: identical bodies would count once."""
    extra = ExportTraceServiceRequest()
    attribute = extra.resource_spans.add().resource.attributes.add(key="bench.body")
    attribute.value.string_value = uuid.uuid4().hex
    return body + extra.SerializeToString()


def send(url: str, bodies: list[bytes], num_requests: int, path: str = SPANS.path) -> list[float]:
    """Send requests over one connection; return how long each took to be acknowledged."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    headers = {"content-type": "application/x-protobuf"}
    latencies_s = []
    for index in range(num_requests):
        body = make_unique(bodies[index % len(bodies)])
        begin_s = time.perf_counter()
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status == 503:
            time.sleep(float(answer.headers["retry-after"]))
            continue
        if answer.status != 200:
            raise SystemExit(f"the collector answered {answer.status}")
        latencies_s.append(time.perf_counter() - begin_s)
    return latencies_s


def run(
    num_spans: int,
    spans_a_request: int,
    num_senders: int,
    series: BodySeries = SPANS,
    checkout: Path | None = None,
) -> Figures:
    """Measure one collector, from start to drained: ours, or that of another checkout."""
    bodies = [series.build(spans_a_request, seed) for seed in range(NUM_BODIES)]
    num_requests = max(1, num_spans // spans_a_request // num_senders)
    with tempfile.TemporaryDirectory(prefix=f"ingest-{uuid.uuid4().hex[:6]}") as folder:
        command = [
            sys.executable, "-m", "evenkeel", "collect", "--json", "--data-dir", folder,
            "--http-port", "0", "--grpc-port", "0", "--query-port", "0",
        ]  # fmt: skip
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=None if checkout is None else {**os.environ, "PYTHONPATH": import_path(checkout)},
        )  # fmt: skip
        try:
            assert process.stdout is not None
            addresses = json.loads(process.stdout.readline())
            collector = psutil.Process(process.pid)
            client = clickhouse_connect.get_client(dsn=addresses["query_url"], database="evenkeel")
            send(addresses["http_url"], bodies, 2, series.path)  # warm-up
            wait_stored(client, 2 * spans_a_request, series.table)
            cpu_before = sum(collector.cpu_times()[:2])
            begin_s = time.perf_counter()
            with multiprocessing.Pool(num_senders) as pool:
                tasks = [(addresses["http_url"], bodies, num_requests, series.path)] * num_senders
                latencies_s = sorted(chain.from_iterable(pool.starmap(send, tasks)))
            sent_s = time.perf_counter()
            num_sent = len(latencies_s) * spans_a_request
            stored = wait_stored(client, num_sent + 2 * spans_a_request, series.table)
            end_s = time.perf_counter()
            cpu_s = sum(collector.cpu_times()[:2]) - cpu_before
            resident = collector.memory_info().rss
            client.close()
        finally:
            process.terminate()
            process.wait(30)
    return Figures(
        spans=num_sent,
        spans_a_request=spans_a_request,
        bytes_a_span=sum(map(len, bodies)) / len(bodies) / spans_a_request,
        senders=num_senders,
        cpu_us_a_span=cpu_s / num_sent * 1e6,
        spans_per_s=num_sent / (end_s - begin_s),
        acknowledge_p50_s=latencies_s[len(latencies_s) // 2],
        acknowledge_p99_s=latencies_s[int(len(latencies_s) * 0.99)],
        queryable_after_s=end_s - sent_s,
        resident_mib=resident / 2**20,
        stored=stored,
    )


def import_path(checkout: Path) -> str:
    """Return the import path of the collector of a checkout."""
    return f"{checkout}:{checkout / 'collector'}"


def run_rotel(
    into: str, num_spans: int, spans_a_request: int, num_senders: int
) -> dict[str, float]:
    """Measure rotel on the same bodies, sent in the same way; `into` is a table of its `TABLES`."""
    from bench import ingest_rotel

    bodies = [build_body(spans_a_request, seed) for seed in range(NUM_BODIES)]
    num_requests = max(1, num_spans // spans_a_request // num_senders)

    def load(url: str) -> int:
        with multiprocessing.Pool(num_senders) as pool:
            sent = pool.starmap(send, [(url, bodies, num_requests)] * num_senders)
        return sum(map(len, sent)) * spans_a_request

    program = ingest_rotel.install(Path("build/bench/rotel"))
    with tempfile.TemporaryDirectory(prefix="rotel-") as folder:
        return ingest_rotel.measure(
            program,
            Path(folder),
            into,
            load,
            lambda url: len(send(url, bodies, 2)) * spans_a_request,
        )


def wait_stored(client: object, num_spans: int, table: str = SPANS.table) -> int:
    """Return the number of a table's rows once it is `num_spans`, or at the timeout."""
    deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
    while True:
        found = client.query(f"SELECT count() FROM {table}")  # type: ignore[attr-defined]
        stored = int(found.first_row[0])
        if stored >= num_spans or time.monotonic() > deadline_s:
            return stored
        time.sleep(0.05)


def main() -> int:
    """Run, print the table, write the JSON; exit 1 if a span was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spans", type=int, default=2_000_000)
    parser.add_argument("--spans-a-request", type=int, nargs="+", default=[512, 64])
    parser.add_argument("--senders", type=int, default=2)
    parser.add_argument("--rotel", action="store_true", help="measure rotel too, from PyPI")
    parser.add_argument(
        "--json", "--output", dest="output", type=Path, default=Path("build/bench/ingest.json")
    )
    args = parser.parse_args()
    results = []
    is_exact = True
    for spans_a_request in args.spans_a_request:
        figures = run(args.spans, spans_a_request, args.senders)
        is_exact &= figures.stored == figures.spans + 2 * spans_a_request
        results.append(asdict(figures))
        print(f"\n{spans_a_request} spans a request")
        for name, value in asdict(figures).items():
            print(
                f"  {name:20} {value:>14,.4g}"
                if isinstance(value, float)
                else f"  {name:20} {value:>14,}"
            )
        if args.rotel:
            from bench.ingest_rotel import TABLES

            results[-1]["rotel"] = {}
            for into in TABLES:
                peer = run_rotel(into, args.spans, spans_a_request, args.senders)
                ratio = peer["cpu_us_a_span"] / figures.cpu_us_a_span
                results[-1]["rotel"][into] = {**peer, "cpu_ratio": ratio}
                print(
                    f"  rotel into {into}: {peer['cpu_us_a_span']:.4g} µs CPU a span, "
                    f"{ratio:.2f} times ours; {peer['spans_per_s']:,.0f} spans/s, "
                    f"{peer['stored']:,} of {peer['spans']:,}"
                )
    write_report(args.output, results)
    print(f"\n{args.output}; spans stored exactly once: {'yes' if is_exact else 'NO'}")
    return 0 if is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
