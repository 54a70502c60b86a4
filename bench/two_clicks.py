"""Times the two clicks from a burning SLO to its cause and to what limited the engine.

    evenkeel demo --exit-after 260s --data-dir build/demo --no-dashboard
    python bench/two_clicks.py --demo build/demo --json build/two_clicks.json

Opens Health of the demo's data in a headless Chromium of 1440 by 900 pixels, clicks an alert's top
cause, waits until the request's page says why and what would help, and clicks on to the engine.
Each step's time runs from the click until what it leads to is in view; prints the medians.
"""

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

from playwright.sync_api import Browser, sync_playwright

from bench.report import write_report
from bench.screenshots import CHROMIUM_ARGS, served

SIZE = {"width": 1440, "height": 900}
TIMEOUT_MS = 60_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, required=True, help="the folder of a demo that ended")
    parser.add_argument("--runs", type=int, default=5, help="walks, after one to warm up")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    with ExitStack() as stack:
        url, shown = stack.enter_context(served(args.demo))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=args.chromium, args=CHROMIUM_ARGS)
        address = f"{url}/?{urlencode({**shown, 'live': 'off'})}"
        walks = [walk(browser, address) for _ in range(args.runs + 1)][1:]
        browser.close()
    figures = {name: median(found[name] for found in walks) for name in walks[0]}
    for name, value in figures.items():
        print(f"{name:24} {value:.2f}")
    write_report(args.json, {"median": figures, "runs": walks})
    return 0


def walk(browser: Browser, address: str) -> dict[str, float]:
    """Walk once; seconds of each step, and the clicks."""
    page = browser.new_page(viewport=SIZE)
    begun = time.monotonic()
    page.goto(address)
    cause = page.locator(".st-key-card-alerts td.ek-wrap a").first
    cause.wait_for(timeout=TIMEOUT_MS)
    shown = time.monotonic()
    page.evaluate("() => { window.clicks = 0; addEventListener('click', () => window.clicks++) }")
    cause.click()
    page.locator(".ek-advice").wait_for(timeout=TIMEOUT_MS)
    explained = time.monotonic()
    page.locator(".ek-advice a").click()
    page.locator(".st-key-card-signs").wait_for(timeout=TIMEOUT_MS)
    ended = time.monotonic()
    clicks = page.evaluate("() => window.clicks")
    scrolled = page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollTop")
    page.close()
    return {
        "health_s": shown - begun,
        "to_cause_s": explained - shown,
        "to_engine_s": ended - explained,
        "whole_s": ended - begun,
        "clicks": float(clicks),
        "scrolled_px": float(scrolled),
    }


if __name__ == "__main__":
    sys.exit(main())
