"""Runs of alike steps: sums are exact whatever is merged, and the bound holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.exporter.step_runs import MAX_RUNS, StepRun, StepRuns, describe_held
from evenkeel_runtime.exporter.step_totals import StepTotals
from evenkeel_runtime.wire.steps import Held
from tests.unit.runtime.wire.step_builder import Part, Step, build, decode, prefill

# running, waiting, three set aside, preempted, blocks: total, free, cached
BUSY = (2, 0, 0, 0, 0, 0, 100, 60, 70)


def runs_of(*steps: Step) -> list[StepRun]:
    runs = StepRuns()
    runs.add(build(*steps), lambda number: f"r{number}")
    return runs.take()


def test_decode_steps_of_the_same_batch_are_one_run() -> None:
    steps = [Step(i * 10, i * 10 + 8, [decode(0), decode(1)], state=BUSY) for i in range(4)]
    (run,) = runs_of(*steps)
    assert (run.num_steps, run.num_batched, run.decode_tokens, run.emitted_tokens) == (4, 2, 8, 8)
    assert (run.end_ns - run.start_ns, run.busy_ns) == (38_000_000, 32_000_000)
    assert run.longest_ns == 8_000_000
    assert (run.blocks_live, run.blocks_resident, run.blocks_total) == (40, 70, 100)


def test_a_prefill_is_a_run_of_its_own_and_names_who_it_was() -> None:
    runs = runs_of(
        Step(0, 5, [decode(0)], state=BUSY),
        Step(5, 90, [decode(0), prefill(1, 500)], state=BUSY),
        Step(90, 95, [decode(0)], state=BUSY),
    )
    assert [run.prefill_tokens for run in runs] == [0, 500, 0]
    assert [run.prefilling for run in runs] == [[], [("r1", 500)], []]
    assert runs[1].num_batched == 2


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Step(5, 9, [decode(0), decode(1)], state=BUSY), id="one more in the batch"),
        pytest.param(Step(5, 9, [decode(0)], Held.KV, state=BUSY), id="somebody waits for KV"),
        pytest.param(Step(5, 9, [decode(0)], state=(2, 1, *BUSY[2:])), id="a longer queue"),
        pytest.param(Step(5, 9, [decode(0)], state=(*BUSY[:5], 1, *BUSY[6:])), id="a preemption"),
        pytest.param(Step(1500, 1509, [decode(0)], state=BUSY), id="a second later"),
    ],
)
def test_whatever_changes_begins_a_new_run(other: Step) -> None:
    assert len(runs_of(Step(0, 5, [decode(0)], state=BUSY), other)) == 2


def test_no_run_is_longer_than_a_second() -> None:
    runs = runs_of(*[Step(i * 100, i * 100 + 90, [decode(0)], state=BUSY) for i in range(25)])
    assert [run.num_steps for run in runs] == [10, 10, 5]
    assert max(run.end_ns - run.start_ns for run in runs) == 990_000_000


def test_runs_that_nobody_takes_are_bounded() -> None:
    runs = StepRuns()
    for batch in range(9):
        steps = [Step(i, i + 1, [prefill(0, 1 + batch)]) for i in range(500)]
        runs.add(build(*steps), str)
    assert len(runs.take()) == MAX_RUNS
    assert runs.num_dropped == 9 * 500 - MAX_RUNS
    assert runs.take() == []


@given(
    st.lists(
        st.lists(st.sampled_from([decode(0), decode(1), prefill(2, 30)]), max_size=3), max_size=30
    )
)
def test_merging_changes_no_sum(batches: list[list[Part]]) -> None:
    steps = [Step(i * 3, i * 3 + 2, parts) for i, parts in enumerate(batches)]
    runs = runs_of(*steps)
    assert sum(run.num_steps for run in runs) == len(steps)
    assert sum(run.busy_ns for run in runs) == 2_000_000 * len(steps)
    for name in ("prefill_tokens", "decode_tokens", "emitted_tokens"):
        of_part = "prefill" if name == "prefill_tokens" else name.removesuffix("_tokens")
        of_part = "emitted" if name == "emitted_tokens" else of_part
        expected = sum(getattr(part, of_part) for parts in batches for part in parts)
        assert sum(getattr(run, name) for run in runs) == expected


def test_words_for_why_a_queue_waits() -> None:
    assert [describe_held(held) for held in Held] == [
        *("", "budget", "kv", "seats", "grammar", "remote_kv", "other")
    ]


def test_totals_count_work_and_remember_how_the_last_steps_went() -> None:
    totals = StepTotals()
    assert (totals.recent_step_s, totals.recent_acceptance_ratio) == (None, None)
    assert totals.recent_hit_ratio is None
    drafting = Part(0, 100, decode=1, drafted=4, accepted=3, emitted=4)
    totals.add_steps(build(Step(0, 4, [drafting]), Step(4, 10, [drafting]), Step(10, 500)))
    totals.add_prompt(100, 75)
    assert (totals.num_steps, totals.seconds) == (2, pytest.approx(0.01))
    assert sum(totals.by_duration) == 2
    assert (totals.drafted_tokens, totals.accepted_tokens) == (8, 6)
    assert totals.recent_step_s == pytest.approx(0.005)
    assert totals.recent_acceptance_ratio == 0.75
    assert totals.recent_hit_ratio == 0.75


def test_what_is_recent_does_not_grow() -> None:
    totals = StepTotals()
    for batch in range(200):
        length = 10 if batch < 100 else 1
        totals.add_steps(build(*[Step(i * 20, i * 20 + length, [decode(0)]) for i in range(20)]))
    # Only the last thousand of 4,000 steps are looked at: those of 1 ms.
    assert totals.recent_step_s == pytest.approx(0.001)
    assert totals.num_steps == 4000
