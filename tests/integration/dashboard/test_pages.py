"""Every page in a real browser: from a burning SLO to the request, and each page's purpose."""

import json
import re

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from evenkeel.store import Store
from evenkeel_dashboard.pages import PAGES
from evenkeel_dashboard.pages.latency.model import Picked
from tests.fixtures.dashboard_process import (
    NO_FILTER,
    NUM_REQUESTS,
    SLO,
    Platform,
    assert_no_exception,
    evenkeel,
    opened,
    overflow,
    place_of,
    settled,
)
from tests.queries import query

# Which request burned most varies, but every request page explains its time.
CAUSE = re.compile(r"(The first token came|It ended without a token) after .* of it queue")
PATHS = [page.path for page in PAGES if page.path != "request"]


@pytest.mark.parametrize("path", PATHS)
def test_a_page_fits_a_telephone(platform: Platform, browser: Browser, path: str) -> None:
    page = opened(browser, platform.page(path), "dark", 390)
    page.wait_for_timeout(1_000)
    assert overflow(page) <= 0, "the page scrolls sideways"
    assert_no_exception(page)
    page.close()


@pytest.mark.parametrize("width", [1440, 390])
def test_three_clicks_from_a_burning_slo_to_the_cause(
    platform: Platform, browser: Browser, width: int
) -> None:
    # The current range: SLOs are evaluated since the platform started, after the simulation.
    page = opened(browser, f"{platform.dashboard_url}/?range=6h&live=off", width=width)
    page.locator(".ek-slo a", has_text=SLO).click()
    expect(page.get_by_text("Who burned it")).to_be_visible()
    expect(page.locator(".st-key-card-burners").get_by_text("qwen3-32b")).to_be_visible()
    page.locator(".st-key-card-burning-requests a").first.click()
    expect(page.get_by_text(CAUSE)).to_be_visible()
    page.locator(".st-key-card-neighbours a").first.click()
    expect(page.get_by_text("Other requests in flight")).to_be_visible()
    assert_no_exception(page)
    page.close()


def in_view(page: Page, place: Locator) -> bool:
    """Whether all of an element is within the window, without scrolling."""
    box = place.bounding_box()
    size = page.viewport_size
    assert size is not None
    return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= size["height"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_two_clicks_without_scrolling_from_a_burning_slo_to_what_would_help(
    platform: Platform, browser: Browser, scheme: str
) -> None:
    page = opened(browser, f"{platform.dashboard_url}/?range=6h&live=off", scheme, height=900)
    page.evaluate(
        "() => { window.clicks = 0; addEventListener('click', () => window.clicks++, true);"
        " addEventListener('wheel', () => window.clicks += 100, true) }"
    )
    expect(page.locator(".ek-verdict .ek-headline")).to_contain_text(SLO)
    cause = page.locator(".st-key-card-alerts tbody tr", has_text="firing").first.locator(
        "td.ek-wrap a"
    )
    expect(cause).to_be_visible()
    assert in_view(page, cause), "the alert is below the fold"
    cause.click()
    advice = page.locator(".ek-advice")
    expect(page.locator(".ek-why")).to_contain_text("Without")
    expect(advice).to_contain_text("What would help")
    settled(page)
    for place in (page.locator(".ek-why"), page.locator(".ek-ledger-bars"), advice):
        assert in_view(page, place)
    assert re.search(r"--[a-z-]+", advice.inner_text()), "the advice names a flag"
    advice.get_by_role("link", name="See what limited the engine then").click()
    expect(page.get_by_text("data as of").first).to_be_visible()
    page.wait_for_url(re.compile("/engine"))
    assert page.evaluate("() => window.clicks") == 2
    assert_no_exception(page)
    page.close()


def test_the_whole_banner_and_card_lead_to_the_slo(platform: Platform, browser: Browser) -> None:
    for place in (".ek-verdict", f".ek-slo:has-text('{SLO}')"):
        page = opened(browser, f"{platform.dashboard_url}/?range=6h&live=off")
        box = place_of(page.locator(place).first)
        page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + box["height"] - 8)
        expect(page.get_by_text("Who burned it")).to_be_visible()
        assert httpx.URL(page.url).params["slo"] == SLO
        page.close()


def test_the_terminal_explains_what_the_page_explains(platform: Platform, browser: Browser) -> None:
    store = Store(platform.query_url)
    parameters = platform.range() | NO_FILTER | {"rank_by": "ttft", "limit": 1}
    slowest = store.rows(query("slowest_requests"), parameters)[0]["request_id"]
    store.close()
    command = evenkeel("why", slowest, "--store-url", platform.query_url, "--json")
    out, err = command.communicate(timeout=300)
    assert command.returncode == 0, err
    found = json.loads(out)
    assert found["ledger"]["ttft.queue.budget"] > 0
    page = opened(browser, platform.page("request", request_id=slowest))
    help_text = page.locator(".ek-advice").inner_text()
    for advice in found["what_would_help"]:
        assert advice["text"] in help_text
        assert all(flag in help_text for flag in advice["flags"])
    page.close()


def picked_url(page: Page) -> Picked | None:
    return Picked.from_param(httpx.URL(page.url).params.get("picked", ""))


def test_a_click_in_the_heatmap_shows_the_requests_behind_it(
    platform: Platform, browser: Browser
) -> None:
    page = opened(browser, platform.page("latency"))
    plot = page.locator(".st-key-chart-heatmap .ek-plot")
    expect(plot).to_be_visible()
    place_of(plot)
    point = page.evaluate(
        r"""() => {
          const chart = document.querySelector('.st-key-chart-heatmap .ek-chart').dataset;
          const cells = document.querySelector('.st-key-chart-heatmap path[data-kind=cell]');
          // The first and the last step can begin before the range or end after it.
          const [, x, low, high] = [...cells.getAttribute('d').matchAll(/M(\S+) (\S+)V([^M]+)/g)]
            .map((cell) => cell.map(Number))
            .find(([, x]) => +chart.left + 1 < x && x < chart.right - 1);
          const point = new DOMPoint(x, (low + high) / 2).matrixTransform(cells.getScreenCTM());
          return [point.x, point.y];
        }"""
    )
    page.mouse.move(point[0], point[1])
    page.wait_for_timeout(300)
    page.mouse.click(point[0], point[1])
    card = page.locator(".st-key-card-behind")
    expect(card).to_be_visible()
    expect(card).to_be_in_viewport()
    expect(page.locator(".st-key-card-latency .ek-key").get_by_text("picked")).to_have_count(1)
    picked = picked_url(page)
    assert picked is not None and picked.low_s < picked.high_s < 100
    card.locator("a").first.click()
    expect(page.get_by_text("The first token came after").first).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_a_link_reproduces_what_was_picked(platform: Platform, browser: Browser) -> None:
    picked = Picked(platform.from_ms, platform.to_ms, 0.5, 10.0, 1.0, "")
    page = opened(browser, platform.page("latency", picked=picked.to_param(), by="tenant"))
    expect(page.get_by_text("Requests at this point: TTFT from 500 ms to 10 s")).to_be_visible()
    expect(page.locator(".st-key-card-behind tbody tr")).to_have_count(20)
    assert_no_exception(page)
    page.close()


def test_latency_says_what_others_would_count(platform: Platform, browser: Browser) -> None:
    page = opened(browser, platform.page("latency", measure="tpot", definition="guidellm"))
    expect(page.locator(".st-key-card-definitions tbody tr")).to_have_count(6)
    expect(page.get_by_text("the first token's wait is in it").first).to_be_visible()
    page.close()


def test_a_drafted_objective_is_replayed(platform: Platform, browser: Browser) -> None:
    page = opened(browser, platform.page("slo", slo=SLO, draft_limit="2 s", draft_target="50%"))
    rows = page.locator(".st-key-card-draft tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("spent")
    expect(rows.nth(1)).to_contain_text("none")
    expect(page.locator(".ek-day").first).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_compare_finds_the_slower_model(platform: Platform, browser: Browser) -> None:
    url = platform.page(
        "compare", by="model", a="llama-3.1-8b-instruct", b="qwen3-32b", measure="tpot"
    )
    page = opened(browser, url)
    expect(page.get_by_text("TPOT of qwen3-32b is higher")).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_back_from_a_link_is_the_range_before_it(platform: Platform, browser: Browser) -> None:
    page = opened(browser, f"{platform.dashboard_url}/explore")
    page.evaluate(
        """() => document.querySelector('[data-testid=stMain]').insertAdjacentHTML(
          'afterbegin', '<a id="away" href="./latency?range=7d">away</a>')"""
    )
    page.locator("#away").press("Enter")
    expect(page.get_by_label("time range")).to_have_value("last 7d")
    expect(page.locator("[data-testid=stMain]")).to_be_focused()
    page.go_back()
    expect(page.get_by_label("time range")).to_have_value("last 1h")
    expect(page).to_have_url(f"{platform.dashboard_url}/explore?range=1h")
    page.go_forward()
    expect(page).to_have_url(f"{platform.dashboard_url}/latency?range=7d")
    page.close()


def test_sessions_lead_to_one_its_request_and_back(platform: Platform, browser: Browser) -> None:
    page = opened(browser, platform.page("sessions", order="turns"))
    card = page.locator(".st-key-card-sessions")
    expect(card.get_by_text("most turns first")).to_be_visible()
    turns = [int(text) for text in card.locator("tbody tr td:nth-child(3)").all_inner_texts()]
    assert turns == sorted(turns, reverse=True)
    first = card.locator("tbody a").first
    session_id = first.locator("xpath=ancestor::td").get_attribute("title")
    first.click()
    expect(page.locator(".ek-request h2")).to_have_text(str(session_id))
    expect(page.locator(".st-key-card-session-why .ek-why")).to_contain_text("It ")
    expect(page.locator(".st-key-card-session-timeline svg").first).to_be_visible()
    steps = page.locator(".st-key-card-session-steps tbody tr")
    expect(steps).to_have_count(min(turns[0], 40))
    steps.first.locator("a").click()
    page.get_by_role("link", name="See what its session waited for").click()
    expect(page.locator(".ek-request h2")).to_have_text(str(session_id))
    page.get_by_role("button", name="all sessions").click()
    expect(card).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_no_sessions_and_an_unknown_one_say_what_to_do(
    platform: Platform, browser: Browser
) -> None:
    page = opened(browser, platform.page("sessions", tenant="nobody"))
    expect(page.get_by_text("No matching sessions in this range")).to_be_visible()
    page.goto(platform.page("sessions", session_id="nosuch"))
    expect(page.get_by_text("No such session")).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_explore_filters_and_exports(platform: Platform, browser: Browser) -> None:
    page = opened(browser, platform.page("explore", order="ttft", min_ttft_s="1s"))
    first = page.locator(".st-key-card-found tbody tr").first
    expect(first).to_be_visible()
    with page.expect_download() as download:
        page.locator(".st-key-card-found").get_by_role("button", name="CSV").click()
    lines = download.value.path().read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("time,request_id") and len(lines) > 2
    page.close()


def test_explore_pages_and_orders_by_a_header(platform: Platform, browser: Browser) -> None:
    page = opened(browser, platform.page("explore"))
    card = page.locator(".st-key-card-found")
    expect(card.get_by_text(f"40 of {NUM_REQUESTS:,}")).to_be_visible()
    first = card.locator("tbody a").first.inner_text()
    card.get_by_role("link", name="next").click()
    expect(card.get_by_text(f"41–80 of {NUM_REQUESTS:,}")).to_be_visible()
    expect(card.get_by_role("link", name=first)).to_have_count(0)
    card.get_by_role("columnheader", name="TTFT").get_by_role("link").click()
    expect(page.get_by_label("order by")).to_have_value("TTFT")
    expect(card.get_by_text(f"40 of {NUM_REQUESTS:,}")).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_a_cohort_that_burned_leads_to_its_requests(platform: Platform, browser: Browser) -> None:
    page = opened(browser, f"{platform.dashboard_url}/slo?range=6h&live=off")
    expect(page.get_by_text("its error budget").first).to_be_visible()
    expect(page.get_by_text("What would help:")).to_be_visible()
    burners = page.locator(".st-key-card-burners")
    # Which tenant it is depends on the requests that other tests have sent.
    link = burners.get_by_role("row", name=re.compile("^tenant ")).get_by_role("link").first
    tenant = link.inner_text()
    link.click()
    expect(page.get_by_label("tenant")).to_have_value(tenant)
    expect(page.locator(".st-key-card-found tbody td:nth-child(10)").first).to_have_text(tenant)
    page.close()


def test_an_alert_leads_to_its_worst_example(platform: Platform, browser: Browser) -> None:
    page = opened(browser, f"{platform.dashboard_url}/alerts?range=6h&live=off")
    card = page.locator(".st-key-card-alert-0")
    for question in ("What", "Who", "Why", "Do"):
        expect(card.get_by_role("heading", name=question, exact=True)).to_be_visible()
    card.get_by_role("link", name=re.compile("in bad requests")).click()
    expect(page.get_by_text(CAUSE)).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_explore_answers_sql(platform: Platform, browser: Browser) -> None:
    page = opened(browser, platform.page("explore", sql="SELECT 40 + 2 AS answer"))
    for answer in ("42", "43", "44"):
        expect(page.locator(".st-key-card-sql td")).to_have_text(answer)
        page.get_by_label("SQL", exact=True).fill(f"SELECT {answer} + 1 AS answer")
        page.get_by_role("button", name="Run").click()
    expect(page.locator(".st-key-card-sql td")).to_have_text("45")
    page.close()
    page = opened(browser, platform.page("explore", sql="DROP TABLE requests"))
    expect(page.get_by_text("the query port only reads")).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_an_engine_that_says_nothing_is_no_idle_engine(
    platform: Platform, browser: Browser
) -> None:
    page = opened(browser, platform.page("engine"))
    expect(page.get_by_text("No engine data", exact=True)).to_be_visible()
    expect(page.get_by_text("No engine reported in this range")).to_be_visible()
    expect(page.locator(".st-key-card-acceptance tbody tr")).to_have_count(4)
    page.close()
