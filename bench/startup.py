"""Measure the seconds from `make demo` to the first request visible in the dashboard.

Uses the existing `.venv` by default; `--clean-clone` starts from a fresh clone, including the
installation, and also measures its size. Needs a Chromium on the PATH.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from bench.report import write_report

ROOT = Path(__file__).parents[1]
DASHBOARD_URL = "http://127.0.0.1:8501"
TIMEOUT_S = 900.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clean-clone", action="store_true")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = [measure(args.clean_clone) for _ in range(args.runs)]
    for result in results:
        print(json.dumps(result))
    write_report(args.json, {"cores": os.cpu_count(), "runs": results})
    return 0


def measure(is_clean: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-startup-") as folder:
        tree = ROOT
        if is_clean:
            tree = Path(folder) / "clone"
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tree)], check=True)
        began_s = time.monotonic()
        result: dict[str, Any] = {"clean_clone": is_clean}
        if is_clean:
            subprocess.run(["make", ".venv/.runtime-installed"], cwd=tree, check=True)
            result["install_s"] = round(time.monotonic() - began_s, 1)
            result["install_mb"] = round(size_bytes(tree / ".venv") / 1e6)
        demo = subprocess.Popen(
            ["make", "demo"], cwd=tree, start_new_session=True, stderr=subprocess.DEVNULL
        )
        try:
            wait_for_first_request(demo)
            result["first_request_visible_s"] = round(time.monotonic() - began_s, 1)
        finally:
            os.killpg(demo.pid, signal.SIGINT)
            demo.wait(60)
    return result


def wait_for_first_request(demo: subprocess.Popen[bytes]) -> None:
    """Return when the dashboard's first page shows at least one request."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            if demo.poll() is not None:
                raise SystemExit(f"the demo ended with code {demo.returncode}")
            if shows_a_request(browser):
                return
            time.sleep(0.5)
    raise SystemExit(f"no request was visible after {TIMEOUT_S} s")


def shows_a_request(browser: Browser) -> bool:
    page = browser.new_page()
    try:
        page.goto(DASHBOARD_URL, timeout=10_000)
        page.get_by_text("data as of").first.wait_for(timeout=10_000)
        return page.get_by_text("newest request").count() > 0
    except Exception as error:  # the page is not up yet, in one of many ways
        print(f"not yet: {str(error).splitlines()[0]}", file=sys.stderr)
        return False
    finally:
        page.close()


def size_bytes(folder: Path) -> int:
    return sum(p.stat().st_blocks * 512 for p in folder.rglob("*") if not p.is_symlink())


if __name__ == "__main__":
    sys.exit(main())
