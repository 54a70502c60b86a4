"""The frame in a real browser: first paint, console, addresses, time zones, tables, keyboard."""

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Response, expect

from evenkeel_dashboard.frame.selection import Selection, format_time_ms
from evenkeel_dashboard.pages import PAGES
from tests.fixtures.dashboard_process import (
    Platform,
    assert_no_exception,
    opened,
    place_of,
    settled,
)


@pytest.fixture
def berlin(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(
        timezone_id="Europe/Berlin", viewport={"width": 1440, "height": 900}
    )
    yield context.new_page()
    context.close()


def shown(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.get_by_text("data as of").first).to_be_visible()
    settled(page)


@pytest.mark.parametrize("path", [page.path for page in PAGES])
def test_a_page_asks_for_nothing_that_does_not_exist(
    platform: Platform, browser: Browser, path: str
) -> None:
    page = browser.new_page()
    said: list[str] = []

    def note_message(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            said.append(message.text)

    def note_response(response: Response) -> None:
        if response.status >= 400:
            said.append(f"{response.status} {response.url}")

    page.on("console", note_message)
    page.on("response", note_response)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(platform.page(path))
    settled(page)
    page.wait_for_timeout(1_500)
    assert said == []
    page.close()


def test_the_first_paint_is_a_skeleton(platform: Platform, browser: Browser) -> None:
    page = browser.new_page()
    page.add_init_script(
        "new MutationObserver(() => { window.hadSkeleton ||= !!document.querySelector("
        "'#ek-skeleton') }).observe(document, { childList: true, subtree: true })"
    )
    page.goto(platform.page("slo"))
    expect(page).to_have_title("SLO · evenkeel")
    expect(page.get_by_text("data as of").first).to_be_visible()
    expect(page.locator("#ek-skeleton")).to_have_count(0)
    assert page.evaluate("window.hadSkeleton")
    # How soon that is, bench/first_paint.py measures.
    painted_ms, drawn_ms = page.evaluate(
        "() => ['first-contentful-paint', 'evenkeel-drawn'].map((name) =>"
        " performance.getEntriesByName(name)[0].startTime)"
    )
    assert painted_ms < drawn_ms
    expect(page.get_by_text("Stop", exact=True)).not_to_be_visible()
    page.close()


def test_an_address_without_a_page_says_which_exist(platform: Platform, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{platform.dashboard_url}/latencies?range=6h")
    expect(page.get_by_text("There is no page named 'latencies'")).to_be_visible()
    expect(page.get_by_text("Did you mean Latency?")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.locator(".ek-pages").get_by_role("link", name="Latency").click()
    expect(page.get_by_text("data as of").first).to_be_visible()
    expect(page.get_by_label("time range")).to_have_value("last 6h")
    page.close()


def test_a_range_that_is_none_says_so(platform: Platform, browser: Browser) -> None:
    page = opened(browser, f"{platform.dashboard_url}/?range=banana")
    expect(page.get_by_role("alert")).to_contain_text("'banana' is not a range; showing the last")
    page.goto(f"{platform.dashboard_url}/?tz=Mars")
    expect(page.get_by_role("alert")).to_contain_text("'Mars' is not a time zone")
    page.goto(platform.page("explore", engine="hal9000", order="luck"))
    expect(page.get_by_role("alert")).to_contain_text(
        "'luck' is not known for 'order by'; showing newest. "
        "'hal9000' is not known for 'engine'; showing all."
    )
    page.close()


def test_times_are_in_the_zone_of_the_address(platform: Platform, berlin: Page) -> None:
    shown(berlin, platform.page("", tz="local"))
    expect(berlin.get_by_text(re.compile(r"data as of \d\d:\d\d:\d\d CES?T")).first).to_be_visible()
    arrived = berlin.get_by_role("columnheader", name=re.compile(r"arrived \(CES?T\)"))
    expect(arrived.first).to_be_visible()
    expect(berlin.locator(".st-key-chart-ttft .ek-zone")).to_have_text(re.compile("^CES?T$"))
    berlin.locator(".st-key-chart-ttft .ek-plot").hover()
    said = berlin.locator(".st-key-chart-ttft").get_by_role("status")
    expect(said).to_contain_text(re.compile("CES?T"))
    # A link and the menu keep it.
    berlin.locator(".st-key-card-slowest a").first.click()
    berlin.wait_for_url(re.compile("request.*tz=local"))
    berlin.get_by_role("link", name="Alerts").first.click()
    expect(berlin.get_by_text(re.compile(r"data as of \d\d:\d\d:\d\d CES?T")).first).to_be_visible()
    shown(berlin, platform.page("explore", tz="Asia/Kolkata"))
    expect(berlin.get_by_text(re.compile(r"\d IST")).first).to_be_visible()
    assert_no_exception(berlin)


def test_a_range_is_typed_moved_and_widened(platform: Platform, browser: Browser) -> None:
    page = opened(browser, platform.page())
    page.get_by_role("button", name=re.compile("UTC")).first.click()
    page.get_by_label("from (UTC)").fill("2026-11-20 10:00")
    page.get_by_label("to (UTC)").fill("2026-11-20 09:00")
    page.get_by_role("button", name="Show this range").click()
    expect(page.get_by_text("The range ends before it starts.")).to_be_visible()
    page.get_by_label("to (UTC)").fill("2026-11-20 11:00")
    page.get_by_role("button", name="Show this range").click()
    page.wait_for_url(re.compile("from=2026-11-20T10%3A00%3A00Z&to=2026-11-20T11%3A00%3A00Z"))
    page.keyboard.press("Escape")
    settled(page)
    page.locator(".st-key-earlier button").first.click()
    page.wait_for_url(re.compile("from=2026-11-20T09%3A30%3A00Z&to=2026-11-20T10%3A30%3A00Z"))
    settled(page)
    page.locator(".st-key-zoom-out button").first.click()
    page.wait_for_url(re.compile("from=2026-11-20T09%3A00%3A00Z&to=2026-11-20T11%3A00%3A00Z"))
    page.close()


def test_a_range_longer_than_the_data_starts_with_it(platform: Platform, browser: Browser) -> None:
    page = opened(browser, f"{platform.dashboard_url}/?range=24h&live=off")
    expect(page.locator(".st-key-chart-ttft .ek-chart")).to_be_visible()
    left_ms, begin_ms, step_ms = page.evaluate(
        """() => { const { left, begin, step } = document.querySelector(
          '.st-key-chart-ttft .ek-chart').dataset; return [+left, +begin, +step] }"""
    )
    starts_ms = begin_ms + left_ms * step_ms
    assert platform.from_ms - 60_000 <= starts_ms <= platform.from_ms + 120_000
    page.close()


def test_charts_stand_under_each_other_and_share_their_crosshair(
    platform: Platform, browser: Browser
) -> None:
    page = opened(browser, platform.page())
    expect(page.locator(".ek-plot")).to_have_count(6)
    # The script widens the others' axes once all are drawn.
    page.wait_for_function(
        """() => new Set([...document.querySelectorAll('.ek-plot')].map((plot) =>
          Math.round(plot.getBoundingClientRect().left
            - plot.parentElement.getBoundingClientRect().left))).size === 1"""
    )
    # What the script draws last replaces charts, and with them the crosshair.
    settled(page)
    # Also if one of them has wider labels than the others.
    widths = page.evaluate(
        """() => {
          const charts = [...document.querySelectorAll('.ek-host')].map((host) => host.live);
          const live = charts[1];
          live.show(live.html.replace(/--ek-w:[0-9.]+ch/, '--ek-w:19ch'));
          return charts.map(({ chart }) => chart.style.getPropertyValue('--ek-w'));
        }"""
    )
    assert widths == ["19ch"] * 6
    page.locator(".st-key-chart-ttft .ek-plot").hover()
    expect(page.locator(".ek-cursor")).to_have_count(6)
    expect(page.locator(".ek-said")).to_have_count(1)
    page.mouse.move(0, 0)
    expect(page.locator(".ek-cursor")).to_have_count(0)
    page.goto(f"{platform.dashboard_url}/?range=6h&live=off")
    expect(
        page.locator(".ek-key").get_by_text(re.compile("(page|ticket) firing")).first
    ).to_be_visible()
    page.close()


def column(page: Page, number: int) -> list[str]:
    cells = page.locator(f".st-key-card-found tbody td:nth-child({number})")
    return cells.all_inner_texts()


def test_tables_sort_and_ids_are_copied(platform: Platform, browser: Browser) -> None:
    page = opened(browser, platform.page(""))
    card = page.locator(".st-key-card-slowest")
    tenant = card.get_by_role("columnheader", name="tenant")
    tenant.click()
    expect(tenant).to_have_attribute("aria-sort", "ascending")
    tenants = card.locator("tbody td:nth-child(10)").all_inner_texts()
    assert tenants == sorted(tenants)
    total = card.get_by_role("columnheader", name="total")
    total.focus()
    page.keyboard.press("Enter")
    expect(total).to_have_attribute("aria-sort", "descending")
    seconds = [
        float(text.split()[0]) for text in card.locator("tbody td:nth-child(5)").all_inner_texts()
    ]
    assert seconds == sorted(seconds, reverse=True)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    card.locator(".ek-copy").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.endswith(card.locator("tbody a").first.inner_text().strip("…"))
    page.close()


def test_a_table_drawn_again_keeps_its_order_and_its_focus(
    platform: Platform, browser: Browser
) -> None:
    page = opened(browser, platform.page(""))
    card = page.locator(".st-key-card-slowest")
    draw_again = (
        "table => { const box = table.parentElement; box.innerHTML ="
        " box.innerHTML.replace('data-sorts', 'data-drawn') }"
    )
    # A click on a header that the script has not reached yet counts too.
    card.locator("table").evaluate(
        "table => { const head = [...table.querySelectorAll('th')].find((th) =>"
        " th.textContent === 'tenant'); head.className = ''; head.click() }"
    )
    tenant = card.get_by_role("columnheader", name="tenant")
    expect(tenant).to_have_attribute("aria-sort", "ascending")
    tenant.focus()
    card.locator("table").evaluate(draw_again)
    expect(tenant).to_have_attribute("aria-sort", "ascending")
    expect(tenant).to_be_focused()
    link = card.locator("tbody a").nth(1)
    link.focus()
    card.locator("table").evaluate(draw_again)
    expect(link).to_be_focused()
    # What the user leaves is not taken up again.
    link.evaluate("link => link.blur()")
    card.locator("table").evaluate(draw_again)
    page.wait_for_timeout(300)
    assert page.evaluate("document.activeElement === document.body")
    page.close()


@pytest.mark.parametrize("width", [1440, 1000, 390])
def test_a_tile_has_room_for_three_long_values(
    platform: Platform, browser: Browser, width: int
) -> None:
    page = opened(browser, platform.page(""))
    page.set_viewport_size({"width": width, "height": 900})
    over = page.locator(".ek-tile.ek-span .ek-value").evaluate(
        "(box) => { box.textContent = '97.3 ms · 97.5 ms · 98.1 ms';"
        " return box.scrollWidth - box.clientWidth }"
    )
    assert over <= 0
    page.close()


def test_a_refresh_does_not_fade_the_page(platform: Platform, browser: Browser) -> None:
    page = opened(browser, platform.page(""))
    # By the clock of the fade: the page's own may be kept waiting for seconds.
    lasted = page.locator("[data-testid=stElementContainer]:has(.ek-verdict)").evaluate(
        "(box) => { box.dataset.stale = 'true'; box.style.opacity = 0.33;"
        " const [fade] = box.getAnimations(); fade.pause(); fade.currentTime = 2500;"
        " return getComputedStyle(box).opacity }"
    )
    assert lasted == "1"
    page.close()


def test_back_returns_to_where_one_was(platform: Platform, browser: Browser) -> None:
    page = opened(browser, platform.page())
    expect(page.locator(".st-key-card-slowest tbody a").first).to_be_visible()
    link = page.locator(".st-key-card-slowest tbody a").nth(8)
    place_of(link)
    scrolled = page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop")
    assert scrolled > 300
    link.click()
    expect(page.get_by_text("Other requests in flight")).to_be_visible()
    # A busy machine may take long to draw the page again: at first the one that was left is still
    # there, which may be long, and then it is too short.
    style = page.add_style_tag(content="[data-testid=stMainBlockContainer] { height: 9000px }")
    page.go_back()
    style.evaluate(
        "async (style) => { const pause = () => new Promise((then) => setTimeout(then, 500));"
        " style.textContent = '[data-testid=stMainBlockContainer] { display: none }';"
        " await pause();"
        " const now = performance.now.bind(performance); performance.now = () => now() + 10_000;"
        " await pause();"
        " style.remove() }"
    )
    page.wait_for_function(
        f"Math.abs(document.querySelector('[data-testid=stMain]').scrollTop - {scrolled}) < 30"
    )
    page.close()


def test_the_keyboard_finds_and_helps(platform: Platform, browser: Browser) -> None:
    page = opened(browser, platform.page())
    expect(page.locator(".ek-th").first).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("j")
    expect(page.locator(".ek-table tbody a").first).to_be_focused()
    page.keyboard.press("/")
    page.wait_for_url(re.compile("/request"))
    expect(page.get_by_role("textbox").first).to_be_focused()
    page.keyboard.type("?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.close()


def test_on_a_telephone_the_menu_closes_when_a_page_is_chosen(
    platform: Platform, browser: Browser
) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 1000})
    menu = page.get_by_test_id("stSidebar")
    page.goto(platform.page())
    # Opened as early as a page can be, it must not be closed by what the page loads later.
    page.get_by_test_id("stExpandSidebarButton").click()
    expect(page.get_by_text("data as of").first).to_be_visible()
    settled(page)
    page.wait_for_timeout(1_000)
    expect(menu).to_have_attribute("data-collapsed", "false")
    page.get_by_test_id("stSidebarNavLink").filter(has_text="Alerts").click()
    expect(menu).to_have_attribute("data-collapsed", "true")
    expect(page.get_by_text("Resolved in this range")).to_be_visible()
    expect(menu).not_to_be_in_viewport()
    page.get_by_test_id("stExpandSidebarButton").click()
    expect(menu).to_have_attribute("data-collapsed", "false")
    page.reload()
    expect(page.get_by_text("Resolved in this range")).to_be_visible()
    expect(menu).not_to_be_in_viewport()
    page.close()


def test_a_link_of_one_zone_shows_the_same_view(platform: Platform) -> None:
    url = httpx.URL(platform.page("", tz="local"))
    fixed = Selection.from_params(dict(url.params))
    assert fixed.to_params()["from"] == format_time_ms(platform.from_ms)
    assert fixed.to_params()["tz"] == "local"
