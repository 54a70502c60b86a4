"""Report files are complete, escaped and deterministic."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.report.changes import ChangeKind, count_changes, diff, find_changes
from evenkeel_evals.report.files import write_files
from evenkeel_evals.report.junit import to_junit
from evenkeel_evals.report.manifest import to_manifest
from evenkeel_evals.verdict.finished_run import Outcome
from tests.unit.evals.finished_run import finish, says

MakePair = Callable[..., AnsweredPair]
NASTY = "<script>alert(1)</script> a & b \x00 \ud800"


@pytest.fixture
def outcome(make_pair: MakePair) -> Outcome:
    pairs = [make_pair(i, True, i % 3 > 0, tags=("odd",) * (i % 2)) for i in range(90)]
    pairs[3] = says(pairs[3], "open 9 to 5", f"open 9 to 6 {NASTY}")
    pairs[4] = says(pairs[4], "same score", "other words")
    return finish(pairs)


def test_no_file_of_a_report_has_a_servers_password(outcome: Outcome, tmp_path: Path) -> None:
    url = "http://me:hunter2@gateway:8000"
    sides = {letter: replace(side, url=url) for letter, side in outcome.sides.items()}
    write_files(replace(outcome, sides=sides), tmp_path, "http://d")
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert [name for name, text in texts.items() if "hunter2" in text] == []
    assert '"http://gateway:8000"' in texts["run.json"]
    assert '"http://gateway:8000"' in texts["manifest.json"]


def test_changes_come_in_the_order_of_interest(outcome: Outcome) -> None:
    assert count_changes(outcome.pairs) == {
        ChangeKind.LOST: 30,
        ChangeKind.GAINED: 0,
        ChangeKind.UNSCORED: 0,
        ChangeKind.REWORDED: 1,
    }
    changes = find_changes(outcome.pairs, 100)
    assert [c.kind for c in changes] == [ChangeKind.LOST] * 30 + [ChangeKind.REWORDED]
    assert len(find_changes(outcome.pairs, 5)) == 5


def test_a_diff_marks_the_words_that_differ() -> None:
    left, right = diff("open 9 to 5 daily", "open 9 to 6 daily")
    assert [(s.text, s.is_changed) for s in left] == [
        ("open 9 to ", False),
        ("5", True),
        (" daily", False),
    ]
    assert [s.text for s in right if s.is_changed] == ["6"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param("all of it", "is not there", id="all"),
        pytest.param("", "new", id="nothing before"),
        pytest.param("a b c d e f", "a c b d f e", id="moved"),
    ],
)
def test_marks_take_in_what_stands_between_two_of_them(a: str, b: str) -> None:
    for side in diff(a, b):
        inner = [s.text for s in side[1:-1] if not s.is_changed]
        assert all(re.search(r"\w", text) for text in inner)


def test_long_answers_without_a_word_in_common_are_compared_quickly() -> None:
    a = " ".join(f"x{i}" for i in range(1_900))
    b = " ".join(f"y{i}" for i in range(1_900))
    began_s = time.process_time()
    left, right = diff(f"both {a} end", f"both {b} end")
    assert time.process_time() - began_s < 5
    assert [s.is_changed for s in left] == [s.is_changed for s in right] == [False, True, False]


@given(st.text(alphabet="ab \n.", max_size=30), st.text(alphabet="ab \n.", max_size=30))
def test_what_is_not_marked_is_the_same_on_both_sides(a: str, b: str) -> None:
    left, right = diff(a, b)
    kept = [[s.text for s in side if not s.is_changed] for side in (left, right)]
    words = [re.findall(r"\w+", "|".join(texts)) for texts in kept]
    assert words[0] == words[1]
    assert a != b or (kept[0] == [a] if a else left == ())


LONG = "s" * 30_000


@pytest.mark.parametrize(
    ("a", "b", "marked"),
    [
        pytest.param(f"{LONG}a{LONG}", f"{LONG}b{LONG}", ["a", "b"], id="one"),
        pytest.param(LONG, f"{LONG}s", ["s"], id="one more"),
        pytest.param(LONG, "", [LONG], id="nothing"),
        pytest.param(LONG, LONG, [], id="the same"),
    ],
)
def test_of_very_long_answers_the_part_that_differs_is_marked(
    a: str, b: str, marked: list[str]
) -> None:
    left, right = diff(a, b)
    assert ("".join(s.text for s in left), "".join(s.text for s in right)) == (a, b)
    assert [s.text for s in (*left, *right) if s.is_changed] == marked


@given(st.text(), st.text())
def test_the_pieces_of_a_diff_are_the_texts(a: str, b: str) -> None:
    left, right = diff(a, b)
    assert ("".join(s.text for s in left), "".join(s.text for s in right)) == (a, b)


def test_junit_has_a_case_a_gate_and_slice(outcome: Outcome) -> None:
    suite = ElementTree.fromstring(to_junit(outcome)).find("testsuite")
    assert suite is not None
    cases = suite.findall("testcase")
    assert suite.get("tests") == str(len(cases)) == str(1 + len(outcome.results))
    failed = {(c.get("name"), c.get("classname")) for c in cases if c.find("failure") is not None}
    assert ("accuracy>=-1%", "overall") in failed
    assert suite.get("failures") == str(len(failed))
    figures = [c.get("message") or "" for c in suite.iter("failure")]
    assert any(re.search(r"change -\d+\.\d pp, 95% interval -\d+\.\d pp to", f) for f in figures)


def test_junit_tells_a_regression_from_missing_scores(make_pair: MakePair) -> None:
    pairs = [make_pair(i, True, None if i % 4 == 0 else i % 4 > 1) for i in range(200)]
    both = finish(pairs)
    assert both.decision.exit_code == 1
    suite = ElementTree.fromstring(to_junit(both)).find("testsuite")
    assert suite is not None
    (error,) = suite.findall("testcase[@classname='run']/error")
    assert error.attrib["message"].startswith("could not measure: 50 of 200 pairs have no score")
    assert suite.findall("testcase/failure")


def test_junit_says_when_a_run_could_not_measure(make_pair: MakePair) -> None:
    broken = finish([make_pair(i, True, None) for i in range(20)])
    suite = ElementTree.fromstring(to_junit(broken)).find("testsuite")
    assert suite is not None and int(suite.get("errors", "0")) >= 1
    assert "HTTP 500: broken" in (suite.find("testcase/error").get("message") or "")  # type: ignore[union-attr]


def test_the_manifest_tells_a_changed_prompt(outcome: Outcome) -> None:
    manifest = to_manifest(outcome)
    prompts = manifest["prompts"]
    assert prompts["baseline"]["content_hash"] != prompts["candidate"]["content_hash"]
    assert manifest["engine"] == {"baseline": "0.32.0", "candidate": None}
    assert manifest["dataset"]["content_hash"] == "sha256:00"
    assert manifest["configuration"]["gates"] == ["accuracy>=-1%", "shift_ttft<=+3%"]
    assert manifest["sides"]["candidate"]["system"] == "Be brief."


def test_the_manifest_tells_anbetween_judge_or_more_repeats(outcome: Outcome) -> None:
    asked = {"judge": "sha256:01", "repeats": 3, "warmup": 4, "prices": None, "seed": 9}
    configuration = to_manifest(replace(outcome, identity=asked))["configuration"]
    assert {name: configuration[name] for name in asked} == asked | {"seed": outcome.seed}
    assert "judge" not in to_manifest(outcome)["configuration"]


def test_the_same_run_gives_the_same_bytes(outcome: Outcome, tmp_path: Path) -> None:
    write_files(outcome, tmp_path, "http://d")
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_files(outcome, tmp_path, "http://d")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    assert set(first) == {"run.json", "manifest.json", "report.md", "report.html", "junit.xml"}
    assert json.loads(first["run.json"])["exit_code"] == 1
    assert b"| i0 |" in first["report.md"]
