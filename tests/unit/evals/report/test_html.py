"""The HTML report is escaped, bounded for any answers, and says what it left out."""

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.dataset.dataset import Message
from evenkeel_evals.report.changes import Segment
from evenkeel_evals.report.html import MAX_BYTES, MAX_TEXT_CHARS, show, to_html
from tests.unit.evals.finished_run import finish, says

MakePair = Callable[..., AnsweredPair]
NASTY = "<script>alert(1)</script> a & b \x00 \ud800"
EXPANDING = "'\"<&" * 50_000


@pytest.fixture
def page(make_pair: MakePair) -> str:
    pairs = [make_pair(i, True, i % 3 > 0, tags=("odd",) * (i % 2)) for i in range(90)]
    pairs[3] = says(pairs[3], "open 9 to 5", f"open 9 to 6 {NASTY}")
    item = replace(pairs[6].item, id=f"id {NASTY}", tags=(NASTY,), reference={"a": NASTY})
    pairs[6] = replace(pairs[6], item=item)
    return to_html(finish(pairs), "http://dash:8501/")


def test_it_shows_the_run_and_links_to_traces(page: str) -> None:
    assert f'href="http://dash:8501/request?trace_id={"a" * 32}"' in page
    assert "<mark>5</mark>" in page and "30 lost, 0 gained" in page
    assert "regressed: accuracy&gt;=-1% on overall" in page


def test_it_needs_nothing_else_and_escapes_everything(page: str) -> None:
    assert "&lt;script&gt;alert(1)" in page and "<script>alert" not in page
    assert "src=" not in page and "@import" not in page and "<link" not in page
    page.encode("utf-8", "replace").decode()


def test_only_its_own_script_may_run(page: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(EXPANDING, id="characters that grow when escaped"),
        pytest.param("a 'b' " * 40_000, id="many words"),
        pytest.param("\U0001f600" * 200_000, id="four bytes each"),
        pytest.param(" ".join(f"<{i}>" for i in range(1_500)), id="changes everywhere"),
    ],
)
def test_it_is_below_its_bound_whatever_the_answers_are(make_pair: MakePair, text: str) -> None:
    pairs = []
    for index in range(600):
        pair = says(
            make_pair(index, True, False, tags=(text + str(index % 300),)), text, f"x {text[3:]} y"
        )
        turns = tuple(Message("user", text) for _ in range(40))
        item = replace(pair.item, id=f"{text}{index}", messages=turns, reference=[text])
        pairs.append(replace(pair, item=item))
    page = to_html(finish(pairs), "http://dash:8501")
    assert len(page.encode("utf-8", "replace")) < MAX_BYTES
    shown = page.count('<details class="item"')
    assert 0 < shown <= 300
    assert f"The first {shown} are shown; journal.jsonl has all." in page
    assert "28 more turns are left out" in page and "more characters are left out" in page
    assert "more rows are left out; run.json has all" in page


def test_of_a_long_text_the_part_around_its_first_change_is_shown() -> None:
    same, other = Segment("s" * 10_000, False), Segment("other", True)
    shown = show((same, other, same))
    assert other in shown.segments
    assert sum(len(s.text) for s in shown.segments) == MAX_TEXT_CHARS
    assert shown.num_before + MAX_TEXT_CHARS + shown.num_after == 20_005


@pytest.mark.parametrize(
    "segments",
    [
        pytest.param((), id="nothing"),
        pytest.param((Segment("short", True),), id="short"),
        pytest.param((Segment("s" * 3_900, False), Segment("end", True)), id="just short enough"),
    ],
)
def test_a_short_text_is_shown_whole(segments: tuple[Segment, ...]) -> None:
    shown = show(segments)
    assert (shown.segments, shown.num_before, shown.num_after) == (segments, 0, 0)


def test_a_long_text_that_is_the_same_is_shown_from_its_beginning() -> None:
    shown = show((Segment("s" * 5_000, False),))
    assert (shown.num_before, shown.num_after) == (0, 1_000)
