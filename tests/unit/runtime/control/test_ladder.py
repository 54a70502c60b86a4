"""The ladder: when it climbs, when it comes back, and what it never does."""

import itertools
from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.control.config import ControlConfig, SloClass
from evenkeel_runtime.control.ladder import (
    STEPS,
    ClassCounts,
    Ladder,
    Lever,
    LeverLimits,
    LimitChange,
)

CONFIG = ControlConfig(
    classes={
        "interactive": SloClass(ttft_s=0.2),
        "chat": SloClass(ttft_s=0.5),
        "batch": SloClass(ttft_s=30.0),
    },
    window_s=10.0,
    recover_s=20.0,
)
CALM = {"interactive": ClassCounts(100, 0)}
BURNING = {"interactive": ClassCounts(80, 20), "batch": ClassCounts(10, 0)}


def climb(ladder: Ladder, counts: dict[str, ClassCounts], seconds: range) -> list[LimitChange]:
    changes = [ladder.tick(counts, float(second)) for second in seconds]
    return [change for change in changes if change is not None]


def test_no_step_refuses_anybody_or_keeps_the_engine_from_work() -> None:
    assert [lever for lever, _ in STEPS] == [Lever.PREFILL, Lever.DRAFTS]
    assert {field.name for field in fields(LeverLimits)} == {"prefill_ratio", "draft_ratio"}
    # Each step keeps what the ones before it did.
    for (_, before), (_, after) in itertools.pairwise(STEPS):
        assert after.prefill_ratio <= before.prefill_ratio
        assert after.draft_ratio <= before.draft_ratio


def test_it_climbs_one_step_a_window_while_the_budget_burns() -> None:
    ladder = Ladder(CONFIG, 0.0)
    changes = climb(ladder, BURNING, range(0, 60))
    assert [change.level for change in changes] == [1, 2]
    assert changes[0].lever == Lever.PREFILL
    assert (changes[0].before, changes[0].after) == ("1", "0.25")
    assert "interactive: 20 of its requests over 0.2 s in 10 s, burn 20.0" in changes[0].reason


def test_it_comes_back_step_by_step_after_the_calm() -> None:
    ladder = Ladder(CONFIG, 0.0)
    climb(ladder, BURNING, range(0, 20))
    assert ladder.level == 2
    changes = climb(ladder, CALM, range(20, 100))
    assert [change.level for change in changes] == [1, 0]
    assert ladder.limits == LeverLimits()
    assert changes[-1].after == "1"


def test_a_few_bad_requests_move_nothing() -> None:
    ladder = Ladder(CONFIG, 0.0)
    assert climb(ladder, {"interactive": ClassCounts(1, 2)}, range(0, 100)) == []


def test_burn_between_the_two_rates_holds_the_level() -> None:
    ladder = Ladder(CONFIG, 0.0)
    climb(ladder, BURNING, range(0, 1))
    assert climb(ladder, {"interactive": ClassCounts(97, 3)}, range(1, 300)) == []
    assert ladder.level == 1


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=200))
def test_it_never_moves_twice_in_a_window_and_never_out_of_bounds(
    windows: list[tuple[int, int]],
) -> None:
    ladder = Ladder(CONFIG, 0.0)
    moved: list[float] = []
    for second, (good, bad) in enumerate(windows):
        before = ladder.level
        change = ladder.tick({"interactive": ClassCounts(good, bad)}, float(second))
        assert abs(ladder.level - before) == (0 if change is None else 1)
        assert 0 <= ladder.level <= len(STEPS)
        if change is not None:
            moved.append(float(second))
    assert all(b - a >= CONFIG.window_s for a, b in itertools.pairwise(moved))
