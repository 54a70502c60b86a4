"""The HTML report in a browser: nothing runs but its search, and it fits a phone's width."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from evenkeel_evals.ask.answers import Answer, AnsweredPair
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.dataset.dataset import Item, Message
from evenkeel_evals.report.html import to_html
from evenkeel_evals.scorers.base import Label, Score, make_scorer
from evenkeel_evals.verdict.finished_run import Outcome
from evenkeel_evals.verdict.gates import parse_gates
from tests.fixtures.browser import running_browser
from tests.unit.evals.finished_run import finish

NASTY = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
QUESTIONS = ["Where is my parcel?", f"A lamp {NASTY}", "w" * 3_000]


def outcome() -> Outcome:
    pairs = []
    for index in range(30):
        question = QUESTIONS[index % 3]
        scorer = make_scorer("exact", "yes")
        tags = ("shipping",) * (index % 2)
        item = Item(f"item-{index}", (Message("user", question),), "yes", scorer, tags, str(index))
        right = Answer(Reply(0, 10, text="yes"), Score(1.0, Label.RIGHT), "a" * 32, "b" * 16)
        wrong = Answer(Reply(0, 10, text=question), Score(0.0, Label.WRONG), "c" * 32, "d" * 16)
        pairs.append(AnsweredPair(index, item, "A", right, wrong))
    return finish(pairs, parse_gates("accuracy>=-1%"))


@pytest.fixture(params=[390, 1400])
def page(request: pytest.FixtureRequest, chromium: str, tmp_path: Path) -> Iterator[Page]:
    file = tmp_path / "report.html"
    file.write_text(to_html(outcome(), "http://127.0.0.1:8501"), encoding="utf-8")
    with running_browser(chromium) as browser:
        page = browser.new_page(viewport={"width": request.param, "height": 844})
        page.goto(file.as_uri())
        yield page


def test_the_search_leaves_the_items_that_have_every_word(page: Page) -> None:
    page.locator("#search").fill("PARCEL shipping")
    page.get_by_text("5 of 30 items").wait_for()
    shown = page.locator("details.item:visible summary").all_inner_texts()
    assert [text.split()[1] for text in shown] == [f"item-{i}" for i in (15, 21, 27, 3, 9)]
    page.locator("#search").fill("")
    expect(page.locator("details.item:visible")).to_have_count(30)


def test_nothing_of_an_answer_runs_and_nothing_is_wider_than_the_screen(page: Page) -> None:
    page.wait_for_timeout(200)
    assert "broken" not in page.title()
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
