"""Measure how fast the page Cost is in a real Chromium, over many stored requests with prices.

Fills a store as bench/dashboard_store.py does, prices its requests with `evenkeel prices reprice`,
starts `evenkeel collect --prices` and the dashboard on it, and measures the first view of Cost in
new sessions, for several ranges. Also checks that the page's query and `evenkeel export costs` add
up to the requests. Prints a table and writes JSON.

    python bench/cost_page.py                       # 20 million requests a day: some minutes once
    python bench/cost_page.py --requests 200000     # a smoke run
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import sync_playwright

from bench import dashboard_store
from bench.dashboard import CHROMIUM_ARGS, first_view
from bench.dashboard_processes import collect, serve_dashboard
from bench.report import write_report
from evenkeel_collector.store.data_folder import hold

TARGET_S = 2.5
RANGES = ("1h", "24h", "7d")
PRICES = """
currency = "USD"
[[model]]
name = "model-0"
input = 2
cached_input = 0.5
output = 8
source = "made up for this measurement"
read = 2026-11-25
[[model]]
name = "model-*"
input = 1
cached_input = 0.25
output = 4
source = "made up for this measurement"
read = 2026-11-25
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("build/bench/cost_page"))
    parser.add_argument("--requests", type=int, default=dashboard_store.REQUESTS_A_DAY)
    parser.add_argument("--seconds", type=float, default=1800.0, help="most time to fill for")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    parser.add_argument("--json", dest="out", type=Path, default=Path("build/bench/cost_page.json"))
    args = parser.parse_args()
    found: dict[str, Any] = {"target_s": TARGET_S, "fill": prepare(args)}
    with contextlib.ExitStack() as stack:
        addresses = collect(stack, args.store, "--prices", str(args.store / "prices.toml"))
        query_url = addresses["query_url"]
        found |= sums(query_url)
        url = serve_dashboard(stack, addresses, args.store / "slos.yaml")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=args.chromium, args=CHROMIUM_ARGS)
            # Once without counting: the first session of a process imports what all share.
            first_view(browser, f"{url}/")
            views = {}
            for name in RANGES:
                address = f"{url}/cost?range={name}&live=off"
                took = [first_view(browser, address) for _ in range(5)]
                views[name] = {
                    "median_s": round(statistics.median(took), 3),
                    "worst_s": round(max(took), 3),
                }
            browser.close()
    found["first_view"] = views
    write_report(args.out, found)
    show(found)
    return 0


def prepare(args: argparse.Namespace) -> dict[str, float]:
    """Fill and price the store, unless that was done before; return the seconds of both."""
    args.store.mkdir(parents=True, exist_ok=True)
    price_file, done = args.store / "prices.toml", args.store / "priced.json"
    price_file.write_text(PRICES, encoding="utf-8")
    if done.exists():
        before: dict[str, float] = json.loads(done.read_text(encoding="utf-8"))
        return before
    began = time.monotonic()
    if not dashboard_store.fill(args.store, args.requests, args.seconds):
        sys.exit("not all requests are stored yet: run it again")
    # As a collector does at its first start.
    hold(args.store).release()
    filled = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "evenkeel", "prices", "reprice", str(price_file),
         "--data-dir", str(args.store)],
        check=True, stdout=sys.stderr,
    )  # fmt: skip
    took = {"fill_s": round(filled - began, 1), "reprice_s": round(time.monotonic() - filled, 1)}
    done.write_text(json.dumps(took), encoding="utf-8")
    return took


def sums(query_url: str) -> dict[str, float]:
    """Return the costs of requests, of their rollup, and of the export; they must be equal."""
    span = httpx.post(
        query_url, timeout=120,
        content="SELECT toUnixTimestamp(min(time)), count() FROM evenkeel.requests",
    ).text.split()  # fmt: skip
    costs = [
        float(
            httpx.post(query_url, timeout=120, content=f"SELECT sum(cost) FROM evenkeel.{t}").text
        )
        for t in ("requests", "requests_1m", "requests_1h")
    ]
    begin = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(int(span[0])))
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "evenkeel", "export", "costs", "--from", begin, "--to",
             "2100-01-01", "--format", "focus", "--out", f"{folder}/costs.csv", "--json",
             "--store-url", query_url],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        took_s = time.monotonic() - began
    exported = json.loads(done.stdout)["usage_cost"]
    assert max(*costs, exported) - min(*costs, exported) < 1e-9 * costs[0], (costs, exported)
    return {"requests": int(span[1]), "cost": costs[0], "export_s": round(took_s, 2)}


def show(found: dict[str, Any]) -> None:
    print(f"{found['requests']:,} requests stored, {found['cost']:,.0f} USD\n")
    print("| measured | median | worst of 5 | target |\n|---|---|---|---|")
    for name, took in found["first_view"].items():
        print(
            f"| first view, Cost, {name} | {took['median_s']:.2f} s | {took['worst_s']:.2f} s "
            f"| ≤ {TARGET_S} s |"
        )
    print(f"| `evenkeel export costs`, all, by day | {found['export_s']:.2f} s | | |")
    print(f"| `evenkeel prices reprice`, all | {found['fill']['reprice_s']:.1f} s | | |")


if __name__ == "__main__":
    sys.exit(main())
