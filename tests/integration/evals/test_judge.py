"""A model that judges rubrics and preferences, in `evenkeel eval judge` and `eval run`."""

import json
import time
from pathlib import Path

import pytest

from tests.fixtures.eval_setup import (
    CONCURRENCY,
    NUM_ITEMS,
    EvalSetup,
    run_eval,
    serving_setup,
)


def test_rubrics_and_preference_are_asked_once_per_text(tmp_path: Path) -> None:
    with serving_setup(tmp_path) as setup:
        rows = [
            json.loads(line) for line in (setup.dataset / "echo.jsonl").read_text().splitlines()
        ]
        for row in rows:
            row |= {"scorer": "rubric", "reference": "answers the question"}
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (setup.dataset / "echo.jsonl").write_text(text)
        for name, spoilt in (("a", 60), ("b", 3)):
            (tmp_path / f"{name}.jsonl").write_text(
                "".join(
                    json.dumps({"id": row["id"], "answer": "no idea" if i % spoilt == 1 else "ok"})
                    + "\n"
                    for i, row in enumerate(rows)
                )
            )
        judge = tmp_path / "judge.toml"
        judge.write_text(f'url = "{setup.url}"\n')
        done = run_eval(
            *("judge", "--dataset", str(setup.dataset), "--judge", str(judge), "--json"),
            *("--baseline", str(tmp_path / "a.jsonl")),
            *("--candidate", str(tmp_path / "b.jsonl")),
            *("--gate", "accuracy>=-5%, preference>=-5%"),
        )
        asked = setup.answered()
    assert done.returncode == 1, done.stderr
    record = json.loads(done.stdout)
    accuracy, preference = record["gates"][:2]
    # Of 60 items A has one spoilt and B twenty, the first of them the same.
    assert (accuracy["lost"], accuracy["gained"], accuracy["verdict"]) == (19, 0, "regressed")
    assert (preference["lost"], preference["gained"]) == (19, 0)
    assert record["candidate"]["accuracy"] == pytest.approx(40 / 60)
    rubrics = sum(n for text, n in asked.items() if "against one criterion" in text)
    assert rubrics == 60 + 19
    assert sum(asked.values()) - rubrics == 2 * 19


def rubrics_of(setup: EvalSetup) -> dict[str, int]:
    return {text: n for text, n in setup.answered().items() if "against one criterion" in text}


def test_a_run_killed_between_answers_and_checks_goes_on_to_the_same_verdict(
    tmp_path: Path,
) -> None:
    with serving_setup(tmp_path) as setup:
        path = setup.dataset / "echo.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            row |= {"scorer": "rubric", "reference": "answers the question"}
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        judge = tmp_path / "judge.toml"
        judge.write_text(f'url = "{setup.url}"\n')
        flags = ("--judge", str(judge), "--gate", "accuracy>=-5%")
        for wanted in (1, 20):
            # However long this process is kept waiting, the run is not over before it is killed.
            setup.hold_at(wanted + 10, "against one criterion")
            process = setup.start(*flags)
            while process.poll() is None and sum(rubrics_of(setup).values()) < wanted:
                time.sleep(0.005)
            assert process.poll() is None, process.communicate()
            process.kill()
            process.communicate()
        setup.let_go()
        last = setup.start(*flags)
        out, err = last.communicate(timeout=300)
        asked = rubrics_of(setup)
        others = sum(setup.answered().values()) - sum(asked.values())
        again = setup.start(*flags)
        assert again.communicate(timeout=300)[0] == out
        assert rubrics_of(setup) == asked
    assert last.returncode == again.returncode == 1, err
    record = json.loads(out)
    assert (record["num_pairs"], record["num_unmeasured"]) == (NUM_ITEMS, 0)
    assert record["candidate"]["accuracy"] == pytest.approx(2 / 3)
    # Twenty of B's answers are spoilt, the others the same text as A's: asked once.
    assert (others, len(asked)) == (2 * NUM_ITEMS, NUM_ITEMS + 20)
    assert sum(asked.values()) - len(asked) <= 2 * CONCURRENCY, "only what was in flight"
