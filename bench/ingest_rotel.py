"""rotel, a collector in Rust, on the payload of bench/ingest.py into the same engine.

rotel comes from PyPI into an environment of its own. It writes to a ClickHouse server; that is chDB
behind ClickHouse's HTTP protocol here (tests/integration/clickhouse_server.py), the engine that
our collector has inside. Both processes' CPU counts, as all of ours does.
"""

from __future__ import annotations

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

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.integration.clickhouse_server import clickhouse_server

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
    program: Path, folder: Path, load: Callable[[str], int], warm_up: Callable[[str], int]
) -> dict[str, float]:
    """Return CPU a span and spans a second; `load` sends to an address and counts its spans."""
    store_port, http_port, grpc_port = (free_port() for _ in range(3))
    with clickhouse_server(store_port, folder / "store") as server:
        client = clickhouse_connect.get_client(dsn=server.url)
        client.command("CREATE DATABASE otel ENGINE = Atomic")
        client.command(TABLE)
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
            wait_stored(client, expected)
            assert server.pid is not None
            processes = [psutil.Process(process.pid), psutil.Process(server.pid)]
            cpu_before_s = sum(sum(each.cpu_times()[:2]) for each in processes)
            begin_s = time.perf_counter()
            num_spans = load(address)
            stored = wait_stored(client, expected + num_spans) - expected
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


def wait_stored(client: clickhouse_connect.driver.client.Client, num_spans: int) -> int:
    deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
    while True:
        stored = int(client.query("SELECT count() FROM otel.otel_traces").first_row[0])
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
