"""Health, a request and evaluations in a real browser, and what failures look like."""

import re
import time
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from evenkeel.prompts.registry import digest
from evenkeel.store import Store
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.frame.selection import Selection, format_time_ms
from tests.fixtures.collector_process import copy_new_store
from tests.fixtures.dashboard_process import (
    NEW_PROMPT,
    NO_FILTER,
    RUN_ID,
    Platform,
    assert_no_exception,
    evenkeel,
    opened,
    overflow,
    place_of,
    stop,
    wait_for,
)
from tests.fixtures.served_model import free_port
from tests.queries import query


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        pytest.param("light", 1440, id="light on a desktop"),
        pytest.param("dark", 1440, id="dark on a desktop"),
        pytest.param("dark", 390, id="dark on a telephone"),
    ],
)
def test_health_shows_the_numbers_of_the_store(
    platform: Platform, browser: Browser, scheme: str, width: int
) -> None:
    store = Store(platform.query_url)
    (first,) = store.rows(query("first_request"), {})
    sent = {**platform.range(), **NO_FILTER, "step_s": 60, "data_from_ms": first["first_ms"]}
    rows = store.rows(query("health"), sent)
    store.close()
    summary = next(row for row in rows if row["is_now"] and not row["bucket"])
    page = opened(browser, platform.page(), scheme, width)
    for label, expected in (
        ("Requests", formats.rate(summary["requests_per_s"])),
        (
            "TTFT p50 · p95 · p99",
            " · ".join(formats.seconds(summary[f"ttft_{p}_s"]) for p in ("p50", "p95", "p99")),
        ),
        ("TPOT p95", formats.seconds(summary["tpot_p95_s"])),
        ("Aborts", formats.percent(summary["aborted_ratio"])),
        ("Acceptance", formats.percent(summary["acceptance_rate"])),
    ):
        expect(page.locator(f'[data-tile="{label}"]')).to_have_text(expected)
    expect(page.get_by_text("Where the time goes")).to_be_visible()
    expect(page.locator(".ek-chart svg")).to_have_count(6)
    assert overflow(page) <= 0, "the page scrolls sideways"
    assert_no_exception(page)
    page.close()


def test_the_slowest_request_opens_as_a_waterfall(platform: Platform, browser: Browser) -> None:
    store = Store(platform.query_url)
    parameters = platform.range() | NO_FILTER | {"rank_by": "ttft", "limit": 1}
    slowest = store.rows(query("slowest_requests"), parameters)[0]
    store.close()
    page = opened(browser, platform.page())
    page.locator(".st-key-card-slowest a").first.click()
    expect(page.get_by_role("heading", name=slowest["request_id"])).to_be_visible()
    expect(page.locator(".st-key-card-waterfall .ek-chart")).to_have_count(4)
    expect(page.get_by_text(f"TTFT {formats.seconds(slowest['ttft_s'])}").first).to_be_visible()
    expect(page.get_by_text("Other requests in flight")).to_be_visible()
    expect(page.locator(".st-key-card-trace .ek-trace-row")).to_have_count(4)
    drag(page, page.locator(".st-key-chart-request-phases .ek-plot"), 0.2, 0.6)
    page.get_by_role("button", name="show the whole request").click()
    page.wait_for_url(lambda url: "part=" not in url)
    assert_no_exception(page)
    page.close()


def drag(page: Page, plot: Locator, begin: float, end: float) -> None:
    box = place_of(plot)
    page.mouse.move(box["x"] + box["width"] * begin, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, box["y"] + box["height"] / 2, steps=8)
    page.mouse.up()


def test_a_chart_says_its_values_to_pointer_and_keyboard(
    platform: Platform, browser: Browser
) -> None:
    page = opened(browser, platform.page())
    chart = page.locator(".st-key-chart-ttft .ek-chart")
    expect(chart).to_have_attribute("aria-label", re.compile("Time to first token: .*"))
    chart.locator(".ek-plot").hover()
    expect(chart.get_by_role("status")).to_have_text(re.compile(r"UTCp50.*p95.*p99.* m?s"))
    page.mouse.move(0, 0)
    expect(chart.get_by_role("status")).to_have_count(0)
    chart.focus()
    page.keyboard.press("ArrowRight")
    expect(chart.get_by_role("status")).to_have_text(re.compile(r"UTCp50.*p95.*p99.* m?s"))
    page.close()


def test_dragging_over_a_chart_narrows_the_range(platform: Platform, browser: Browser) -> None:
    page = opened(browser, platform.page())
    drag(page, page.locator(".st-key-chart-ttft .ek-plot"), 0.5, 0.7)
    before = format_time_ms(platform.from_ms).replace(":", "%3A")
    page.wait_for_url(lambda url: before not in url)
    narrowed = Selection.from_params(dict(httpx.URL(page.url).params))
    assert narrowed.from_ms is not None and narrowed.to_ms is not None
    assert platform.from_ms < narrowed.from_ms < narrowed.to_ms < platform.to_ms
    assert_no_exception(page)
    page.close()


def test_an_evaluation_shows_its_verdict_and_changed_items(
    platform: Platform, browser: Browser
) -> None:
    page = opened(browser, platform.page("evals", run_id=RUN_ID))
    candidate = f"support@{digest(NEW_PROMPT)[:12]}"
    expect(page.get_by_text(f"Do not ship {candidate}: 10 points worse")).to_be_visible()
    expect(page.get_by_text(f"run {RUN_ID}", exact=False).first).to_be_visible()
    expect(page.get_by_text("1 got worse, 0 better")).to_be_visible()
    expect(page.get_by_text("The answers themselves are not stored")).to_be_visible()
    expect(page.locator(".st-key-card-gates td").nth(2)).to_contain_text("−10 pp")
    expect(page.get_by_text("B said <b>3</b>")).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_an_unknown_request_says_so(platform: Platform, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(platform.page("request", request_id="chatcmpl-nobody"))
    expect(page.get_by_text("No such request")).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_a_range_without_requests_leads_to_the_newest(platform: Platform, browser: Browser) -> None:
    empty = Selection().narrowed(platform.from_ms - 7_200_000, platform.from_ms - 3_600_000)
    url = httpx.URL(platform.dashboard_url, params=empty.to_params())
    page = opened(browser, str(url))
    expect(page.get_by_text("No requests in this range", exact=True)).to_be_visible()
    page.get_by_role("link", name="Show the hour before that request").click()
    expect(page.locator('[data-tile="Requests"]')).to_be_visible()
    page.close()


def test_a_service_without_requests_still_shows_its_alerts(
    platform: Platform, browser: Browser
) -> None:
    # The simulation ended a minute before the alerts fired.
    now_ms = time.time_ns() // 10**6
    silent = Selection().narrowed(max(platform.to_ms + 30_000, now_ms - 20_000), now_ms)
    page = opened(browser, str(httpx.URL(platform.dashboard_url, params=silent.to_params())))
    expect(page.get_by_text("No requests in this range", exact=True)).to_be_visible()
    expect(page.locator(".st-key-card-alerts tbody tr").first).to_contain_text("firing")
    assert_no_exception(page)
    page.close()


def test_the_dashboard_ends_cleanly_on_ctrl_c(platform: Platform) -> None:
    port = free_port()
    process = evenkeel("dashboard", "--port", str(port), "--query-url", platform.query_url)
    wait_for(f"http://127.0.0.1:{port}/_stcore/health", process)
    assert stop(process) == 0


def test_a_taken_port_is_one_line_and_code_2(platform: Platform) -> None:
    port = str(httpx.URL(platform.dashboard_url).port)
    process = evenkeel("dashboard", "--port", port)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert err.count("\n") == 1 and "choose another with --port" in err


def test_a_page_survives_a_store_that_goes_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    query_port, port = str(free_port()), str(free_port())
    collect = (
        "collect", "--json", "--data-dir", str(tmp_path), "--http-port", "0", "--grpc-port", "0",
        "--query-port", query_port,
    )  # fmt: skip
    copy_new_store(tmp_path / "store")
    first = evenkeel(*collect)
    assert first.stdout is not None and first.stdout.readline()
    dashboard = evenkeel(
        "dashboard", "--port", port, "--query-url", f"http://127.0.0.1:{query_port}"
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/_stcore/health", dashboard)
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/")
        hint = page.get_by_text("No requests stored yet")
        expect(hint).to_be_visible()
        stop(first)
        expect(page.get_by_text("The store is not reachable")).to_be_visible()
        assert_no_exception(page)
        second = evenkeel(*collect)
        try:
            expect(hint).to_be_visible()
        finally:
            stop(second)
        page.close()
    finally:
        stop(dashboard)
        if first.poll() is None:
            stop(first)
