"""How fast percentiles over a day of requests are, how exact, and what a million requests take.

Fills a store with requests spread over 24 hours, starts `evenkeel collect` on it, and asks over its
query port as a dashboard does. Prints a table and writes JSON.

    python bench/query.py                        # 20 million requests
    python bench/query.py --requests 200000      # a smoke run
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clickhouse_connect
import ingest

CHUNK = 1_000_000
# Beside the figures and not in /tmp, which may be memory: 20 million requests are some gigabytes.
FOLDER = Path("build/bench")
# One model's day, minute by minute, as the dashboard asks.
ROLLUP = """SELECT minute, quantilesTDigestMerge(0.5, 0.95, 0.99)(ttft_s) AS ttft_s
FROM requests_1m WHERE model = 'demo' GROUP BY minute ORDER BY minute"""
RAW = """SELECT toStartOfMinute(time) AS minute, quantilesExact(0.5, 0.95, 0.99)(ttft_s) AS ttft_s
FROM requests WHERE model = 'demo' GROUP BY minute ORDER BY minute"""
# Log-normal times to first token around 0.25 s with a long tail, four tenants, two prompt versions,
# prompts of 50 to 450 tokens of which half is cached now and then, 3 % errors.
FILL = """INSERT INTO requests (time, trace_id, span_id, service, request_id, model, tenant,
    slo_class, route, prompt_name, prompt_version, status, finish_reason, input_tokens,
    output_tokens,
    cached_tokens, queue_s, prefill_s, decode_s, ttft_s, tpot_s, itl_p50_s, itl_p99_s, stall_s,
    e2e_s, sample_weight)
WITH
    exp(randNormal(-3, 1)) AS queue, exp(randNormal(-1.6, 0.6)) AS prefill,
    toUInt32(20 + exp(randNormal(4, 0.7))) AS tokens, exp(randNormal(-4, 0.3)) AS gap,
    number % 33 = 0 AS has_failed
SELECT now64(9, 'UTC') - toIntervalMillisecond(intDiv(number * 86400000, {total})),
    lower(hex(sipHash128(number))), lower(hex(sipHash64(number))), 'fleet',
    concat('chatcmpl-', lower(hex(sipHash128(number, 1)))), 'demo',
    concat('tenant-', toString(number % 4)), 'chat', '/v1/chat/completions', 'support',
    if(number % 10 = 0, 'v2', 'v1'), if(has_failed, 'error', 'ok'), if(has_failed, 'error', 'stop'),
    50 + number % 400, tokens, if(number % 3 = 0, 25 + number % 200, 0), queue, prefill,
    tokens * gap, queue + prefill, gap, gap, gap * 3, gap * 5, queue + prefill + tokens * gap, 1
FROM numbers({first}, {count})
SETTINGS max_partitions_per_insert_block = 1000"""
PROGRAM = """
import sys, clickhouse_connect
from collector.storage import open_embedded
from pathlib import Path
storage = open_embedded(Path(sys.argv[1]))
client = storage.connect()
for statement in sys.stdin.read().split(";;"):
    client.command(statement)
"""


def fill(data_dir: Path, num_requests: int) -> None:
    """Write the requests into the store of a collector that does not run."""
    statements = [
        FILL.format(total=num_requests, first=first, count=min(CHUNK, num_requests - first))
        for first in range(0, num_requests, CHUNK)
    ]
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(data_dir / "store")],
        input=";;".join(statements), text=True, check=True,
    )  # fmt: skip


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
    return max(
        abs(values[2] - exact[minute]) / exact[minute]
        for minute, values in rollup.result_rows
        if exact.get(minute)
    )


def query_while_ingesting(client: Any, url: str, seconds: float) -> list[float]:
    """Return how long the rollup query takes while one sender sends as fast as it can."""
    bodies = [ingest.build_body(512, seed) for seed in range(8)]
    is_stopping = threading.Event()

    def load() -> None:
        while not is_stopping.is_set():
            ingest.send(url, bodies, 20)

    sender = threading.Thread(target=load)
    sender.start()
    deadline = time.monotonic() + seconds
    durations_s: list[float] = []
    while time.monotonic() < deadline:
        durations_s += timed_s(lambda: client.query(ROLLUP), 1)
        time.sleep(0.05)
    is_stopping.set()
    sender.join()
    return sorted(durations_s)


def run(num_requests: int, ingest_s: float) -> dict[str, float]:
    """Fill, start, ask."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="query-", dir=FOLDER) as folder:
        data_dir = Path(folder)
        begin_s = time.perf_counter()
        fill(data_dir, num_requests)
        fill_s = time.perf_counter() - begin_s
        command = [
            sys.executable, "-m", "evenkeel", "collect", "--json", "--data-dir", folder,
            "--http-port", "0", "--grpc-port", "0", "--query-port", "0",
        ]  # fmt: skip
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stdout is not None
            addresses = json.loads(process.stdout.readline())
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
        finally:
            process.terminate()
            process.wait(60)
    millions = num_requests / 1e6
    return {
        "requests": num_requests,
        "fill_s": fill_s,
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
    parser.add_argument(
        "--json", "--output", dest="output", type=Path, default=Path("build/bench/query.json")
    )
    args = parser.parse_args()
    figures = run(args.requests, args.ingest_s)
    for name, value in figures.items():
        print(f"  {name:32} {value:>14,.4g}")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(f"\n{args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
