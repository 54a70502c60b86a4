"""Takes a picture of every page of a running dashboard, light and dark, for docs/images/.

python bench/screenshots.py --url http://127.0.0.1:8501 --range 1h
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM_ARGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
SCHEMES = ("light", "dark")
WIDTHS = {"": 1440, "-narrow": 390}
PAGES = (
    ("health", "", {}),
    ("latency", "latency", {"by": "tenant"}),
    ("slo", "slo", {}),
    ("alerts", "alerts", {}),
    ("engine", "engine", {}),
    ("cache", "cache", {}),
    ("compare", "compare", {"measure": "e2e"}),
    ("explore", "explore", {"order": "ttft"}),
    ("evals", "evals", {}),
)
COLOURS = (128, 64, 32, 16)
MAX_BYTES = 200_000
SETTLE_MS = 2_500
TIMEOUT_MS = 30_000
MAX_HEIGHT = 2_400


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8501", help="the dashboard")
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder to write")
    parser.add_argument("--range", default="1h", help="time range shown")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    parser.add_argument("--narrow", action="store_true", help="also 390 pixels wide")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    has_failed = False
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.chromium, args=CHROMIUM_ARGS)
        for suffix, width in WIDTHS.items() if args.narrow else [("", WIDTHS[""])]:
            for scheme in SCHEMES:
                for path in pictures(browser, args, scheme, width, suffix):
                    print(path)
                    has_failed |= not 0 < path.stat().st_size <= MAX_BYTES
        browser.close()
    return int(has_failed)


def pictures(
    browser: Browser, args: argparse.Namespace, scheme: str, width: int, suffix: str
) -> Iterator[Path]:
    slowest = None
    for name, path, choices in PAGES:
        query = urlencode({"range": args.range, "live": "off", **choices})
        with opened(browser, f"{args.url}/{path}?{query}", scheme, width) as page:
            yield take(page, args.out / f"{name}-{scheme}{suffix}.png", width)
            if name == "health":
                slowest = page.locator(".st-key-card-slowest a").first.get_attribute("href")
    if slowest is not None:
        with opened(browser, f"{args.url}/{slowest.removeprefix('./')}", scheme, width) as page:
            yield take(page, args.out / f"request-{scheme}{suffix}.png", width)


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
    # A palette instead of true colour: a quarter of the bytes, and nobody sees the difference.
    with Image.open(path) as picture:
        colourful = picture.convert("RGB")
    for colours in COLOURS:
        colourful.quantize(colours).save(path, optimize=True)
        if path.stat().st_size <= MAX_BYTES:
            break
    return path


if __name__ == "__main__":
    sys.exit(main())
