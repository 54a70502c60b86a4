"""How long a page of the dashboard takes, in a real Chromium, over many stored requests.

Fills a store with requests spread over 24 hours, starts `evenkeel collect` on it and keeps sending,
starts `evenkeel dashboard`, and measures: the first view of each page, a change of the range, how
late eight sessions refresh, and how many bytes a refresh takes. Prints a table and writes JSON.

    python bench/dashboard.py                        # 20 million requests
    python bench/dashboard.py --requests 200000      # a smoke run
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM_ARGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
PATHS = ("", "latency", "slo", "alerts", "engine", "cache", "compare", "explore", "evals")
RANGES = ("last 15m", "last 1h", "last 6h", "last 24h")
CHUNK = 1_000_000
TARGETS = {"first_view_s": 2.5, "range_p95_s": 1.0, "lag_p95_s": 1.0, "refresh_kb": 100.0}
SLOS = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat-ttft}
spec:
  service: chat
  indicator: {metric: ttft, select: {slo_class: interactive}}
  objectives: [{op: lte, value: 0.9, target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""
FILL = """INSERT INTO requests (time, trace_id, span_id, request_id, model, tenant, slo_class,
    route, prompt_name, prompt_version, status, queue_s, prefill_s, decode_s, ttft_s, tpot_s,
    itl_p99_s, stall_s, e2e_s, input_tokens, cached_tokens, output_tokens, sample_weight)
SELECT now64(9, 'UTC') - toIntervalNanosecond(toInt64(number * (86400e9 / {total}))),
    lower(hex(sipHash128(number))), lower(hex(sipHash64(number))),
    concat('chatcmpl-', lower(hex(sipHash64(number, 1)))),
    concat('model-', toString(number % 2)),
    concat('tenant-', toString(number % 6)), if(number % 5 = 0, 'batch', 'interactive'),
    '/v1/chat',
    concat('prompt-', toString(number % 3)), toString(1 + number % 2),
    if(number % 33 = 0, 'error', 'ok'),
    exp(randNormal(-4.1, 1.2)) AS q, exp(randNormal(-1.8, 0.6)) AS p,
    exp(randNormal(0.5, 0.7)) AS d,
    q + p, d / 100, d / 40, d / 20, q + p + d, 50 + number % 900, 16 * (number % 4),
    20 + number % 200, 1
FROM numbers({first}, {count})
SETTINGS max_partitions_per_insert_block = 1000"""
PROGRAM = """
import sys
from collector.storage import open_embedded
from pathlib import Path
client = open_embedded(Path(sys.argv[1])).connect()
for statement in sys.stdin.read().split(";;"):
    client.command(statement)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000_000, help="how many are stored")
    parser.add_argument("--rate", type=float, default=50.0, help="requests a second meanwhile")
    parser.add_argument("--store", type=Path, help="keep the filled folder here, or use it again")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    parser.add_argument("--out", type=Path, default=Path("bench/results/dashboard.json"))
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory())
        folder = args.store or Path(temporary)
        if not (folder / "store").exists():
            fill(folder, args.requests)
        url = stack.enter_context(running(folder, args.rate))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=args.chromium, args=CHROMIUM_ARGS)
            found = measure(browser, url)
            browser.close()
    found = {"requests": args.requests, **found, "targets": TARGETS}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    show(found)
    return 0


def fill(folder: Path, num_requests: int) -> None:
    """Write the requests into the store of a collector that does not run."""
    (folder / "store").mkdir(parents=True)
    statements = [
        FILL.format(total=num_requests, first=first, count=min(CHUNK, num_requests - first))
        for first in range(0, num_requests, CHUNK)
    ]
    program = [sys.executable, "-c", PROGRAM, str(folder / "store")]
    subprocess.run(program, input=";;".join(statements), text=True, check=True)


@contextlib.contextmanager
def running(folder: Path, rate: float) -> Iterator[str]:
    """A collector on the folder, traffic into it, and a dashboard over it: the dashboard's URL."""
    slo_file = folder / "slos.yaml"
    slo_file.write_text(SLOS, encoding="utf-8")
    with contextlib.ExitStack() as stack:
        collector = started(
            stack, "collect", "--json", "--data-dir", str(folder), "--http-port", "0",
            "--grpc-port", "0", "--query-port", "0", "--slos", str(slo_file),
        )  # fmt: skip
        assert collector.stdout is not None
        addresses = json.loads(collector.stdout.readline())
        traffic = ("simulate", "--live", "--rate", str(rate), "--duration", "20m")
        started(stack, *traffic, "--endpoint", addresses["http_url"])
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        started(
            stack, "dashboard", "--port", str(port), "--query-url", addresses["query_url"],
            "--collector-url", addresses["http_url"], "--slos", str(slo_file),
        )  # fmt: skip
        url = f"http://127.0.0.1:{port}"
        for _ in range(300):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{url}/_stcore/health").status_code == 200:
                    break
            time.sleep(0.2)
        yield url


def started(stack: contextlib.ExitStack, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "evenkeel", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def stop() -> None:
        process.send_signal(signal.SIGINT)
        process.communicate()

    stack.callback(stop)
    return process


def measure(browser: Browser, url: str) -> dict[str, Any]:
    views = {}
    # Once without counting: the first session of a process imports what all share.
    first_view(browser, url, "")
    for path in PATHS:
        views[path or "health"] = round(first_view(browser, url, path), 3)
    ranges = change_ranges(browser, url)
    lags, bytes_each = refresh(browser, url)
    return {
        "first_view_s": views,
        "range_s": [round(s, 3) for s in ranges],
        "range_p95_s": round(quantile(ranges, 0.95), 3),
        "lag_p95_s": round(quantile(lags, 0.95), 3),
        "refresh_kb": round(statistics.median(bytes_each) / 1000, 1),
        "num_refreshes": len(lags),
    }


def settle(page: Page) -> None:
    """Return once the page says how old its data is, and nothing of it is being worked out."""
    page.get_by_text("data as of").first.wait_for(timeout=60_000)
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for(timeout=60_000)


def first_view(browser: Browser, url: str, path: str) -> float:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    began = time.perf_counter()
    page.goto(f"{url}/{path}?live=off")
    settle(page)
    took = time.perf_counter() - began
    page.close()
    return took


def change_ranges(browser: Browser, url: str) -> list[float]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{url}/?range=5m&live=off")
    settle(page)
    took = []
    for _ in range(5):
        for name in RANGES:
            page.wait_for_timeout(300)
            page.get_by_role("combobox").first.click()
            option = page.get_by_role("option", name=name, exact=True)
            option.wait_for()
            param = f"range={name.removeprefix('last ')}"
            began = time.perf_counter()
            option.click()
            if name != "last 1h":
                page.wait_for_url(lambda u, param=param: param in u)
            settle(page)
            took.append(time.perf_counter() - began)
    page.close()
    return took


def refresh(browser: Browser, url: str) -> tuple[list[float], list[int]]:
    """Return how much later than due eight sessions refreshed, and the bytes of each refresh."""
    sizes = [0] * 8
    pages = []
    for i in range(8):
        page = browser.new_context().new_page()

        def count(payload: str | bytes, i: int = i) -> None:
            sizes[i] += len(payload)

        page.on("websocket", lambda ws, count=count: ws.on("framereceived", count))
        page.goto(f"{url}/?range=15m")
        # It is never settled for long: it reads again by itself.
        page.get_by_text("data as of").first.wait_for(timeout=60_000)
        page.evaluate(
            """() => {
              window.seen = [];
              let last = '';
              setInterval(() => {
                const text = document.querySelector('.ek-asof')?.innerText ?? '';
                if (text && text !== last) { last = text; window.seen.push(performance.now()); }
              }, 20);
            }"""
        )
        pages.append(page)
    before = list(sizes)
    # Not `time.sleep`: frames are counted while Playwright waits.
    pages[0].wait_for_timeout(40_000)
    lags: list[float] = []
    bytes_each = []
    for i, page in enumerate(pages):
        seen = page.evaluate("() => window.seen")
        gaps = [(b - a) / 1000 for a, b in pairwise(seen)]
        lags += [max(0.0, gap - 5.0) for gap in gaps[1:]]
        bytes_each.append((sizes[i] - before[i]) // max(1, len(gaps)))
        page.close()
    return lags, bytes_each


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def show(found: dict[str, Any]) -> None:
    print(f"{found['requests']:,} requests stored, ingest running\n")
    print("| measured | value | target |\n|---|---|---|")
    for page, seconds in found["first_view_s"].items():
        print(f"| first view, {page} | {seconds:.2f} s | ≤ {TARGETS['first_view_s']} s |")
    print(f"| change of range, p95 | {found['range_p95_s']:.2f} s | ≤ {TARGETS['range_p95_s']} s |")
    print(f"| lag of 8 sessions, p95 | {found['lag_p95_s']:.2f} s | ≤ {TARGETS['lag_p95_s']} s |")
    print(f"| a refresh | {found['refresh_kb']:.0f} kB | ≤ {TARGETS['refresh_kb']:.0f} kB |")


if __name__ == "__main__":
    sys.exit(main())
