"""The pages of engines other than vLLM in a real browser: filled, or "not reported"."""

import time
from collections.abc import Iterator
from datetime import timedelta
from functools import cache

import httpx
import pytest
from playwright.sync_api import Browser, expect

from evenkeel_dashboard.frame.selection import format_time_ms
from tests.fixtures.collector_process import fresh_client, wait_for
from tests.fixtures.dashboard_process import Platform, assert_no_exception, opened
from tests.fixtures.engine_pages import PAGES, SECOND, SPANS, metrics_request, span_request

PROTOBUF = {"content-type": "application/x-protobuf"}
STORED = """
SELECT (SELECT uniqExact(time, service) FROM engine_state WHERE time < toDateTime({end_s:UInt32})),
    (SELECT count() FROM requests WHERE time < toDateTime({end_s:UInt32}))
"""
# Long before the platform's own requests, which other tests count.
DAYS = {"sglang": 20, "tgi": 19, "both": 18, "opentelemetry": 17}


@cache
def at_ns(which: str) -> int:
    """Return the time of some engines' data: each has a day of its own."""
    day_s = int(time.time()) // 86_400 * 86_400 - DAYS[which] * 86_400
    return (day_s + 3600) * SECOND


@pytest.fixture(scope="module")
def engines(platform: Platform) -> Iterator[Platform]:
    """The platform with requests and metrics of other engines in the past."""
    for which in DAYS:
        for engine in ("sglang", "vllm") if which == "both" else (which,):
            text = PAGES[engine].read_text(encoding="utf-8")
            for age_s, growth in ((120, 0.0), (60, 0.5)):
                body = metrics_request(text, engine, at_ns(which) - age_s * SECOND, growth)
                httpx.post(
                    f"{platform.http_url}/v1/metrics",
                    content=body.SerializeToString(),
                    headers=PROTOBUF,
                ).raise_for_status()
        if which in SPANS:
            httpx.post(
                f"{platform.http_url}/v1/traces",
                content=span_request(which, at_ns(which) - 90 * SECOND).SerializeToString(),
                headers=PROTOBUF,
            ).raise_for_status()
    client = fresh_client(platform.query_url)
    sent = (2 * (len(DAYS) + 1), len(DAYS.keys() & SPANS.keys()))
    end = {"end_s": max(map(at_ns, DAYS)) // SECOND + 60}
    wait_for(lambda: client.query(STORED, end).result_rows[0] == sent)
    client.close()
    yield platform


def page_of(platform: Platform, path: str, which: str, **params: str) -> str:
    ends = [at_ns(which) // 10**6 - timedelta(minutes=5) // timedelta(milliseconds=1)]
    ends.append(at_ns(which) // 10**6)
    fixed = dict(zip(("from", "to"), map(format_time_ms, ends), strict=True))
    return str(httpx.URL(f"{platform.dashboard_url}/{path}", params=fixed | params))


def test_the_engine_page_of_sglang(engines: Platform, browser: Browser) -> None:
    page = opened(browser, page_of(engines, "engine", "sglang"))
    expect(page.get_by_text("from the metrics of SGLang; no step records")).to_be_visible()
    # 7 wait, and 83% of the KV cache is live.
    banner = page.locator(".ek-verdict")
    expect(banner).to_contain_text("Memory-bound")
    expect(banner).not_to_contain_text("--", use_inner_text=True)
    histograms = page.locator(".st-key-card-histograms")
    expect(histograms.locator("tbody tr", has_text="time to first token")).to_contain_text("50")
    expect(histograms.locator("tbody tr", has_text="time per output")).to_contain_text(
        "not reported"
    )
    signs = page.locator(".st-key-card-signs")
    expect(signs.locator("tbody tr", has_text="KV blocks in use")).to_contain_text("83")
    expect(signs.locator("tbody tr", has_text="time in steps")).to_contain_text("not reported")
    expect(page.get_by_text("Not reported by SGLang: ").first).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_an_engine_without_kv_figures_is_not_called_compute_bound(
    engines: Platform, browser: Browser
) -> None:
    page = opened(browser, page_of(engines, "engine", "tgi"))
    banner = page.locator(".ek-verdict")
    expect(banner).to_contain_text("did not report whether memory or compute")
    expect(page.get_by_text("KV cache, ").first).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_two_engines_are_added_up_until_one_is_chosen(engines: Platform, browser: Browser) -> None:
    page = opened(browser, page_of(engines, "engine", "both"))
    expect(page.get_by_text("SGLang and vLLM, added up; choose one above")).to_be_visible()
    page.goto(page_of(engines, "engine", "both", engine="vllm"))
    expect(page.get_by_text("from the metrics of vLLM; no step records")).to_be_visible()
    page.goto(page_of(engines, "engine", "both", engine="tgi"))
    expect(page.get_by_text("Text Generation Inference reported nothing")).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_the_engine_page_of_a_server_with_opentelemetrys_metrics(
    engines: Platform, browser: Browser
) -> None:
    page = opened(browser, page_of(engines, "engine", "opentelemetry"))
    expect(
        page.get_by_text("from the metrics of OpenTelemetry GenAI; no step records")
    ).to_be_visible()
    expect(page.locator(".ek-verdict")).to_contain_text("neither a queue nor its KV cache")
    histograms = page.locator(".st-key-card-histograms")
    # 100 successful and 20 failed requests, and half of them again.
    expect(histograms.locator("tbody tr", has_text="total")).to_contain_text("60")
    expect(histograms.locator("tbody tr", has_text="time per output")).to_contain_text("50")
    expect(histograms.locator("tbody tr", has_text="queue")).to_contain_text("not reported")
    expect(page.get_by_text("Not reported by OpenTelemetry GenAI: ").first).to_be_visible()
    page.goto(page_of(engines, "engine", "opentelemetry", engine="opentelemetry"))
    expect(histograms.locator("tbody tr", has_text="total")).to_contain_text("60")
    page.goto(page_of(engines, "engine", "opentelemetry", engine="vllm"))
    expect(page.get_by_text("vLLM reported nothing")).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_requests_of_another_engine(engines: Platform, browser: Browser) -> None:
    page = opened(browser, page_of(engines, "explore", "tgi", engine="tgi"))
    row = page.locator(".st-key-card-found tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("not reported")
    page.goto(page_of(engines, "explore", "tgi", engine="sglang"))
    expect(page.get_by_text("No matches in this range")).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_the_page_of_a_request_of_another_engine(engines: Platform, browser: Browser) -> None:
    page = opened(browser, page_of(engines, "request", "sglang", request_id="1a2b3c4d5e6f"))
    facts = page.locator(".st-key-card-facts")
    expect(facts).to_contain_text("SGLang")
    expect(facts).to_contain_text("128")
    expect(facts).to_contain_text("not reported")
    expect(facts).not_to_contain_text("off")
    assert_no_exception(page)
    page.close()


def test_latency_says_who_does_not_report_it(engines: Platform, browser: Browser) -> None:
    page = opened(browser, page_of(engines, "latency", "tgi", measure="ttft"))
    expect(
        page.get_by_text("It is not reported by Text Generation Inference, which sent")
    ).to_be_visible()
    page.goto(page_of(engines, "latency", "sglang", measure="ttft"))
    expect(page.locator(".st-key-card-cohorts")).to_contain_text("500 ms")
    assert_no_exception(page)
    page.close()
