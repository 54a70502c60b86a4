"""Measure percentile queries over a day of requests: speed, accuracy, and size per million.

Fills a store with requests spread over 24 hours, starts `evenkeel collect` on it, and queries it
like a dashboard. Prints a table and writes JSON.

    python bench/query.py                        # 20 million requests
    python bench/query.py --requests 200000      # a smoke run
    python bench/query.py --store build/day --fill-s 500   # in pieces: run it until it measures
"""

import argparse
import contextlib
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import clickhouse_connect

from bench import ingest
from bench.dashboard_processes import collect
from bench.report import write_report
from evenkeel_collector.store.storage import open_embedded

CHUNK = 500_000
# Beside the figures and not in /tmp, which may be memory: 20 million requests are some gigabytes.
FOLDER = Path("build/bench")
# One model's day, minute by minute, as the dashboard asks.
ROLLUP = """SELECT minute, quantilesTDigestMerge(0.5, 0.95, 0.99)(ttft_s) AS ttft_s
FROM requests_1m WHERE model = 'demo' GROUP BY minute ORDER BY minute"""
RAW = """SELECT toStartOfMinute(time) AS minute, quantilesExact(0.5, 0.95, 0.99)(ttft_s) AS ttft_s
FROM requests WHERE model = 'demo' GROUP BY minute ORDER BY minute"""
# Log-normal times to first token around 0.25 s with a long tail, four tenants, two prompt versions,
# prompts of 50 to 450 tokens of which half is cached now and then, 3% errors.
FILL = """INSERT INTO requests (time, trace_id, span_id, service, request_id, model, tenant,
    slo_class, route, prompt_name, prompt_version, status, finish_reason, input_tokens,
    output_tokens,
    cached_tokens, queue_s, prefill_s, decode_s, ttft_s, tpot_s, itl_p50_s, itl_p99_s, stall_s,
    e2e_s, sample_weight)
WITH
    exp(randNormal(-3.0, 1.0)) AS queue, exp(randNormal(-1.6, 0.6)) AS prefill,
    toUInt32(20 + exp(randNormal(4.0, 0.7))) AS tokens, exp(randNormal(-4.0, 0.3)) AS gap,
    number % 33 = 0 AS has_failed
SELECT fromUnixTimestamp64Nano({end_ns} - intDiv(number * 86400000, {total}) * 1000000, 'UTC'),
    lower(hex(sipHash128(number))), lower(hex(sipHash64(number))), 'fleet',
    concat('chatcmpl-', lower(hex(sipHash128(number, 1)))), 'demo',
    concat('tenant-', toString(number % 4)), 'chat', '/v1/chat/completions', 'support',
    if(number % 10 = 0, 'v2', 'v1'), if(has_failed, 'error', 'ok'), if(has_failed, 'error', 'stop'),
    50 + number % 400, tokens, if(number % 3 = 0, 25 + number % 200, 0), queue, prefill,
    tokens * gap, queue + prefill, gap, gap, gap * 3, gap * 5, queue + prefill + tokens * gap, 1
FROM numbers({first}, {count})
SETTINGS max_partitions_per_insert_block = 1000, insert_deduplication_token = 'fill-{first}',
    deduplicate_blocks_in_dependent_materialized_views = 1,
    deduplicate_insert_select = 'force_enable',
    max_block_size = {count}, max_insert_threads = 1, max_threads = 1,
    min_insert_block_size_rows = 0, min_insert_block_size_bytes = 0"""


def fill(data_dir: Path, num_requests: int, seconds: float) -> int:
    """Write requests into the store of a stopped collector; resume an earlier attempt.

    Each piece is one block with a token of its own: one that was broken off is written again, once.
    Returns how many are there when the time is over.
    """
    begun_s = time.monotonic()
    end_file = data_dir / "end_ns"
    if not end_file.exists():
        data_dir.mkdir(parents=True, exist_ok=True)
        end_file.write_text(f"{time.time_ns()} {num_requests}")
    end_ns, total = map(int, end_file.read_text().split())
    if total != num_requests:
        raise SystemExit(f"{data_dir} is for {total} requests, not for {num_requests}")
    storage = open_embedded(data_dir / "store")
    client = storage.connect()
    there = int(client.query("SELECT count() FROM requests WHERE service = 'fleet'").first_row[0])
    for first in range(there - there % CHUNK, num_requests, CHUNK):
        if time.monotonic() - begun_s > seconds:
            return first
        count = min(CHUNK, num_requests - first)
        client.command(FILL.format(end_ns=end_ns, total=total, first=first, count=count))
        print(f"\r{first + count:,} of {num_requests:,}", end="", file=sys.stderr, flush=True)
    while client.query("SELECT count() FROM system.merges").first_row[0]:
        time.sleep(0.5)
    return num_requests


def timed_s(run: Callable[[], Any], times: int) -> list[float]:
    durations_s = []
    for _ in range(times):
        begin_s = time.perf_counter()
        run()
        durations_s.append(time.perf_counter() - begin_s)
    return sorted(durations_s)


def worst_error_ratio(rollup: Any, raw: Any) -> float:
    """Return the largest relative error of p99 over the minutes."""
    exact = {minute: values[2] for minute, values in raw.result_rows}
    errors = (
        abs(values[2] - exact[minute]) / exact[minute]
        for minute, values in rollup.result_rows
        if exact.get(minute)
    )
    return float(max(errors))


def send_until_ended(url: str) -> None:
    """Send as fast as the collector takes it, until this process is ended."""
    bodies = [ingest.build_body(512, seed) for seed in range(8)]
    while True:
        ingest.send(url, bodies, 20)


def query_while_ingesting(client: Any, url: str, seconds: float) -> list[float]:
    """Return how long the rollup query takes while one sender sends as fast as it can."""
    # A separate process: a thread here would delay the query's answer.
    sender = multiprocessing.get_context("spawn").Process(
        target=send_until_ended, args=(url,), daemon=True
    )
    sender.start()
    before = stored(client)
    while stored(client) == before:
        if not sender.is_alive():
            raise SystemExit("the sender ended before anything was stored")
        time.sleep(0.1)
    deadline = time.monotonic() + seconds
    durations_s: list[float] = []
    while time.monotonic() < deadline:
        durations_s += timed_s(lambda: client.query(ROLLUP), 1)
        time.sleep(0.05)
    sender.terminate()
    sender.join()
    return sorted(durations_s)


def stored(client: Any) -> int:
    return int(client.query("SELECT count() FROM spans").first_row[0])


def run(num_requests: int, ingest_s: float, store: Path | None, fill_s: float) -> dict[str, float]:
    """Fill, start and query; return None if there was not enough time to fill."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = str(
            store or stack.enter_context(tempfile.TemporaryDirectory(prefix="query-", dir=FOLDER))
        )
        # A separate process, since a process can open a store only once.
        filled = subprocess.run(
            [sys.executable, __file__, "--fill-only", "--store", folder, "--fill-s", str(fill_s),
             "--requests", str(num_requests)], check=False
        )  # fmt: skip
        if filled.returncode:
            raise SystemExit(filled.returncode)
        addresses = collect(stack, Path(folder))
        client = clickhouse_connect.get_client(
            dsn=addresses["query_url"], database="evenkeel", settings={"max_threads": 1}
        )
        rollup, raw = client.query(ROLLUP), client.query(RAW)
        rollup_s = timed_s(lambda: client.query(ROLLUP), 15)
        raw_s = timed_s(lambda: client.query(RAW), 3)
        sizes = dict(
            client.query(
                "SELECT table, sum(bytes_on_disk) FROM system.parts"
                " WHERE database = 'evenkeel' AND active GROUP BY table"
            ).result_rows
        )
        busy_s = query_while_ingesting(client, addresses["http_url"], ingest_s)
        client.close()
    millions = num_requests / 1e6
    return {
        "requests": num_requests,
        "minutes": len(rollup.result_rows),
        "rollup_p50_ms": statistics.median(rollup_s) * 1e3,
        "rollup_max_ms": rollup_s[-1] * 1e3,
        "exact_p50_ms": statistics.median(raw_s) * 1e3,
        "worst_p99_error_percent": worst_error_ratio(rollup, raw) * 100,
        "rollup_p50_ms_while_ingesting": statistics.median(busy_s) * 1e3,
        "rollup_p95_ms_while_ingesting": busy_s[int(len(busy_s) * 0.95)] * 1e3,
        "requests_mib_a_million": sizes["requests"] / 2**20 / millions,
        "rollups_mib_a_million": (sizes["requests_1m"] + sizes["requests_1h"]) / 2**20 / millions,
    }


def main() -> int:
    """Run, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=20_000_000)
    parser.add_argument("--ingest-s", type=float, default=20)
    parser.add_argument("--store", type=Path, help="fill this folder and keep it")
    parser.add_argument("--fill-s", type=float, default=1e9, help="fill for so long, then exit 3")
    parser.add_argument("--fill-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--json", "--output", dest="output", type=Path, default=Path("build/bench/query.json")
    )
    args = parser.parse_args()
    if args.fill_only:
        there = fill(args.store, args.requests, args.fill_s)
        print(f"\n{there:,} of {args.requests:,} requests are there", file=sys.stderr, flush=True)
        os._exit(0 if there == args.requests else 3)
    figures = run(args.requests, args.ingest_s, args.store, args.fill_s)
    for name, value in figures.items():
        print(f"  {name:32} {value:>14,.4g}")
    write_report(args.output, figures)
    print(f"\n{args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
