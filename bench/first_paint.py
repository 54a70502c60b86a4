"""How soon a browser shows something of the dashboard, and how soon the page's own sentence.

    python bench/first_paint.py --json build/first_paint.json

Starts a collector with simulated requests and a dashboard, and opens pages in headless Chromium,
each visit in a new browser profile, so that nothing is cached. Prints median and worst of the first
contentful paint (the skeleton), and of the moment the page has drawn its first own text.
"""

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from bench.dashboard_processes import collect, serve_dashboard, started
from bench.report import write_report

CHROMIUM_ARGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking".split()
PAGES = ("", "slo", "alerts", "explore")
SLOS = Path("slos.yaml")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visits", type=int, default=5, help="visits of each page")
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        addresses = collect(stack, Path(folder), "--slos", str(SLOS))
        simulation = started(
            stack, "simulate", "--endpoint", addresses["http_url"], "--requests", "1000",
            "--duration", "30m",
        )  # fmt: skip
        simulation.wait()
        url = serve_dashboard(stack, addresses, SLOS)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=args.chromium, args=CHROMIUM_ARGS)
        visit(browser, url)  # The server imports pandas and connects at the first visit.
        found = [visit(browser, f"{url}/{path}") for path in PAGES for _ in range(args.visits)]
        browser.close()
    names = ("first paint", "first sentence")
    result = {
        name: {"median_ms": round(statistics.median(v)), "worst_ms": round(max(v))}
        for name, v in zip(names, zip(*found, strict=True), strict=True)
    }
    for name, values in result.items():
        print(f"{name}: median {values['median_ms']} ms, worst {values['worst_ms']} ms, "
              f"{len(found)} visits")  # fmt: skip
    write_report(args.json, {"num_visits": len(found), **result})
    return 0


def visit(browser: Browser, url: str) -> tuple[float, float]:
    """Return when the first paint and the page's own text came, in milliseconds."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(url)
    page.get_by_text("data as of").first.wait_for(timeout=60_000)
    page.wait_for_function("performance.getEntriesByName('evenkeel-drawn').length > 0")
    times = page.evaluate(
        "() => ['first-contentful-paint', 'evenkeel-drawn'].map((name) =>"
        " performance.getEntriesByName(name)[0].startTime)"
    )
    context.close()
    return float(times[0]), float(times[1])


if __name__ == "__main__":
    raise SystemExit(main())
