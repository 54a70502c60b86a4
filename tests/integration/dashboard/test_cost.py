"""The page Cost on a real store: the bill is that of the requests, and leads to them."""

import json

import httpx
import pytest
from playwright.sync_api import Browser, expect

from evenkeel.store import Store
from evenkeel.times import rfc3339
from evenkeel_dashboard.draw import formats
from tests.fixtures.dashboard_process import (
    ROOT,
    Platform,
    assert_no_exception,
    evenkeel,
    opened,
    overflow,
)

BILL = ROOT / "tests" / "integration" / "dashboard" / "bill.sql"


def bill(platform: Platform) -> dict[str, float]:
    """Return the bill of the requests themselves, in the minutes that the page shows."""
    store = Store(platform.query_url)
    (row,) = store.rows(BILL, platform.range())
    store.close()
    return dict(row)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_the_bill_is_that_of_the_requests(
    platform: Platform, browser: Browser, scheme: str, width: int
) -> None:
    page = opened(browser, platform.page("cost"), scheme, width)
    found = bill(platform)
    shown = page.locator("[data-tile=bill]")
    expect(shown).to_have_text(formats.money(found["cost"], "EUR"))
    unpriced = page.locator("[data-unpriced]")
    expect(unpriced).to_contain_text("have no cost and are not in the bill. llama")
    expect(unpriced).to_contain_text(f"{found['num_without']:,.0f} requests")
    saved = page.locator(".st-key-card-cost-saved tbody tr", has_text="provider's cache")
    expect(saved).to_contain_text(formats.money(found["saved"], "EUR"))
    for card in ("bill", "cost-cohorts", "cost-changes", "cost-wasted"):
        expect(page.locator(f".st-key-card-{card}")).to_be_visible()
    assert_no_exception(page)
    assert overflow(page) == 0
    page.close()


def test_a_cohort_leads_to_its_bill_and_to_its_requests(
    platform: Platform, browser: Browser
) -> None:
    page = opened(browser, platform.page("cost"))
    row = page.locator(".st-key-card-cost-cohorts tbody tr").first
    tenant = row.locator("td").first.inner_text()
    row.locator("a").nth(1).click()
    page.wait_for_url(lambda url: "/explore" in url)
    assert httpx.URL(page.url).params["tenant"] == tenant
    page.go_back()
    page.locator(".st-key-card-cost-cohorts tbody tr").first.locator("a").first.click()
    page.wait_for_url(lambda url: f"tenant={tenant}" in url)
    expect(page.locator(".st-key-card-cost-cohorts tbody tr")).to_have_count(1)
    assert_no_exception(page)
    page.close()


def test_what_would_be_saved_without_a_tenant_is_told_when_asked(
    platform: Platform, browser: Browser
) -> None:
    page = opened(browser, platform.page("cost"))
    expect(page.locator(".st-key-card-cost-without")).to_have_count(0)
    page.locator(".st-key-card-cost-cohorts tbody tr").first.locator("a").first.click()
    card = page.locator(".st-key-card-cost-without")
    expect(card).to_be_visible()
    card.get_by_role("button", name="Replay the range").click()
    # The requests of this store come from no engine of our own.
    expect(card).to_contain_text("The saving is unknown: no steps of an engine are stored")
    assert_no_exception(page)
    page.close()


def test_the_export_adds_up_to_the_page(platform: Platform) -> None:
    begin, end = (f"{ms // 60_000 * 60}" for ms in (platform.from_ms, platform.to_ms + 59_999))
    begin, end = (_text(int(seconds)) for seconds in (begin, end))
    command = evenkeel(
        "export", "costs", "--from", begin, "--to", end, "--out", "/dev/null", "--json",
        "--store-url", platform.query_url,
    )  # fmt: skip
    out, err = command.communicate(timeout=300)
    assert command.returncode == 0, err
    assert json.loads(out)["usage_cost"] == pytest.approx(bill(platform)["cost"])


def _text(seconds: int) -> str:
    return rfc3339(seconds * 10**9, "seconds")
