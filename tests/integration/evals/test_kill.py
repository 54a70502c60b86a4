"""An evaluation run that is killed goes on where it was, and comes to the same verdict."""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenkeel_evals.verdict.repeated_items import repeats_for
from tests.fixtures.eval_setup import (
    CONCURRENCY,
    NUM_ITEMS,
    EvalSetup,
    run_eval,
    serving_setup,
)


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[EvalSetup]:
    with serving_setup(tmp_path) as found:
        yield found


def test_killed_runs_go_on_without_repeating_a_call(setup: EvalSetup) -> None:
    generator = random.Random(6)
    num_kills = 0
    for _ in range(4):
        # Kill at a moment of the work, wherever the machine's speed puts it. It must not be over
        # before, however long this process is kept waiting.
        wanted = sum(setup.answered().values()) + generator.randint(3, 25)
        setup.hold_at(wanted + 10, "|say ")
        process = setup.start()
        while process.poll() is None and sum(setup.answered().values()) < wanted:
            time.sleep(0.005)
        assert process.poll() is None, process.communicate()
        process.kill()
        process.communicate()
        num_kills += 1
    setup.let_go()
    last = setup.start()
    out, err = last.communicate(timeout=300)
    assert last.returncode == 1, err
    record = json.loads(out)
    assert (record["num_pairs"], record["num_unmeasured"]) == (NUM_ITEMS, 0)
    assert record["candidate"]["accuracy"] == pytest.approx(2 / 3)
    assert record["num_interruptions"] == num_kills
    answered = setup.answered()
    assert len(answered) == 2 * NUM_ITEMS
    repeated = sum(answered.values()) - len(answered)
    # Only what was in flight at a kill may have been asked twice, and each such call is owned to.
    assert repeated <= record["num_asked_again"] <= num_kills * CONCURRENCY

    before = {p.name: p.read_bytes() for p in setup.report.iterdir()}
    again = setup.start()
    second, err = again.communicate(timeout=300)
    assert (again.returncode, second) == (1, out)
    assert "is complete, so nothing is asked again" in err
    assert {p.name: p.read_bytes() for p in setup.report.iterdir()} == before
    assert setup.answered() == answered


def test_a_folder_with_another_run_is_refused_until_it_is_put_aside(setup: EvalSetup) -> None:
    first = setup.start()
    first.communicate(timeout=300)
    assert first.returncode == 1
    other = setup.start("--seed", "9")
    _, err = other.communicate(timeout=300)
    assert other.returncode == 2
    assert "which differs in items, seed" in err
    fresh = setup.start("--seed", "9", "--fresh")
    fresh.communicate(timeout=300)
    assert fresh.returncode == 1
    assert len(list(setup.report.glob("journal-*.jsonl"))) == 1
    assert max(setup.answered().values()) == 2


def test_a_side_against_itself_gives_a_calibration(setup: EvalSetup) -> None:
    done = run_eval(
        *("calibrate", str(setup.dataset)),
        *("--side", str(setup.dataset / "b.toml"), "--url", setup.url, "--json"),
        *("--gate", "accuracy>=-5%, shift_ttft<=+50%", "--runs", "2", "--resamples", "20"),
        *("--report", str(setup.report)),
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["num_runs"], record["num_pairs"]) == (2, NUM_ITEMS)
    assert (record["discordance"], record["num_false_alarms"]) == (0.0, 0)
    assert json.loads((setup.report / "calibration.json").read_text())["dataset"]


def test_a_judge_is_asked_in_both_orders_and_flips_prove_nothing(setup: EvalSetup) -> None:
    judge = setup.dataset / "judge.toml"
    judge.write_text('criteria = "Prefer what answers the question."\n')
    process = setup.start("--judge", str(judge), "--gate", "accuracy>=-5%, preference>=-5%")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    record = json.loads(out)
    results = {r["metric"]: r for r in record["results"] if r["slice"] == "overall"}
    # A third of B's answers are spoilt; the others are the same text, which is a tie unasked.
    assert results["preference"]["verdict"] == "regressed"
    assert results["preference"]["estimate"] == pytest.approx(-1 / 3)
    assert record["judge"]["num_judged"] == record["judge"]["num_with_truth"] == 20
    assert record["judge"]["num_identical"] == 40
    assert (record["judge"]["flip_rate"], record["judge"]["agreement"]) == (0.0, 1.0)
    assert sum(setup.answered().values()) == 2 * NUM_ITEMS + 2 * 20

    again = setup.start("--judge", str(judge), "--gate", "accuracy>=-5%, preference>=-5%")
    assert again.communicate(timeout=300)[0] == out
    (setup.dataset / "b.toml").write_text('[prompt]\nsystem = "shout"\n')
    biased = setup.start("--judge", str(judge), "--gate", "preference>=-5%", "--fresh")
    record = json.loads(biased.communicate(timeout=300)[0])
    assert (record["judge"]["flip_rate"], record["judge"]["first_share"]) == (1.0, 1.0)
    assert (record["results"][0]["estimate"], biased.returncode) == (None, 3)
    assert record["headline"].startswith("could not measure: the judge's verdict changed with")


def test_a_sequential_run_stops_early_and_the_same_way_again(setup: EvalSetup) -> None:
    process = setup.start("--mode", "sequential", "--gate", "accuracy>=-5%")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    record = json.loads(out)
    assert (record["look"], record["num_looks"], record["num_pairs"]) == (3, 5, 36)
    assert "stopped at look 3 of 5, after 36 pairs" in record["headline"]
    assert sum(setup.answered().values()) == 2 * 36
    again = setup.start("--mode", "sequential", "--gate", "accuracy>=-5%")
    assert again.communicate(timeout=300)[0] == out
    assert sum(setup.answered().values()) == 2 * 36


def test_one_item_that_always_fails_now_is_caught_by_the_guard(setup: EvalSetup) -> None:
    (setup.dataset / "b.toml").write_text('[prompt]\nsystem = "breaks seven"\n')
    flags = ("--guard", "--gate", "accuracy>=-20%")
    process = setup.start(*flags)
    out, err = process.communicate(timeout=300)
    record = json.loads(out)
    # One of 60 is well within the gate; nine more times right and wrong is no chance.
    assert (process.returncode, record["broken_items"]) == (1, ["q7"]), err
    assert record["results"][0]["verdict"] == "no worse"
    assert "always right before, always wrong now: q7" in record["headline"]
    repeats = repeats_for(NUM_ITEMS)
    assert setup.answered()["breaks seven|say 7"] == 1 + repeats
    assert sum(setup.answered().values()) == 2 * (NUM_ITEMS + repeats)
    assert setup.start(*flags).communicate(timeout=300)[0] == out
