"""Measure rotel, a collector in Rust, with the payload of bench/ingest.py and the same engine.

rotel is installed from PyPI into its own environment. It writes to a ClickHouse server, here chDB
behind ClickHouse's HTTP protocol (tests/fixtures/clickhouse_server.py), the engine that our
collector embeds. The CPU of both processes counts, like all of ours. It is measured with its own
table only, and with our store, so that it ends with the same spans, requests and rollups.
"""

import socket
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path

import clickhouse_connect
import httpx
import psutil
from clickhouse_connect.driver.client import Client

sys.path.insert(0, str(Path(__file__).parents[1]))

from evenkeel_collector.store.storage import SHORT_ANALYSIS, open_server
from tests.fixtures.clickhouse_server import clickhouse_server

# The table that the OpenTelemetry Collector's exporter, and rotel, write to.
TABLE = """CREATE TABLE otel.otel_traces (
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)), TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)), ParentSpanId String CODEC(ZSTD(1)),
    TraceState String CODEC(ZSTD(1)), SpanName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)), ScopeVersion String CODEC(ZSTD(1)),
    SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    Duration Int64 CODEC(ZSTD(1)), StatusCode LowCardinality(String) CODEC(ZSTD(1)),
    StatusMessage String CODEC(ZSTD(1)),
    Events Nested (Timestamp DateTime64(9), Name LowCardinality(String),
        Attributes Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    Links Nested (TraceId String, SpanId String, TraceState String,
        Attributes Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1
) ENGINE = MergeTree PARTITION BY toDate(Timestamp)
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))"""
# rotel names its table itself: what it writes there goes on to our spans, and to the views behind.
HANDED_ON = (
    TABLE.partition("INDEX")[0].rstrip(", \n") + ") ENGINE = Null",
    "CREATE MATERIALIZED VIEW otel.handed_on TO evenkeel.spans AS SELECT * FROM otel.otel_traces",
)
OWN_TABLE, OUR_STORE = TABLES = "otel.otel_traces", "evenkeel.spans"
START_TIMEOUT_S = 30
DRAIN_TIMEOUT_S = 300


def install(folder: Path) -> Path:
    """Return rotel's program, installed from PyPI if it is not there yet."""
    if not folder.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "pip", "install", "-q", "rotel"], check=True)
    (program,) = folder.glob("lib/python*/site-packages/rotel/rotel-agent")
    return program


def measure(
    program: Path,
    folder: Path,
    into: str,
    load: Callable[[str], int],
    warm_up: Callable[[str], int],
) -> dict[str, float]:
    """Return the CPU per span and the spans per second.

    Args:
        program: rotel.
        folder: Where to put the store.
        into: `OWN_TABLE` or `OUR_STORE`.
        load: Sends to an address and counts its spans.
        warm_up: The same, before.
    """
    store_port, http_port, grpc_port = (free_port() for _ in range(3))
    with clickhouse_server(store_port, folder / "store", SHORT_ANALYSIS) as server:
        if into == OUR_STORE:
            open_server(server.url).close()
        client = clickhouse_connect.get_client(dsn=server.url)
        client.command("CREATE DATABASE otel ENGINE = Atomic")
        for statement in HANDED_ON if into == OUR_STORE else (TABLE,):
            client.command(statement)
        process = subprocess.Popen(
            [
                program, "start", "--exporter", "clickhouse",
                "--clickhouse-exporter-endpoint", server.url,
                "--clickhouse-exporter-compression", "none",
                "--clickhouse-exporter-async-insert", "false",
                "--otlp-http-endpoint", f"127.0.0.1:{http_port}",
                "--otlp-grpc-endpoint", f"127.0.0.1:{grpc_port}",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            address = f"http://127.0.0.1:{http_port}"
            wait_listening(address)
            expected = warm_up(address)
            wait_stored(client, into, expected)
            assert server.pid is not None
            processes = [psutil.Process(process.pid), psutil.Process(server.pid)]
            cpu_before_s = sum(sum(each.cpu_times()[:2]) for each in processes)
            begin_s = time.perf_counter()
            num_spans = load(address)
            stored = wait_stored(client, into, expected + num_spans) - expected
            end_s = time.perf_counter()
            cpu_s = sum(sum(each.cpu_times()[:2]) for each in processes) - cpu_before_s
        finally:
            process.terminate()
            process.wait(30)
            client.close()
    return {
        "spans": num_spans,
        "stored": stored,
        "cpu_us_a_span": cpu_s / num_spans * 1e6,
        "spans_per_s": num_spans / (end_s - begin_s),
    }


def wait_stored(client: Client, table: str, num_spans: int) -> int:
    """Return the number of stored spans once it is `num_spans`, or at the timeout."""
    deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
    while True:
        stored = int(client.query(f"SELECT count() FROM {table}").first_row[0])
        if stored >= num_spans or time.monotonic() > deadline_s:
            return stored
        time.sleep(0.05)


def wait_listening(address: str) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            httpx.get(address)
            return
        except httpx.HTTPError:
            if time.monotonic() > deadline_s:
                raise SystemExit("rotel did not start") from None
            time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
