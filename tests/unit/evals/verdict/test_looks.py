"""A run with early looks stops early if, and only if, it can."""

from collections.abc import Callable

import numpy as np
import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.gate_verdicts import Look
from evenkeel_evals.verdict.gates import parse_gates
from evenkeel_evals.verdict.looks import StoppingRule, judge_look, plan_looks

MakePair = Callable[..., AnsweredPair]
GATES = parse_gates("accuracy>=-5%, shift_ttft<=+20%")


def test_looks_are_spread_and_end_with_all() -> None:
    assert [look.num_pairs for look in plan_looks(StoppingRule.SEQUENTIAL, GATES, 456)] == [
        92,
        183,
        274,
        365,
        456,
    ]
    assert plan_looks(StoppingRule.FIXED, GATES, 456) == [Look(1, 1, 456)]
    assert plan_looks(StoppingRule.SEQUENTIAL, GATES, 9) == [Look(1, 1, 9)]
    assert len(plan_looks(StoppingRule.ANYTIME, GATES, 456)) == 40
    with pytest.raises(ConfigurationError, match="cannot be judged at any time; use shift_ttft"):
        plan_looks(StoppingRule.ANYTIME, parse_gates("p95_ttft<=+5%"), 100)


@pytest.mark.parametrize("mode", [StoppingRule.SEQUENTIAL, StoppingRule.ANYTIME])
@pytest.mark.parametrize(
    ("name", "share_lost", "expected"),
    [("a third lost", 3, Verdict.REGRESSED), ("the same", None, Verdict.NO_WORSE)],
)
def test_a_clear_case_stops_early(
    make_pair: MakePair, mode: StoppingRule, name: str, share_lost: int | None, expected: Verdict
) -> None:
    noise = np.random.default_rng(2).lognormal(0, 0.05, (2, 600))
    pairs = [
        make_pair(
            i,
            True,
            share_lost is None or i % share_lost > 0,
            (0.1 * float(noise[0, i]), 0.1 * float(noise[1, i])),
        )
        for i in range(600)
    ]
    for look in plan_looks(mode, GATES, 600):
        judgement = judge_look(mode, look, GATES, pairs[: look.num_pairs], 0)
        if judgement.is_conclusive:
            break
    assert judgement.verdict is expected, name
    assert look.num_pairs <= 480, name


def test_a_first_look_asks_for_more_than_a_last_one(make_pair: MakePair) -> None:
    # 9 of 9 discordant pairs lost: p = 0.002, enough at the end, not at the first of five looks.
    pairs = [make_pair(i, True, i >= 9) for i in range(100)]
    gates = GATES[:1]
    first, last = Look(1, 5, 100), Look(5, 5, 100)
    assert (
        judge_look(StoppingRule.SEQUENTIAL, first, gates, pairs, 0).verdict is Verdict.INCONCLUSIVE
    )
    assert judge_look(StoppingRule.SEQUENTIAL, last, gates, pairs, 0).verdict is Verdict.REGRESSED
