"""The whole trace on the Request page: folded, searched, and opened span by span."""

import time

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.fixtures.collector_process import fresh_client, wait_for
from tests.fixtures.dashboard_process import Platform, assert_no_exception, opened, overflow
from tests.fixtures.log_payload import logs_request
from tests.fixtures.otlp_payload import SentSpan, id_bytes, whole_trace

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "support"}
TRACE = id_bytes("whole", 16).hex()
SPANS = (
    SentSpan("app", "", 0, 400, "ask", "app", 2, {"traceloop.span.kind": "workflow"}),
    *(
        SentSpan(f"r{i}", "app", i, 2, "retrieve <b>", "app", 1,
                 {"openinference.span.kind": "RETRIEVER"})
        for i in range(412)
    ),
    SentSpan("call", "app", 100, 100, "chat", "app", 3,
             {**CHAT, "gen_ai.usage.input_tokens": 70, "error.type": "timeout"}),
    SentSpan("post", "call", 101, 98, "POST", "app", 3, {"http.request.method": "POST"}),
    SentSpan("gate", "post", 120, 62, "POST /v1", "gate", 2, {"http.request.method": "POST"}),
    # The server's clock is a second ahead.
    SentSpan("server", "gate", 1125, 50, "chat support", "vllm", 2,
             {**CHAT, "evenkeel.status": "ok", "evenkeel.request.id": "chatcmpl-whole",
              "gen_ai.usage.input_tokens": 70, "gen_ai.usage.output_tokens": 9,
              "evenkeel.e2e_s": 0.05}),
    SentSpan("queue", "server", 1125, 10, "evenkeel.queue", "vllm"),
    SentSpan("lost", "nobody", 5, 1, "left over", "app"),
)  # fmt: skip


@pytest.fixture(scope="module")
def traced(platform: Platform) -> Platform:
    # Days before the range of other tests: its requests stay as many as they are.
    request = whole_trace("whole", time.time_ns() - 10 * 86_400 * 10**9, *SPANS)
    httpx.post(
        f"{platform.http_url}/v1/traces",
        content=request.SerializeToString(),
        headers={"content-type": "application/x-protobuf"},
    ).raise_for_status()
    wait_until_stored(platform, "spans", TRACE)
    return platform


def wait_until_stored(platform: Platform, table: str, trace_id: str) -> None:
    client = fresh_client(platform.query_url)
    found = f"SELECT count() > 0 FROM {table} WHERE TraceId = {{trace_id:String}}"
    wait_for(lambda: client.query(found, {"trace_id": trace_id}).result_rows == [(True,)])
    client.close()


def names(page: Page) -> list[str]:
    return page.locator(".ek-trace-row .ek-trace-title").all_inner_texts()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_a_trace_is_read_from_the_application_to_our_phases(
    traced: Platform, browser: Browser, scheme: str, width: int
) -> None:
    page = opened(
        browser, f"{traced.dashboard_url}/request?trace_id={TRACE}&live=off", scheme, width
    )
    expect(page.get_by_role("heading", name="chatcmpl-whole")).to_be_visible()
    rows = page.locator(".ek-trace-row")
    expect(rows).to_have_count(8)
    assert names(page) == [
        "ask", "retrieve <b> ×412", "chat support", "POST", "POST /v1", "chat support",
        "evenkeel.queue", "left over",
    ]  # fmt: skip
    card = page.locator(".st-key-card-trace")
    expect(card).to_contain_text("419 spans, 3 services, 1 request, 70 → 9 tokens")
    expect(card.locator("[data-views]")).to_contain_text(
        "network and client: 38 ms, gateway: 12 ms"
    )
    expect(card.locator("[data-remark]").nth(0)).to_contain_text("a parent that was not received")
    expect(card.locator("[data-remark]").nth(1)).to_contain_text("vllm by −993 ms")
    assert overflow(page) <= 0, "the page scrolls sideways"

    rows.nth(1).locator(".ek-trace-toggle").click()
    assert rows.count() < 80, "more rows are drawn than are in view"
    page.get_by_role("button", name="close all").click()
    expect(rows).to_have_count(2)
    page.locator(".ek-trace-search").fill("gate")
    expect(page.get_by_role("status").filter(has_text="match")).to_have_text("1 of 420 rows match")
    assert names(page)[-1] == "POST /v1"
    page.locator(".ek-trace-row").last.locator("a.ek-trace-bar-of").click()
    details = page.locator(".st-key-card-span")
    expect(details).to_contain_text("http.request.method")
    expect(details).to_contain_text("gate")
    assert httpx.URL(page.url).params["span"] == id_bytes("gate", 8).hex()
    assert_no_exception(page)
    page.close()


def test_a_trace_without_a_request_is_shown_alone_with_what_it_logged(
    traced: Platform, browser: Browser
) -> None:
    request = whole_trace("plain", time.time_ns(), SentSpan("a"), SentSpan("b", "a", name="inner"))
    (inner,) = request.resource_spans[1].scope_spans[0].spans
    logged = logs_request(
        2, body="only <3> left", trace_id=inner.trace_id, span_id=inner.span_id,
        severity_number=17, severity_text="ERROR",
    )  # fmt: skip
    for path, body in (("traces", request), ("logs", logged)):
        httpx.post(
            f"{traced.http_url}/v1/{path}",
            content=body.SerializeToString(),
            headers={"content-type": "application/x-protobuf"},
        ).raise_for_status()
    trace_id = id_bytes("plain", 16).hex()
    for table in ("spans", "logs"):
        wait_until_stored(traced, table, trace_id)
    page = opened(browser, f"{traced.dashboard_url}/request?trace_id={trace_id}")
    expect(page.locator(".ek-trace-row")).to_have_count(2)
    expect(page.get_by_text("No request of this trace is stored")).to_be_visible()
    card = page.locator(".st-key-card-logs")
    expect(card.get_by_role("row")).to_have_count(3)
    expect(card.get_by_role("row").last).to_contain_text("only <3> left")
    expect(card.get_by_role("row").last).to_contain_text("inner")
    assert_no_exception(page)
    page.close()


def test_hostile_names_and_texts_are_shown_as_text(traced: Platform, browser: Browser) -> None:
    script = "<img src=x onerror=\"document.title='hit'\"><script>alert(1)</script>"
    endless = "m" * 1_000_000
    request = whole_trace(
        "hostile", time.time_ns(),
        SentSpan("a", "", 0, 400, f"\u202e{script}", "app\u200b", 1, {"session.id": script}),
        SentSpan("b", "a", 10, 5, endless, script, 1, {"gen_ai.tool.name": endless}),
        SentSpan("c", "c", 20, 5, "its own parent", "app", 1, {"exception.message": script}),
    )  # fmt: skip
    logged = logs_request(
        1, body=f"{script}{endless}", trace_id=id_bytes("hostile", 16), span_id=id_bytes("a", 8)
    )
    for path, body in (("traces", request), ("logs", logged)):
        httpx.post(
            f"{traced.http_url}/v1/{path}",
            content=body.SerializeToString(),
            headers={"content-type": "application/x-protobuf"},
        ).raise_for_status()
    trace_id = id_bytes("hostile", 16).hex()
    for table in ("spans", "logs"):
        wait_until_stored(traced, table, trace_id)
    # In capitals, as some tools write ids.
    page = opened(browser, f"{traced.dashboard_url}/request?trace_id={trace_id.upper()}")
    expect(page.locator(".ek-trace-row")).to_have_count(3)
    first, second, _ = names(page)
    assert first == f"[U+202E]{script}"
    assert second.startswith("mmm") and len(second) < 700
    expect(page.locator(".st-key-card-logs").get_by_role("row").last).to_contain_text("<script>")
    page.locator(".ek-trace-row").nth(1).locator("a.ek-trace-title").click()
    expect(page.locator(".st-key-card-span")).to_contain_text("1,000,000 characters")
    assert page.locator("img[src=x]").count() == 0
    expect(page).to_have_title("Request · evenkeel")
    assert overflow(page) <= 0
    assert_no_exception(page)
    page.close()
