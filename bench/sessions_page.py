"""Measure how fast the page Sessions is in a real Chromium, over a million stored sessions.

A day of 20 million requests in a million sessions of 20 turns, 200 of them at a time, with a tool
call for each twentieth request; and one session of 5,000 turns. Then `evenkeel collect` and
`evenkeel dashboard` run on it, and new visitors open the list over an hour and over a day, in the
orders that it offers, one session, and the long one. Prints a table and writes JSON.

    python bench/sessions_page.py --fill 500    # run it again until all is stored
    python bench/sessions_page.py
"""

import argparse
import contextlib
import json
import statistics
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from playwright.sync_api import sync_playwright

from bench import dashboard_store
from bench.dashboard import CHROMIUM_ARGS, first_view, running
from bench.report import write_report

STORE = Path("build/bench/sessions")
TARGET_S = 2.5
LONG_SESSION, LONG_TURNS = "session-long", 5_000
NUM_VIEWS = 3
# 200 sessions at a time, each of 20 requests.
_SESSION = "concat('session-', toString(number % 200 + 200 * intDiv(number, 4000)))"
REQUESTS = f"""INSERT INTO requests (time, trace_id, span_id, service, operation, request_id, model,
    tenant, session_id, session_source, slo_class, route, status, finish_reason, queue_s,
    prefill_s, decode_s, ttft_s, tpot_s, e2e_s, input_tokens, cached_tokens, output_tokens,
    recompute_s, prefix_evicted_s, cost, currency, sample_weight)
WITH
    exp(randNormal(-4.1, 1.2)) AS queue, exp(randNormal(-1.8, 0.6)) AS prefill,
    exp(randNormal(-1.5, 0.5)) AS decode, number % 33 = 0 AS has_failed,
    number % 7 = 0 AS is_evicted
SELECT
    fromUnixTimestamp64Nano(toInt64({{begin_ns}} + number * {{gap_ns}}), 'UTC'),
    lower(hex(sipHash128(number))), lower(hex(sipHash64(number))), 'fleet', 'chat',
    concat('chatcmpl-', lower(hex(sipHash64(number, 1)))), concat('model-', toString(number % 2)),
    concat('tenant-', toString(number % 200 % 6)), {_SESSION}, 'header',
    if(number % 5 = 0, 'batch', 'interactive'), 'checkout', if(has_failed, 'error', 'ok'),
    if(has_failed, 'error', 'stop'), queue, prefill, decode, queue + prefill, decode / 100,
    queue + prefill + decode, 50 + number % 900, 16 * (number % 4), 20 + number % 200,
    if(is_evicted, prefill / 2, 0), if(is_evicted, 0.1, NULL), 0.0001 * (number % 90), 'USD', 1
FROM numbers({{first}}, {{count}})
SETTINGS max_partitions_per_insert_block = 1000"""
TOOLS = f"""INSERT INTO session_tools (time, tenant, session_id, is_trace, kind, name, duration_s,
    status, service, trace_id, span_id, parent_span_id)
SELECT
    fromUnixTimestamp64Nano(toInt64({{begin_ns}} + number * {{gap_ns}}), 'UTC'),
    concat('tenant-', toString(number % 200 % 6)), {_SESSION}, 0, 'tool',
    concat('tool-', toString(number % 9)), exp(randNormal(-0.5, 1)), 'ok', 'agent', '',
    lower(hex(sipHash64(number, 2))), ''
FROM (SELECT number FROM numbers({{first}}, {{count}}) WHERE intDiv(number, 200) % 20 = 7)"""
# With the first piece; it ends when the filling began.
LONG = f"""INSERT INTO requests (time, trace_id, span_id, service, request_id, model, tenant,
    session_id, session_source, status, queue_s, prefill_s, decode_s, ttft_s, e2e_s, input_tokens,
    output_tokens, sample_weight)
SELECT
    fromUnixTimestamp64Nano(toInt64({{begin_ns}} + {dashboard_store.DAY_S} * 1000000000
        - 700000000 * ({LONG_TURNS} - number)), 'UTC'),
    lower(hex(sipHash128(number, 3))), lower(hex(sipHash64(number, 3))), 'fleet',
    concat('long-', toString(number)), 'model-0', 'tenant-0', '{LONG_SESSION}', 'header', 'ok',
    0.01, 0.1, 0.3, 0.11, 0.41, 1000 + number, 50, 1
FROM numbers({LONG_TURNS})
WHERE {{first}} + {{count}} * 0 + {{gap_ns}} * 0 = 0"""

INSERTS = (REQUESTS, TOOLS, LONG)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=STORE, help="the folder to keep")
    parser.add_argument("--requests", type=int, default=dashboard_store.REQUESTS_A_DAY)
    parser.add_argument("--fill", type=float, default=None, metavar="SECONDS",
                        help="store requests for this long, and measure nothing")  # fmt: skip
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second meanwhile")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    parser.add_argument("--json", dest="out", type=Path, default=Path("build/bench/sessions.json"))
    args = parser.parse_args()
    if args.fill is not None:
        is_full = dashboard_store.fill(args.store, args.requests, args.fill, INSERTS)
        print(json.loads((args.store / "filled.json").read_text())["stored"], "requests stored")
        return 0 if is_full else 1
    found = measure(args.store, args.rate, args.chromium)
    write_report(args.out, found)
    show(found)
    return 0


def measure(folder: Path, rate: float, chromium: str) -> dict[str, Any]:
    """Return the seconds until each view is complete in a new browser; medians of three."""
    with contextlib.ExitStack() as stack:
        platform = stack.enter_context(running(folder, rate))
        store_url = platform.addresses["query_url"]
        counts = counted(store_url)
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=chromium, args=CHROMIUM_ARGS
        )
        # Once without counting: the first session of a process imports what all share.
        first_view(browser, f"{platform.url}/")
        took = {}
        for name, parameters in views(store_url).items():
            address = f"{platform.url}/sessions?{urlencode({**parameters, 'live': 'off'})}"
            seconds = [first_view(browser, address) for _ in range(NUM_VIEWS)]
            took[name] = round(statistics.median(seconds), 3)
            print(f"{name}: {', '.join(f'{s:.2f}' for s in seconds)} s", file=sys.stderr)
        browser.close()
    return {**counts, "first_view_s": took, "target_s": TARGET_S}


def views(store_url: str) -> dict[str, dict[str, str]]:
    """Return the parameters of each view measured."""
    newest = store_rows(
        store_url,
        "SELECT session_id, tenant FROM session_parts WHERE num = 20 ORDER BY end DESC LIMIT 1",
    )[0]
    return {
        "list, last hour, slowest": {},
        "list, last hour, most recomputed": {"order": "recompute"},
        "list, last 24 hours, slowest": {"range": "24h"},
        "list, last 24 hours, most expensive": {"range": "24h", "order": "cost"},
        "list, last 24 hours, failed": {"range": "24h", "outcome": "failed"},
        "one session of 20 turns": {"session_id": newest[0], "of": newest[1]},
        f"one session of {LONG_TURNS:,} turns": {"session_id": LONG_SESSION, "of": "tenant-0"},
    }


def counted(store_url: str) -> dict[str, int]:
    """Return how many requests and sessions are stored."""
    ((requests,),) = store_rows(store_url, "SELECT count() FROM requests")
    ((sessions,),) = store_rows(store_url, "SELECT count() FROM sessions")
    return {"requests": int(requests), "sessions": int(sessions)}


def store_rows(store_url: str, sql: str) -> list[list[str]]:
    """Return a query's rows as text."""
    answer = httpx.post(
        store_url, params={"database": "evenkeel"}, content=f"{sql} FORMAT TSV", timeout=120
    )
    answer.raise_for_status()
    return [line.split("\t") for line in answer.text.splitlines()]


def show(found: dict[str, Any]) -> None:
    """Print the figures as a table."""
    print(f"{found['requests']:,} requests in {found['sessions']:,} sessions, ingest running\n")
    print("| measured | value | target |\n|---|---|---|")
    for name, seconds in found["first_view_s"].items():
        print(f"| first view, {name} | {seconds:.2f} s | ≤ {TARGET_S} s |")


if __name__ == "__main__":
    sys.exit(main())
