"""`eval run` and `compare` with rubrics and Python assertions, made once, after the answers."""

import json
import shlex
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenkeel.cli import main
from evenkeel_evals.ask.journal import Journal
from evenkeel_evals.ask.recorded_run import RecordedRun
from evenkeel_evals.ask.run_checks import open_checks
from evenkeel_evals.ask.schedule import PlannedPair
from evenkeel_evals.commands.eval import EVAL
from evenkeel_evals.scorers.base import LateCheck, Score, make_scorer
from tests.fixtures.eval_setup import write_dataset
from tests.unit.evals.ask.flaky_server import FlakyServer

NUM_ITEMS = 24
RUBRIC = {"scorer": "rubric", "reference": "answers the question"}
PYTHON = {"scorer": {"name": "python", "file": "checks.py"}, "reference": None}
CODE = """
def get_assert(output, context):
    return {"pass": output.startswith("say") and context["e2e_s"] > 0, "reason": "as asked"}
"""


def speak(system: str, question: str) -> str:
    """Side b fails every third item, and the judge detects it."""
    if "against one criterion" in system:
        return "No." if "no idea" in question else "Yes."
    if "compare two answers" in system:
        return "2" if "Answer 1:\nno idea" in question else "1"
    return "no idea" if system == "b" and int(question.split()[-1]) % 3 == 0 else question


@pytest.fixture
def server() -> Iterator[FlakyServer]:
    with FlakyServer() as running:
        running.speak = speak
        yield running


def judged_dataset(folder: Path, judged_by: dict[str, Any]) -> Path:
    write_dataset(folder, NUM_ITEMS, judged_by)
    (folder / "checks.py").write_text(CODE)
    (folder / "judge.toml").write_text('model = "m"\n')
    return folder


def run(server: FlakyServer, dataset: Path, *flags: str, report: str = "report") -> list[str]:
    return [
        *("eval", "run", str(dataset), "--baseline", str(dataset / "a.toml")),
        *("--candidate", str(dataset / "b.toml"), "--gate", "accuracy>=-5%", "--json"),
        *("--url", server.url, "--otlp-endpoint", "none", "--warmup", "0", "--concurrency", "2"),
        *("--report", str(dataset.parent / report), "--allow-inconclusive", *flags),
    ]


def judged(dataset: Path) -> tuple[str, str]:
    return "--judge", str(dataset / "judge.toml")


def rubrics(server: FlakyServer) -> Counter[str]:
    asked = server.answered.items()
    return Counter({text: n for text, n in asked if "against one criterion" in text})


def test_rubrics_are_asked_after_the_answers_and_once_per_text(
    server: FlakyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = judged_dataset(tmp_path / "echo", RUBRIC)
    assert main(run(server, dataset), [EVAL]) == 2
    assert "item 'q0' and 23 more: rubric assertions need a judge model" in capsys.readouterr().err
    assert server.num_requests == 0
    order: list[bool] = []
    server.on_answer = lambda _: order.append("against one" in list(server.answered)[-1])
    assert main(run(server, dataset, *judged(dataset)), [EVAL]) == 1
    first = capsys.readouterr().out
    record = json.loads(first)
    assert (record["num_pairs"], record["num_unmeasured"]) == (NUM_ITEMS, 0)
    assert (record["baseline"]["accuracy"], record["candidate"]["accuracy"]) == (1.0, 16 / 24)
    assert record["judge"] is None, "no gate is on preference"
    # Identical answers from both sides are one question: 24 of a's, and b's 8 wrong ones.
    assert order == [False] * 48 + [True] * 32
    assert main(run(server, dataset, *judged(dataset)), [EVAL]) == 1
    assert capsys.readouterr().out == first
    assert len(order) == 80


def test_one_judge_serves_rubrics_and_preference(
    server: FlakyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = judged_dataset(tmp_path / "echo", RUBRIC)
    flags = (*judged(dataset), "--gate", "accuracy>=-5%, preference>=-5%", "--guard")
    assert main(run(server, dataset, *flags), [EVAL]) == 1
    record = json.loads(capsys.readouterr().out)
    overall = {r["metric"]: r for r in record["results"] if r["slice"] == "overall"}
    assert overall["preference"]["estimate"] == pytest.approx(-8 / 24)
    assert overall["accuracy"]["estimate"] == pytest.approx(-8 / 24)
    assert (rubrics(server).total(), server.answered.total()) == (32, 48 + 32 + 2 * 8)


def test_the_guard_leaves_out_items_that_are_judged_late(
    server: FlakyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_seven(system: str, question: str) -> str:
        return "no idea" if system == "b" and question == "say 7" else speak("", question)

    dataset = judged_dataset(tmp_path / "echo", PYTHON)
    server.speak = break_seven
    flags = ("--allow-python", "--guard", "--gate", "accuracy>=-30%")
    assert main(run(server, dataset, *flags), [EVAL]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["candidate"]["accuracy"], record["broken_items"]) == (23 / 24, [])
    assert server.answered.total() == 48


@pytest.mark.parametrize("gate", ["accuracy>=-5%", "preference>=-5%"])
def test_a_run_whose_judge_refuses_the_key_goes_on_with_the_right_one(
    gate: str, server: FlakyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    is_rubric = gate.startswith("accuracy")
    dataset = judged_dataset(tmp_path / "echo", RUBRIC if is_rubric else {})
    flags = (*judged(dataset), "--gate", gate)
    assert main(run(server, dataset, *flags, report="whole"), [EVAL]) == 1
    whole = json.loads(capsys.readouterr().out)
    # The models are listed for everyone, as by many gateways.
    server.refusals = [*[False] * 48, *[(401, {})] * 99]
    assert main(run(server, dataset, *flags), [EVAL]) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert "HTTP 401" in line and "EVENKEEL_EVAL_JUDGE_API_KEY" in line
    assert "48 of 48 answers are saved; resume with: " in line
    server.refusals = []
    assert main(run(server, dataset, *flags), [EVAL]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["judge"]) == (whole["verdict"], whole["judge"])


def test_a_run_whose_judge_goes_away_goes_on_and_asks_nothing_twice(
    server: FlakyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = judged_dataset(tmp_path / "echo", RUBRIC)
    assert main(run(server, dataset, *judged(dataset), report="whole"), [EVAL]) == 1
    whole = json.loads(capsys.readouterr().out)
    server.answered.clear()

    def leave(_: int) -> None:
        if rubrics(server).total() == 10:
            server.hold()
            threading.Thread(target=server.go_away).start()

    server.delay_s, server.on_answer = 0.01, leave
    assert main(run(server, dataset, *judged(dataset), "--retry-s", "0.3"), [EVAL]) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert "48 of 48 answers are saved; resume with: " in line
    assert 10 <= rubrics(server).total() < 32
    server.on_answer = lambda _: None
    server.come_back()
    command = shlex.split(line.partition("resume with: ")[2])
    assert main(command[1:], [EVAL]) == 1
    record = json.loads(capsys.readouterr().out)
    for key in ("headline", "num_pairs", "num_unmeasured"):
        assert record[key] == whole[key]
    assert [r["estimate"] for r in record["results"]] == [r["estimate"] for r in whole["results"]]
    asked = rubrics(server)
    # Calls in flight may have been answered without being read: at most two.
    assert len(asked) == 32 and asked.total() <= 34
    assert server.answered.total() - asked.total() == 48


def test_python_assertions_run_if_they_are_allowed_and_are_part_of_the_run(
    server: FlakyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = judged_dataset(tmp_path / "echo", PYTHON)
    assert main(run(server, dataset), [EVAL]) == 2
    assert "python assertions run code from the dataset" in capsys.readouterr().err
    assert main(run(server, dataset, "--allow-python"), [EVAL]) == 1
    first = capsys.readouterr().out
    record = json.loads(first)
    assert (record["baseline"]["accuracy"], record["candidate"]["accuracy"]) == (1.0, 16 / 24)
    assert server.answered.total() == 48
    assert main(run(server, dataset, "--allow-python"), [EVAL]) == 1
    assert capsys.readouterr().out == first
    (dataset / "checks.py").write_text(CODE + "# changed\n")
    assert main(run(server, dataset, "--allow-python"), [EVAL]) == 2
    assert "which differs in checks" in capsys.readouterr().err
    (dataset / "checks.py").unlink()
    assert main(run(server, dataset, "--allow-python", report="other"), [EVAL]) == 2
    assert "checks.py', a Python assertion, is missing from" in capsys.readouterr().err
    assert server.answered.total() == 48


def test_looks_check_what_they_have(
    server: FlakyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = judged_dataset(tmp_path / "echo", PYTHON)
    flags = ("--allow-python", "--mode", "sequential", "--repeats", "2", "--gate", "accuracy>=-5%")
    assert main(run(server, dataset, *flags), [EVAL]) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["num_looks"] > 1 and record["num_unmeasured"] == 0


def compare(dataset: Path, a: str, b: str) -> list[str]:
    folders = [str(dataset.parent / name) for name in (a, b)]
    return [
        *("eval", "compare", str(dataset), "--baseline", folders[0], "--candidate", folders[1]),
        *("--gate", "accuracy>=-5%", "--allow-inconclusive", "--json"),
    ]


def test_recorded_runs_are_compared_by_what_they_recorded(
    server: FlakyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = [{"scorer": "substring", "reference": "say"}, RUBRIC, PYTHON]
    both = {"scorer": {"name": "all", "of": of}, "reference": None}
    dataset = judged_dataset(tmp_path / "echo", both)
    flags = (*judged(dataset), "--allow-python")
    assert main(run(server, dataset, *flags, report="one"), [EVAL]) == 1
    swapped = ("--baseline", str(dataset / "b.toml"), "--candidate", str(dataset / "a.toml"))
    assert main(run(server, dataset, *flags, *swapped, report="two"), [EVAL]) == 0
    (dataset / "judge.toml").write_text('model = "m"\ntemperature = 0.5\n')
    assert main(run(server, dataset, *flags, report="three"), [EVAL]) == 1
    capsys.readouterr()
    asked = server.num_requests
    assert main(compare(dataset, "one", "two"), [EVAL]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["baseline"]["accuracy"], record["candidate"]["accuracy"]) == (16 / 24, 1.0)
    assert main(compare(dataset, "one", "three"), [EVAL]) == 2
    assert "were not judged the same way: the rubric judge differs" in capsys.readouterr().err
    journal = tmp_path / "two" / "journal.jsonl"
    kept = [line for line in journal.read_text().splitlines(True) if '"kind":"check"' not in line]
    journal.write_text("".join(kept))
    assert main(compare(dataset, "one", "two"), [EVAL]) == 2
    said = capsys.readouterr().err
    assert "item 'q0' is judged by rubric, and run" in said and "did not record" in said
    assert server.num_requests == asked


def test_items_that_one_run_did_not_ask_are_named(
    server: FlakyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = judged_dataset(tmp_path / "echo", PYTHON)
    main(run(server, dataset, "--allow-python", "--limit", "12", report="some"), [EVAL])
    main(run(server, dataset, "--allow-python", "--repeats", "2", report="all"), [EVAL])
    capsys.readouterr()
    main(compare(dataset, "all", "some"), [EVAL])
    out, err = capsys.readouterr()
    assert json.loads(out)["num_pairs"] == 12
    assert "12 of 24 items were asked in one of the runs only: skipped" in err
    assert "12 items were asked more often in one of the runs: its first answers count" in err


@pytest.mark.parametrize("verb", ["calibrate", "bisect"])
def test_other_verbs_refuse_what_they_cannot_score(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = judged_dataset(tmp_path / "echo", RUBRIC)
    changes = tmp_path / "changes.toml"
    changes.write_text(f'base = "{dataset}/a.toml"\n[[change]]\nname = "b"\nsystem = "b"\n')
    flags = {
        "calibrate": (str(dataset), "--side", str(dataset / "a.toml")),
        "bisect": (str(changes), "--dataset", str(dataset), "--gate", "accuracy>=-5%"),
    }
    assert main(["eval", verb, *flags[verb]], [EVAL]) == 2
    said = capsys.readouterr().err
    assert "item 'q0' is judged by rubric: only `eval run` and `eval judge` support that" in said


def test_results_of_checks_survive_and_make_the_score(tmp_path: Path, make_pair) -> None:  # type: ignore[no-untyped-def]
    source = make_pair(0)
    scorer = make_scorer({"name": "not", "scorer": "rubric"}, "is rude")
    (check,) = scorer.checks
    planned = PlannedPair(0, replace(source.item, scorer=scorer), "B")
    with Journal(tmp_path / "j") as journal:
        recorded = RecordedRun(journal)
        recorded.record_answer(planned, "A", source.a)
        recorded.record_answer(planned, "B", source.b)
        assert [one.letter for one in open_checks(recorded, [planned])] == ["B", "A"]
        assert recorded.pairs([planned])[0].a.is_right is None
        recorded.record_check(planned, "A", check, Score.of(False))
        assert recorded.pairs([planned])[0].a.is_right is True
        assert [one.letter for one in open_checks(recorded, [planned])] == ["B"]
        recorded.record_check(planned, "B", check, Score.unscored("neither yes nor no"))
        found = recorded.pairs([planned])
    assert (found[0].b.is_right, found[0].b.score.reason) == (None, "neither yes nor no")
    with Journal(tmp_path / "j") as journal:
        again = RecordedRun(journal)
        assert again.pairs([planned]) == found and open_checks(again, [planned]) == []


def test_digests_of_checks_are_pinned_since_journals_hold_them() -> None:
    assert LateCheck("rubric", "is kind").digest.startswith("a0e01c362df2671cf54273ce675f515e")
    assert LateCheck("python", "is kind").digest != LateCheck("rubric", "is kind").digest
