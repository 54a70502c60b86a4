"""Take screenshots of every dashboard page for docs/images/, from data of the real runtime.

    evenkeel demo --exit-after 150s --data-dir build/demo
    python bench/screenshots.py --demo build/demo             # what docs/guide/dashboard.md shows
    python bench/screenshots.py --demo build/demo --review    # both themes and widths, for review

Starts a collector and a dashboard on what the demo left; `--url` takes a running dashboard instead.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from bench.dashboard_processes import collect, serve_dashboard
from evenkeel.times import rfc3339

CHROMIUM_ARGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
SCHEMES = ("light", "dark")
WIDTHS = {"": 1440, "-narrow": 390}
PAGES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("health", "", {}),
    ("latency", "latency", {"by": "tenant"}),
    ("slo", "slo", {}),
    ("alerts", "alerts", {}),
    ("engine", "engine", {}),
    ("cache", "cache", {}),
    ("compare", "compare", {"measure": "e2e", "a": "support@1", "b": "support@2"}),
    ("explore", "explore", {"order": "ttft"}),
    ("evals", "evals", {}),
    ("sessions", "sessions", {"order": "turns"}),
    ("cost", "cost", {}),
)
COLOURS = (256, 128, 96, 64)
MAX_BYTES = 150_000
IN_DARK = ("health", "request")
SHOWN_S = 300
SETTLE_MS = 2_500
TIMEOUT_MS = 30_000
MAX_HEIGHT = 2_400


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--demo", type=Path, metavar="DIR", help="the folder of a demo that ended")
    source.add_argument("--url", help="a running dashboard")
    parser.add_argument("--out", type=Path, help="folder to write (docs/images, or build/pages)")
    parser.add_argument("--range", default="1h", help="time range shown, with --url")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    parser.add_argument("--review", action="store_true", help="both themes, and 390 pixels wide")
    parser.add_argument("--pages", default="", help="only these, with commas")
    args = parser.parse_args()
    out = args.out or Path("build/pages" if args.review else "docs/images")
    out.mkdir(parents=True, exist_ok=True)
    has_failed = False
    with ExitStack() as stack:
        url, shown = args.url, {"range": args.range}
        if args.demo is not None:
            url, shown = stack.enter_context(served(args.demo))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=args.chromium, args=CHROMIUM_ARGS)
        addresses = pages_of(browser, url, {**shown, "live": "off"})
        for name, address in addresses.items():
            if args.pages and name not in args.pages.split(","):
                continue
            for scheme in SCHEMES:
                if scheme == "dark" and not args.review and name not in IN_DARK:
                    continue
                for suffix, width in WIDTHS.items() if args.review else [("", WIDTHS[""])]:
                    path = out / f"{name}-{scheme}{suffix}.png"
                    with opened(browser, address, scheme, width) as page:
                        take(page, path, width)
                    size = path.stat().st_size
                    print(f"{path} {size:,} bytes", flush=True)
                    has_failed |= not args.review and not 0 < size <= MAX_BYTES
        browser.close()
    return int(has_failed)


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A collector and a dashboard on a demo's folder; its URL, and its last minutes as a range."""
    price_file = folder / "prices.toml"
    prices = ["--prices", str(price_file)] if price_file.is_file() else []
    with ExitStack() as stack:
        slos = ("--slos", str(folder / "slos.yaml"), "--prompts-dir", "prompts", *prices)
        addresses = collect(stack, folder / "collector", *slos)
        url = serve_dashboard(stack, addresses, folder / "slos.yaml")
        sql = "SELECT toUnixTimestamp(min(time)), toUnixTimestamp(max(time)) FROM evenkeel.requests"
        found = httpx.post(addresses["query_url"], content=sql, timeout=60).text.split()
        end_s = int(found[1]) + 5
        shown_s = {"from": max(int(found[0]) - 5, end_s - SHOWN_S), "to": end_s}
        yield url, {name: rfc3339(s * 10**9, "seconds") for name, s in shown_s.items()}


def pages_of(browser: Browser, url: str, shown: dict[str, str]) -> dict[str, str]:
    """Return the address of each page; the request shown is the slowest one."""
    found = {name: f"{url}/{path}?{urlencode({**shown, **own})}" for name, path, own in PAGES}
    with opened(browser, found["health"], "light", WIDTHS[""]) as page:
        slowest = page.locator(".st-key-card-slowest a").first.get_attribute("href") or ""
    return {**found, "request": f"{url}/{slowest.removeprefix('./')}"}


@contextmanager
def opened(browser: Browser, url: str, scheme: str, width: int) -> Iterator[Page]:
    page = browser.new_page(
        color_scheme=scheme,  # type: ignore[arg-type]
        viewport={"width": width, "height": 900},
    )
    page.goto(url)
    page.get_by_text("data as of").first.wait_for(timeout=TIMEOUT_MS)
    page.wait_for_timeout(SETTLE_MS)
    if page.locator("[data-testid=stException]").count():
        sys.exit(f"{url} shows an exception: look at the dashboard's log")
    yield page
    page.close()


def take(page: Page, path: Path, width: int) -> Path:
    height = page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": width, "height": min(int(height) + 8, MAX_HEIGHT)})
    page.wait_for_timeout(SETTLE_MS // 2)
    page.screenshot(path=path)
    # A palette instead of true colour: a quarter of the bytes. Of the most important colours as
    # they are: a palette of averages gives a legend's swatches the colours of their neighbours.
    with Image.open(path) as picture:
        colourful = picture.convert("RGB")
    counted: list[tuple[int, Any]] = list(colourful.getcolors(2**24) or [])
    ranked = sorted(counted, key=_weight, reverse=True)
    for colours in COLOURS:
        palette = Image.new("P", (1, 1))
        palette.putpalette([part for _, colour in ranked[:colours] for part in colour])
        colourful.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)
        if path.stat().st_size <= MAX_BYTES:
            break
    return path


def _weight(counted: tuple[int, Any]) -> float:
    """How much a colour matters: by its pixels, and more if it is none of the greys of text."""
    number, colour = counted
    return number * (1 + (max(colour) - min(colour)) / 8)


if __name__ == "__main__":
    sys.exit(main())
