"""Measure how fast the dashboard's pages are in a real Chromium, over many stored requests.

Starts `evenkeel collect` on the store filled by bench/dashboard_store.py, keeps sending requests,
starts `evenkeel dashboard`, and measures: the first view of each page, a change of the range, how
late eight sessions refresh, and the bytes per refresh. Prints a table and writes JSON.

One of the eight sessions is a page in Chromium; the others are websocket clients that refresh like
a page but draw nothing. Eight users have eight computers, and eight Chromium pages next to server
and store on one machine would measure Chromium; that figure is printed, too. A new visitor has an
empty cache; the first view of a returning one is printed as well. A collector that has just started
recounts the period of its objectives, which takes half a minute of two cores here; the bench waits
for it unless `--at-start` is given. `queries` puts a proxy in front of the query port and prints
the queries of each page and of a change of range, and their times.

    python bench/dashboard_store.py             # once, some minutes: 20 million requests a day
    python bench/dashboard.py                   # all
    python bench/dashboard.py --only ranges     # one part: views, ranges, refresh or queries
"""

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from bench import dashboard_store
from bench.dashboard_processes import collect, serve_dashboard, started
from bench.dashboard_queries import Asked, noting
from bench.dashboard_sessions import sessions
from bench.report import write_report

CHROMIUM_ARGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
PATHS = ("", "latency", "slo", "alerts", "engine", "cache", "cost", "compare", "explore", "evals")
RANGES = ("last 15m", "last 1h", "last 6h", "last 24h")
TARGETS = {"first_view_s": 2.5, "range_p95_s": 1.0, "lag_p95_s": 1.0, "refresh_kb": 100.0}
PARTS = ("views", "ranges", "refresh", "queries")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=dashboard_store.STORE, help="the store")
    parser.add_argument("--only", choices=PARTS, help="measure this alone")
    parser.add_argument("--at-start", action="store_true", help="do not let the collector settle")
    parser.add_argument("--rate", type=float, default=50.0, help="requests a second meanwhile")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    parser.add_argument("--json", dest="out", type=Path, default=Path("build/bench/dashboard.json"))
    args = parser.parse_args()
    if not (args.store / "filled.json").exists():
        sys.exit(f"{args.store} is not filled: python bench/dashboard_store.py")
    stored = json.loads((args.store / "filled.json").read_text())["stored"]
    found = {"targets": TARGETS}
    if args.only and args.out.exists():
        found = json.loads(args.out.read_text(encoding="utf-8"))
    found["requests"] = stored
    with contextlib.ExitStack() as stack:
        platform = stack.enter_context(running(args.store, args.rate, args.at_start))
        url = platform.url
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=args.chromium, args=CHROMIUM_ARGS)
            # Once without counting: the first session of a process imports what all share.
            first_view(browser, f"{url}/")
            if args.only in (None, "views"):
                found |= views(browser, url, platform.addresses["query_url"])
            if args.only in (None, "ranges"):
                found |= ranges(browser, url)
            if args.only in (None, "refresh"):
                found |= refresh(browser, url)
            if args.only in (None, "queries"):
                found |= queries(browser, platform)
            browser.close()
    write_report(args.out, found)
    show(found)
    return 0


@dataclass(frozen=True, slots=True)
class Running:
    """The dashboard's URL, the collector's addresses, and the objectives of both."""

    url: str
    addresses: Mapping[str, str]
    slo_file: Path


@contextlib.contextmanager
def running(folder: Path, rate: float, at_start: bool = False) -> Iterator[Running]:
    """A collector, traffic into it, a dashboard over it."""
    slo_file = folder / "slos.yaml"
    with contextlib.ExitStack() as stack:
        began_ms = time.time_ns() // 1_000_000
        addresses = collect(stack, folder, "--slos", str(slo_file))
        traffic = ("simulate", "--live", "--rate", str(rate), "--duration", "20m")
        started(stack, *traffic, "--endpoint", addresses["http_url"])
        if not at_start:
            wait_until_evaluated(addresses["query_url"], began_ms)
        yield Running(serve_dashboard(stack, addresses, slo_file), addresses, slo_file)


def wait_until_evaluated(query_url: str, since_ms: int) -> None:
    """Return once the collector has evaluated its objectives for the first time."""
    sql = f"SELECT count() FROM evenkeel.slo_status WHERE toUnixTimestamp64Milli(time) > {since_ms}"
    for _ in range(300):
        if int(httpx.post(query_url, content=sql, timeout=60).text):
            return
        time.sleep(1)
    raise SystemExit("the collector did not evaluate its objectives within five minutes")


def views(browser: Browser, url: str, query_url: str) -> dict[str, Any]:
    """Return the seconds until each page is complete in a new session; medians of three."""
    sql = "SELECT request_id FROM evenkeel.requests WHERE time < now() ORDER BY time DESC LIMIT 1"
    newest = httpx.post(query_url, content=sql, timeout=60).text.strip()
    pages = {path or "health": f"{url}/{path}?live=off" for path in PATHS}
    pages["request"] = f"{url}/request?request_id={newest}"
    took: dict[str, list[float]] = {}
    for name, address in pages.items():
        took[name] = [first_view(browser, address) for _ in range(3)]
        print(f"{name}: {', '.join(f'{each:.2f}' for each in took[name])} s", file=sys.stderr)
    found = {"first_view_s": {name: round(statistics.median(s), 3) for name, s in took.items()}}
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    again = [first_view(context, pages["health"]) for _ in range(4)]
    context.close()
    return {**found, "returning_s": round(statistics.median(again[1:]), 3)}


def settle(page: Page) -> None:
    """Return once the page is worked out, and each of its charts is drawn."""
    # In each frame: a locator's own waiting looks again only every half second.
    page.wait_for_function(
        """() => {
          const app = document.querySelector('[data-testid=stApp]');
          const said = [...document.querySelectorAll('.ek-asof, .ek-title small')];
          const charts = [...document.querySelectorAll('[class*=st-key-chart-]')];
          return app?.dataset.testScriptState === 'notRunning'
            && (said.some((e) => e.textContent.includes('data as of'))
              || document.querySelector('.ek-why'))
            && charts.every((chart) => chart.querySelector('svg path'));
        }""",
        timeout=60_000,
    )


def first_view(visitor: Browser | BrowserContext, address: str) -> float:
    """Return the seconds until a page is complete, in a browser with an empty cache."""
    if isinstance(visitor, Browser):
        page = visitor.new_page(viewport={"width": 1440, "height": 900})
    else:
        page = visitor.new_page()
    began = time.perf_counter()
    page.goto(address)
    settle(page)
    took = time.perf_counter() - began
    page.close()
    return took


def ranges(browser: Browser, url: str) -> dict[str, Any]:
    """Return the seconds from the choice of a range until the page shows it, on Health."""
    took = [took_s for took_s, _ in changes_of_range(browser, url, 10)]
    return {"range_s": [round(s, 3) for s in took], "range_p95_s": round(quantile(took, 0.95), 3)}


def changes_of_range(
    browser: Browser, url: str, times: int
) -> Iterator[tuple[float, tuple[float, float]]]:
    """Yield how long each change of range took on Health, and when it began and ended."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{url}/?range=5m&live=off")
    settle(page)
    for _ in range(times):
        for name in RANGES:
            page.wait_for_timeout(300)
            page.get_by_role("combobox").first.click()
            option = page.get_by_role("option", name=name, exact=True)
            option.wait_for()
            param = f"range={name.removeprefix('last ')}"
            began = time.perf_counter()
            option.click()
            # The default is left out of the address.
            is_default = name == "last 1h"
            page.wait_for_url(lambda u, p=param, d=is_default: p in u or (d and "range=" not in u))
            settle(page)
            ended = time.perf_counter()
            yield ended - began, (began, ended)
    page.close()


def queries(browser: Browser, platform: Running) -> dict[str, Any]:
    """Return the queries of a first view of each page and of a change of range.

    `waited_s` is from the first query's begin to the last one's end: while a page is not drawn for
    want of the store.
    """
    with contextlib.ExitStack() as stack:
        noted_url, asked = stack.enter_context(noting(platform.addresses["query_url"]))
        addresses = {**platform.addresses, "query_url": noted_url}
        url = serve_dashboard(stack, addresses, platform.slo_file)
        first_view(browser, f"{url}/")
        found = {}
        for path in PATHS:
            # Longer than answers of the page before are kept.
            time.sleep(6)
            asked.clear()
            first_view(browser, f"{url}/{path}?live=off")
            found[path or "health"] = summary(asked)
        asked.clear()
        waited, took = [], []
        for took_s, (began, ended) in changes_of_range(browser, url, 3):
            of_change = [query for query in asked if began <= query.begin_s <= ended]
            took.append(took_s)
            waited.append(summary(of_change)["waited_s"])
    return {
        "queries": found,
        "range_waited_s": round(statistics.median(waited), 3),
        "range_noted_s": round(statistics.median(took), 3),
    }


def summary(asked: Sequence[Asked]) -> dict[str, float]:
    """Return how many queries there were, the time of the median and the longest, and of all."""
    took = sorted(query.took_s for query in asked)
    if not took:
        return {"number": 0, "median_s": 0.0, "longest_s": 0.0, "waited_s": 0.0}
    waited_s = max(query.end_s for query in asked) - min(query.begin_s for query in asked)
    figures = {"median_s": statistics.median(took), "longest_s": took[-1], "waited_s": waited_s}
    return {"number": len(took), **{name: round(value, 3) for name, value in figures.items()}}


def refresh(browser: Browser, url: str) -> dict[str, Any]:
    """Return how late refreshes are, and the bytes of each.

    In the sessions that draw nothing, from when a refresh was due until all of it had come; in a
    page, from when it showed that it asks, which a busy server may make later, until it was drawn.
    """
    with sessions(url, "range=15m", 7) as others:
        lags, sizes, num_shown = drawn_refreshes(browser, url, 1)
        for other in others:
            lags += other.lags_s[1:]
    assert len(lags) > 4 * num_shown, "the sessions without a browser did not refresh"
    in_browsers, _, _ = drawn_refreshes(browser, url, 8)
    return {
        "lag_p95_s": round(quantile(lags, 0.95), 3),
        "lag_8_browsers_p95_s": round(quantile(in_browsers, 0.95), 3),
        "refresh_kb": round(statistics.median(sizes) / 1000, 1),
        "num_refreshes": len(lags),
    }


def drawn_refreshes(
    browser: Browser, url: str, number: int
) -> tuple[list[float], list[float], int]:
    """Return the lags, the bytes per refresh, and how often the first page refreshed."""
    received = [0] * number
    pages = []
    for i in range(number):
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()

        def count(payload: str | bytes, i: int = i) -> None:
            received[i] += len(payload)

        page.on("websocket", lambda ws, count=count: ws.on("framereceived", count))
        page.goto(f"{url}/?range=15m")
        # The page refreshes automatically, so it is never settled for long.
        page.get_by_text("data as of").first.wait_for(timeout=60_000)
        page.evaluate(
            """() => {
              window.lags = [];
              const app = document.querySelector('[data-testid=stApp]');
              let asked = null;
              new MutationObserver(() => {
                if (app.dataset.testScriptState !== 'notRunning') asked ??= performance.now();
                else if (asked !== null) {
                  const begun = asked;
                  asked = null;
                  // Two frames later it is painted.
                  requestAnimationFrame(() => requestAnimationFrame(
                    () => window.lags.push((performance.now() - begun) / 1000)));
                }
              }).observe(app, {attributes: true, attributeFilter: ['data-test-script-state']});
            }"""
        )
        pages.append(page)
    before = list(received)
    # Not `time.sleep`: frames are counted while Playwright waits.
    pages[0].wait_for_timeout(40_000)
    found = [page.evaluate("() => window.lags") for page in pages]
    sizes = [
        (now - then) / max(1, len(lags))
        for now, then, lags in zip(received, before, found, strict=True)
    ]
    for page in pages:
        page.context.close()
    return [lag for lags in found for lag in lags[1:]], sizes, len(found[0])


def quantile(values: list[float], q: float) -> float:
    return float(numpy.quantile(values, q))


def show(found: dict[str, Any]) -> None:
    print(f"{found['requests']:,} requests stored, ingest running\n")
    print("| measured | value | target |\n|---|---|---|")
    for page, seconds in found.get("first_view_s", {}).items():
        print(f"| first view, {page} | {seconds:.2f} s | ≤ {TARGETS['first_view_s']} s |")
    for name, words, unit in (
        ("returning_s", "first view, health, returning visitor", "s"),
        ("range_p95_s", "change of range, p95", "s"),
        ("lag_p95_s", "lag of 8 sessions, p95", "s"),
        ("lag_8_browsers_p95_s", "the same, all 8 drawn by browsers on this machine, p95", "s"),
        ("refresh_kb", "a refresh", "kB"),
    ):
        if name in found:
            aim = f"≤ {TARGETS[name]:g} {unit}" if name in TARGETS else "–"
            print(f"| {words} | {found[name]:.2f} {unit} | {aim} |")
    if "queries" in found:
        print("\n| page | queries | median | longest | first to last |\n|---|---|---|---|---|")
        for page, figures in found["queries"].items():
            milliseconds = (f"{figures[f'{n}_s'] * 1e3:.0f} ms" for n in ("median", "longest"))
            waited = f"{figures['waited_s']:.2f} s"
            print(f"| {page} | {figures['number']} | {' | '.join(milliseconds)} | {waited} |")
        print(
            f"\nOf a change of range, {found['range_noted_s']:.2f} s with the proxy (median), "
            f"{found['range_waited_s']:.2f} s are from the first query to the last one's end."
        )


if __name__ == "__main__":
    sys.exit(main())
