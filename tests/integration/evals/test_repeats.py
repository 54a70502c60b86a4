"""Repeats, kept answers, the drift sentinel, and two recorded runs compared."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.eval_setup import NUM_ITEMS, EvalSetup, run_eval, serving_setup

ACCURACY = ("--gate", "accuracy>=-5%")


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[EvalSetup]:
    with serving_setup(tmp_path) as found:
        yield found


def test_repeats_are_asked_and_each_item_counts_once(setup: EvalSetup) -> None:
    process = setup.start(*ACCURACY, "--repeats", "3")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    record = json.loads(out)
    assert (record["num_items"], record["num_pairs"]) == (NUM_ITEMS, 3 * NUM_ITEMS)
    overall = next(r for r in record["results"] if r["slice"] == "overall")
    assert overall["num_pairs"] == NUM_ITEMS
    assert overall["estimate"] == pytest.approx(-1 / 3)
    assert set(setup.answered().values()) == {3}


def test_kept_answers_are_not_asked_again_and_never_timed(setup: EvalSetup, tmp_path: Path) -> None:
    kept = ("--answer-cache", str(tmp_path / "kept"))
    first = json.loads(setup.start(*ACCURACY, *kept, "--repeats", "2").communicate(timeout=300)[0])
    assert first["num_cached"] == 0
    before = setup.answered()
    second = setup.start(*ACCURACY, *kept, "--repeats", "2", "--fresh")
    record = json.loads(second.communicate(timeout=300)[0])
    assert record["num_cached"] == 4 * NUM_ITEMS
    assert setup.answered() == before
    assert record["baseline"]["ttft_s"]["p50"] is None
    assert [r["estimate"] for r in record["results"]] == [r["estimate"] for r in first["results"]]
    # A third repeat was never asked: it is not given the second one's answer.
    third = setup.start(*ACCURACY, *kept, "--repeats", "3", "--fresh")
    assert json.loads(third.communicate(timeout=300)[0])["num_cached"] == 4 * NUM_ITEMS
    assert set(setup.answered().values()) == {3}
    # With a gate on latency every call is made.
    timed = setup.start("--gate", "accuracy>=-5%, shift_ttft<=+50%", *kept, "--fresh")
    assert json.loads(timed.communicate(timeout=300)[0])["num_cached"] == 0
    assert set(setup.answered().values()) == {4}


def test_a_side_against_itself_does_not_get_its_own_kept_answers(
    setup: EvalSetup, tmp_path: Path
) -> None:
    (setup.dataset / "b.toml").write_text('[prompt]\nversion = "2"\nsystem = "good"\n')
    kept = ("--answer-cache", str(tmp_path / "kept"))
    for calls in (2, 2):
        process = setup.start(*ACCURACY, *kept, "--allow-inconclusive", "--fresh")
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert set(setup.answered().values()) == {calls}
    assert json.loads(out)["num_cached"] == 2 * NUM_ITEMS


def test_the_sentinel_is_asked_throughout_a_longer_run(tmp_path: Path) -> None:
    with serving_setup(tmp_path, num_items=120) as setup:
        process = setup.start(*ACCURACY)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 1, err
        drift = json.loads(out)["drift"]
        assert (drift["num_readings"], drift["num_errors"], drift["num_texts"]) == (12, 0, 1)
        again = setup.start(*ACCURACY)
        assert again.communicate(timeout=300)[0] == out
        assert setup.sentinels() == 12


def compare(setup: EvalSetup, baseline: Path, candidate: Path, *flags: str) -> tuple[int, str, str]:
    done = run_eval(
        *("compare", str(setup.dataset)),
        *("--baseline", str(baseline), "--candidate", str(candidate), *flags),
    )
    return done.returncode, done.stdout, done.stderr


def test_recorded_runs_are_compared_without_a_call(setup: EvalSetup, tmp_path: Path) -> None:
    setup.start(*ACCURACY).communicate(timeout=300)
    other = tmp_path / "other"
    (setup.dataset / "b.toml").write_text('[prompt]\nversion = "3"\nsystem = "good"\n')
    setup.start(*ACCURACY, "--report", str(other)).communicate(timeout=300)
    before = setup.answered()
    code, out, err = compare(setup, other, setup.report, "--json", "--report", str(tmp_path / "c"))
    record = json.loads(out)
    assert (code, record["verdict"]) == (1, "regressed"), err
    assert record["results"][0]["estimate"] == pytest.approx(-1 / 3)
    assert (tmp_path / "c" / "report.html").is_file()
    code, out, _ = compare(setup, setup.report, other, "--gate", "accuracy>=-5%")
    assert code == 0
    assert "better" in out and "latency is not judged" in out
    assert setup.answered() == before
    code, _, err = compare(setup, other, setup.report, "--gate", "shift_ttft<=+5%")
    assert (code, "only be compared in accuracy and errors" in err) == (2, True)
    with (setup.dataset / "echo.jsonl").open("a") as rows:
        row = {"id": "new", "messages": [{"role": "user", "content": "say 9"}], "reference": "9"}
        rows.write(json.dumps(row) + "\n")
    code, _, err = compare(setup, other, setup.report)
    assert (code, "used other items" in err) == (2, True)


def test_a_warm_cache_is_filled_before_each_measured_call(setup: EvalSetup) -> None:
    process = setup.start(*ACCURACY, "--cache", "warm")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    assert set(setup.answered().values()) == {2}
    assert json.loads(out)["cache"] == "warm"
