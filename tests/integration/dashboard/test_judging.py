"""Decisions on the Evals and Request pages: promotion, rollback, reviews, feedback."""

import re
from contextlib import suppress

import httpx
import pytest
from playwright.sync_api import Browser, Page, TimeoutError, expect

from evenkeel import spans
from evenkeel.prompts.registry import digest
from evenkeel.store import Store
from tests.fixtures.collector_process import wait_for
from tests.fixtures.dashboard_process import (
    NEW_PROMPT,
    OLD_PROMPT,
    RUN_ID,
    Platform,
    assert_no_exception,
    opened,
    settled,
)
from tests.fixtures.otlp_payload import trace_request
from tests.queries import query

TIMELINE = re.compile(
    r"tokens in \d+ emissions, \d+ of \d+ drafted tokens accepted, \d+ stalls? .*; first token .*; "
    r"stall of .* after arrival; .* prompt tokens .* from the prefix cache"
)


def newest_action(platform: Platform) -> dict[str, object]:
    entry: dict[str, object] = httpx.get(f"{platform.http_url}/api/audit").json()["entries"][0]
    return entry


def test_a_run_that_regressed_promotes_nothing(platform: Platform) -> None:
    order = {"prompt": "support", "version": digest(NEW_PROMPT), "run_id": RUN_ID, "by": "ann"}
    response = httpx.post(f"{platform.http_url}/api/promote", json=order)
    assert response.status_code == 400 and "did not pass: regressed" in response.text
    assert platform.prompts.labels("support") == {"production": digest(OLD_PROMPT)}


def test_a_prompt_is_promoted_and_rolled_back_in_the_browser(
    platform: Platform, browser: Browser
) -> None:
    page = opened(browser, f"{platform.dashboard_url}/evals?live=off")
    page.get_by_text("Promote or roll back").click()
    expect(page.get_by_text("in one word")).to_be_visible()
    form = page.locator("[data-testid=stForm]", has_text="Promote to")
    form.get_by_label("your name, for the audit log").fill("ann")
    form.get_by_label("reason, without a run").fill("shorter answers")
    form.get_by_role("button", name="Promote to production").click()
    expect(page.locator(".st-key-card-labels")).to_contain_text(
        "forced: shorter answers (ann)", timeout=120_000
    )
    assert platform.prompts.labels("support") == {"production": digest(NEW_PROMPT)}
    entry = newest_action(platform)
    assert (entry["by"], entry["action"]) == ("ann", "promote")
    back = page.locator("[data-testid=stForm]", has_text="Roll back")
    back.get_by_label("your name, for the audit log").fill("bob")
    back.get_by_role("button", name="Roll back").click()
    expect(page.locator(".st-key-card-labels")).to_contain_text("rolled back (bob)")
    assert platform.prompts.labels("support") == {"production": digest(OLD_PROMPT)}
    assert newest_action(platform)["action"] == "rollback"
    assert_no_exception(page)
    page.close()


@pytest.fixture
def earlier_runs(platform: Platform) -> None:
    """Runs with passing gates: one passed; the others broke items, or compared something else."""
    for run_id, verdict, candidate, others in (
        ("passed", "no worse", digest(NEW_PROMPT), ""),
        ("broken", "regressed", digest(NEW_PROMPT), ""),
        ("other", "no worse", "0123456789ab", ""),
        ("more", "no worse", digest(NEW_PROMPT), "model"),
    ):
        attributes = {
            spans.EVAL_RUN_ID: run_id,
            spans.EVAL_GATE: "accuracy>=-1%",
            spans.EVAL_SLICE: "overall",
            spans.EVAL_VERDICT: "no worse",
            spans.EVAL_RUN_VERDICT: verdict,
            spans.EVAL_BASELINE_TEXT: digest(OLD_PROMPT),
            spans.EVAL_CANDIDATE_TEXT: candidate,
            spans.EVAL_OTHER_CHANGES: others,
        }
        at_ns = (platform.from_ms - 60_000) * 10**6
        body = trace_request(1, attributes, spans.SPAN_EVALUATION_RUN, start_ns=at_ns)
        response = httpx.post(
            f"{platform.http_url}/v1/traces",
            content=body.SerializeToString(),
            headers={"content-type": "application/x-protobuf"},
        )
        assert response.status_code == 200, response.text
    store = Store(platform.query_url)
    known = {"passed", "broken", "other", "more"}
    wait_for(
        lambda: known <= {row["run_id"] for row in store.rows(query("eval_runs"), {"run_id": ""})}
    )
    store.close()


@pytest.mark.usefixtures("earlier_runs")
def test_only_runs_that_passed_are_offered(platform: Platform, browser: Browser) -> None:
    page = opened(browser, f"{platform.dashboard_url}/evals?live=off")

    def is_list_open() -> bool:
        # What the page draws last closes a list opened before: as people do, click again.
        page.get_by_label("passing run").click()
        with suppress(TimeoutError):
            page.get_by_role("option").first.wait_for(timeout=5_000)
        return page.get_by_role("option").first.is_visible()

    def are_offered() -> bool:
        # Pages of the tests before have read the runs; what they read is cached for seconds.
        page.reload()
        listed = page.locator(".st-key-card-runs tr", has_text="broken")
        expect(listed).to_contain_text("regressed")
        settled(page)
        page.get_by_text("Promote or roll back").click()
        settled(page)
        wait_for(is_list_open)
        options = page.get_by_role("option").all_inner_texts()
        assert set(options) <= {"none (give a reason)", "passed"}
        return options == ["none (give a reason)", "passed"]

    wait_for(are_offered)
    assert_no_exception(page)
    page.close()


def test_an_answer_is_judged_reviewed_and_leaves_the_queue(
    platform: Platform, browser: Browser
) -> None:
    store = Store(platform.query_url)
    sql = "SELECT trace_id FROM requests WHERE drafted_tokens > 40 ORDER BY stall_s DESC LIMIT 1"
    trace_id = str(store.free_frame(sql, 1, 10.0)["trace_id"][0])
    page = opened_request(browser, platform, trace_id)
    timeline = page.locator(".st-key-chart-request-tokens .ek-chart")
    expect(timeline).to_have_attribute("aria-label", TIMELINE)
    timeline.press("ArrowRight")
    expect(timeline.get_by_role("status")).to_contain_text("rejected drafts0 tokens")
    page.get_by_text("Rate this answer").click()
    form = page.locator("[data-testid=stForm]", has_text="the right answer")
    form.get_by_role("radio", name="bad").click()
    form.get_by_label("why").fill("the price is another one")
    form.get_by_label("your name, for the audit log").fill("kim")
    form.get_by_role("button", name="Send").click()
    expect(page.get_by_text("will appear in a moment")).to_be_visible()
    page.close()
    recent = {"from_ms": platform.from_ms, "limit": 5}
    wait_for(lambda: len(store.rows(query("golden_candidates"), recent)) == 1)

    page = opened(browser, f"{platform.dashboard_url}/evals?live=off")
    queue = page.locator(".st-key-card-review")
    queue.get_by_text("person: the price is another one").first.click()
    queue.get_by_label("what the answer should be").fill("9 EUR")
    queue.get_by_label("your name, for the audit log").fill("lee")
    queue.get_by_role("button", name="Accept").click()
    expect(page.get_by_text("Accepted.")).to_be_visible()
    assert_no_exception(page)
    page.close()
    wait_for(lambda: not store.rows(query("golden_candidates"), recent))
    (row,) = store.rows(
        query("failed_answers"), {"since_ns": platform.from_ms * 10**6, "limit": 10}
    )
    store.close()
    assert (row["trace_id"], row["review"], row["corrected"]) == (trace_id, "golden", "9 EUR")
    entry = newest_action(platform)
    assert (entry["by"], entry["action"]) == ("lee", "review")
    assert "9 EUR" not in str(entry["details"]), "what people write is redacted, the audit is not"


def opened_request(browser: Browser, platform: Platform, trace_id: str) -> Page:
    page = browser.new_page()
    page.goto(f"{platform.dashboard_url}/request?trace_id={trace_id}")
    expect(page.get_by_text("Evaluation and feedback")).to_be_visible()
    return page
