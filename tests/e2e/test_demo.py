"""The whole platform as a user runs it: `evenkeel demo`, looked at in a real browser."""

import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from playwright.sync_api import Browser, expect

from evenkeel.store import Store
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_demo.parts import Ports
from evenkeel_demo.traffic import CROWD
from tests.checkout import ROOT
from tests.queries import query

pytestmark = pytest.mark.timeout(1500)

PICTURES = ROOT / "build" / "e2e"
REPORTED = {
    "requests", "errors", "cancelled", "ttft_s", "itl_s", "tokens_per_s", "cached_token_ratio",
    "acceptance_rate", "spans_stored", "query_url", "dashboard_url", "crowds",
    "phases",
}  # fmt: skip


def free_offset() -> int:
    """An offset that leaves all five ports free."""
    for offset in range(3000, 30_000, 117):
        ports = Ports(offset).as_dict().values()
        try:
            for port in ports:
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return offset
    raise AssertionError("no five free ports")


_started: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """A demo that a failed test leaves would go on beside all that follow."""
    num_before = len(_started)
    yield
    for process in _started[num_before:]:
        if process.poll() is None:
            process.kill()
            process.communicate()


def start_demo(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    with (folder / "stderr.txt").open("w") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "evenkeel", "demo", "--json", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
            # Started in the background, a test run ignores it, and so would its children.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
    _started.append(process)
    return process


def wait_until(what: Callable[[], bool], name: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {name}"
        time.sleep(0.2)


@dataclass(frozen=True, slots=True)
class Demo:
    """A running demo; `told` is what it has written for people so far."""

    process: subprocess.Popen[str]
    ports: Ports
    folder: Path

    def told(self) -> str:
        return (self.folder / "stderr.txt").read_text()

    def has_told(self, pattern: str) -> bool:
        assert self.process.poll() is None or re.search(pattern, self.told()), self.told()
        return re.search(pattern, self.told()) is not None

    @property
    def dashboard_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.dashboard}"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder, offset = tmp_path_factory.mktemp("demo"), free_offset()
    arguments = ("--exit-after", "75s", "--port-offset", str(offset))
    process = start_demo(folder, *arguments, "--data-dir", str(folder / "data"))
    yield Demo(process, Ports(offset), folder)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=600)


@pytest.fixture(scope="module")
def report(demo: Demo) -> dict[str, Any]:
    """What the demo printed at its end."""
    output, _ = demo.process.communicate(timeout=1200)
    assert demo.process.returncode == 0, demo.told()
    printed: dict[str, Any] = json.loads(output)
    return printed


def test_the_burning_objective_is_seen_in_the_browser(demo: Demo, browser: Browser) -> None:
    wait_until(lambda: demo.has_told(r"support-ttft firing \(page\)"), "the page", 600)
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(f"{demo.dashboard_url}/?range=15m")
    page.get_by_text("data as of").first.wait_for()
    expect(page.get_by_text("support-ttft").first).to_be_visible()
    expect(page.get_by_text("firing", exact=False).first).to_be_visible()
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / "burning.png")
    page.close()


def test_the_page_shows_the_numbers_of_the_store(demo: Demo, browser: Browser) -> None:
    to_ms = (int(time.time()) - 10) * 1000
    selection = Selection().narrowed(to_ms - 20_000, to_ms)
    page = browser.new_page(viewport={"width": 1400, "height": 1000})

    def shows_the_store() -> bool:
        # On a slow machine requests of a closed range end, and are stored, long after it.
        summary = _summary(demo, to_ms)
        if summary is None:
            return False
        page.goto(str(httpx.URL(f"{demo.dashboard_url}/", params=selection.to_params())))
        page.get_by_text("data as of").first.wait_for()
        texts = [formats.seconds(summary[name]) for name in ("ttft_p50_s", "ttft_p95_s")]
        try:
            for text in (*texts, formats.percent(summary["cached_token_ratio"])):
                expect(page.get_by_text(text).first).to_be_visible(timeout=15_000)
        except AssertionError:
            return False
        return True

    wait_until(shows_the_store, "the numbers of the store on the page", 600)
    page.close()


def _summary(demo: Demo, to_ms: int) -> dict[str, Any] | None:
    """What the store says of the 20 seconds before; None while it has none of their requests."""
    store = Store(f"http://127.0.0.1:{demo.ports.query}")
    ends = {"from_ms": to_ms - 20_000, "to_ms": to_ms}
    filters = dict.fromkeys(("model", "tenant", "prompt", "slo_class"), "")
    rows = store.rows(query("health"), ends | filters | {"step_s": 60, "data_from_ms": 0})
    store.close()
    found = (row for row in rows if row["is_now"] and not row["bucket"])
    return next((row for row in found if row["num_requests"]), None)


def test_the_report_keeps_its_promises(report: dict[str, Any]) -> None:
    assert report.keys() >= REPORTED
    # Only what was cut off at the very end may be missing.
    assert 0.97 * report["client"]["requests"] <= report["requests"]
    assert 100 < report["requests"] <= report["client"]["requests"]
    assert report["errors"] == 0
    assert 0 < report["cancelled"] <= report["client"]["cancelled"]
    assert 0 < report["ttft_s"]["p50"] < report["ttft_s"]["p95"] <= report["ttft_s"]["p99"]
    assert 0 < report["cached_token_ratio"] < 1
    assert 0 < report["acceptance_rate"] < 1
    # One SERVER span a request, and its phases below it.
    assert report["spans_stored"] > 3 * report["requests"]


def test_the_alert_fired_in_the_crowd_and_resolved(report: dict[str, Any]) -> None:
    """Once, unless the machine is so busy that chats outside the first crowd waited as well."""
    pages = [
        alert["status"]
        for alert in report["alerts"]
        if (alert["slo"], alert["severity"]) == ("support-ttft", "page")
    ]
    assert pages == ["firing", "resolved"] * max(len(pages) // 2, 1)
    num_late = sum(
        phase["chats"] * (1 - phase["in_time_ratio"])
        for name, phase in report["phases"].items()
        if name != "crowded" and phase["chats"]
    )
    # The least number of late ones for which slos.yaml alerts.
    assert len(pages) == 2 or num_late >= 5
    assert "support-availability" not in {alert["slo"] for alert in report["alerts"]}


def test_every_hook_has_left_its_traces(report: dict[str, Any]) -> None:
    for name in (
        "answered_from_cache",
        "verified_from_cache",
        "compressed",
        "feedback",
        "live_evaluations",
    ):
        assert report[name] > 0, name


def test_chats_start_sooner_with_control_beside_the_same_crowd(report: dict[str, Any]) -> None:
    watching, acting = (report["crowds"][mode] for mode in ("watching", "acting"))
    assert min(watching["chats"], acting["chats"]) >= 5
    # Compared with the long prompts of the same crowd: a busy machine slows down either.
    acting, watching = (
        crowd["ttft_p50_s"] / crowd["long_ttft_p50_s"] for crowd in (acting, watching)
    )
    assert acting < watching


def test_the_shorter_prompt_is_caught(report: dict[str, Any]) -> None:
    comparison = report["comparison"]
    assert comparison["exit_code"] == 1, comparison.get("headline")
    accuracy = next(
        result
        for result in comparison["results"]
        if (result["metric"], result["slice"]) == ("accuracy", "overall")
    )
    assert accuracy["verdict"] == "regressed"
    assert comparison["candidate"]["input_tokens"] < comparison["baseline"]["input_tokens"]


def test_it_leaves_no_process_and_no_port(demo: Demo, report: dict[str, Any]) -> None:
    assert_nothing_left(demo.ports, demo.folder)


@pytest.fixture(scope="module")
def kept(demo: Demo, report: dict[str, Any]) -> Iterator[str]:
    """The dashboard on what the demo left, at the moment in which its objective burned."""
    data, ports = demo.folder / "data", Ports(free_offset())
    with ExitStack() as stack:
        for arguments in (
            ("collect", "--data-dir", str(data / "collector"), "--http-port", str(ports.otlp_http),
             "--grpc-port", str(ports.otlp_grpc), "--query-port", str(ports.query)),
            ("dashboard", "--port", str(ports.dashboard), "--slos", str(data / "slos.yaml"),
             "--query-url", f"http://127.0.0.1:{ports.query}"),
        ):  # fmt: skip
            process = subprocess.Popen([sys.executable, "-m", "evenkeel", *arguments], cwd=ROOT)
            stack.callback(process.wait, 600)
            stack.callback(process.send_signal, signal.SIGINT)
        url = f"http://127.0.0.1:{ports.dashboard}"
        ready_url = f"http://127.0.0.1:{ports.otlp_http}/readyz"
        wait_until(lambda: is_up(ready_url), "the collector", 600)
        wait_until(lambda: is_up(f"{url}/_stcore/health"), "the dashboard", 600)
        burned_ms = _burned_ms(f"http://127.0.0.1:{ports.query}")
        shown = Selection().narrowed(burned_ms - 60_000, burned_ms + 5_000)
        yield str(httpx.URL(f"{url}/", params=shown.to_params()))


def _burned_ms(query_url: str) -> int:
    """When the page fired in the first crowd; on a busy machine there may be others."""
    first = f"SELECT toUnixTimestamp(min(time)) FROM evenkeel.requests WHERE route = '{CROWD}'"
    crowded_ms = (int(httpx.get(query_url, params={"query": first}).text) + 10) * 1000
    store = Store(query_url)
    alerts = store.rows(query("alerts"), {"from_ms": 0, "to_ms": 4_000_000_000_000})
    store.close()
    return min(
        max(int(alert["fired_ms"]), crowded_ms)
        for alert in alerts
        if alert["slo"] == "support-ttft"
        and alert["fired_ms"]
        and (alert["ended_ms"] or math.inf) > crowded_ms
    )


def is_up(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.parametrize("width", [1400, 390])
def test_three_clicks_from_the_burning_objective_to_the_crowding_prompt(
    kept: str, browser: Browser, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 1000})
    page.goto(kept)
    expect(page.locator(".ek-slo", has_text="support-ttft")).to_contain_text("firing")
    page.locator(".ek-slo a", has_text="support-ttft").click()
    expect(page.get_by_text("Who burned it")).to_be_visible()
    page.locator(".st-key-card-burning-requests a").first.click()
    expect(page.get_by_text("The first token came after")).to_be_visible()
    page.screenshot(path=PICTURES / f"burned-{width}.png", full_page=True)
    page.locator(".st-key-card-neighbours a").first.click()
    expect(page.locator(".st-key-card-facts")).to_contain_text(CROWD)
    assert page.locator("[data-testid=stException]").count() == 0
    page.close()


def test_ctrl_c_while_starting_leaves_nothing(tmp_path: Path) -> None:
    offset = free_offset()
    process = start_demo(
        tmp_path, "--no-dashboard", "--port-offset", str(offset), "--data-dir", str(tmp_path / "d")
    )
    told = tmp_path / "stderr.txt"
    wait_until(lambda: "starting the runtime" in told.read_text(), "the runtime's start", 300)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Traceback" not in told.read_text()
    assert_nothing_left(Ports(offset), tmp_path)


def test_a_killed_demo_takes_its_parts_along(tmp_path: Path) -> None:
    offset = free_offset()
    process = start_demo(
        tmp_path, "--no-dashboard", "--port-offset", str(offset), "--data-dir", str(tmp_path / "d")
    )
    told = tmp_path / "stderr.txt"
    wait_until(lambda: "starting the runtime" in told.read_text(), "the runtime's start", 300)
    process.kill()
    process.communicate(timeout=600)
    wait_until(lambda: not left_behind(tmp_path), "the end of all parts", 120)


def test_a_taken_port_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    offset = free_offset()
    with socket.create_server(("127.0.0.1", Ports(offset).query)):
        process = start_demo(tmp_path, "--port-offset", str(offset))
        assert process.communicate(timeout=600)[0] == ""
    (line,) = (tmp_path / "stderr.txt").read_text().splitlines()
    assert process.returncode == 2
    assert f"port {Ports(offset).query} for the query port is not free" in line


def test_an_unusable_folder_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    process = start_demo(
        tmp_path, "--port-offset", str(free_offset()), "--data-dir", str(tmp_path / "file" / "data")
    )
    process.communicate(timeout=600)
    (line,) = (tmp_path / "stderr.txt").read_text().splitlines()
    assert process.returncode == 2
    assert "cannot be used" in line


def assert_nothing_left(ports: Ports, folder: Path) -> None:
    for port in ports.as_dict().values():
        socket.create_server(("127.0.0.1", port)).close()
    assert left_behind(folder) == []


def left_behind(folder: Path) -> list[str]:
    """The command lines of processes that name the demo's folder."""
    lines = [
        " ".join(process.info["cmdline"] or [])
        for process in psutil.process_iter(["cmdline"])
        if process.pid != os.getpid()
    ]
    return [line for line in lines if str(folder) in line]
