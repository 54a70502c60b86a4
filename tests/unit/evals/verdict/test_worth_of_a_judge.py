"""An unreliable judge counts for neither side."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from evenkeel_evals.ask.answers import AnsweredPair, merge
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.gate_verdicts import judge
from evenkeel_evals.verdict.gates import parse_gates
from evenkeel_evals.verdict.preferences import quality
from tests.unit.evals.finished_run import finish
from tests.unit.evals.verdict.test_preferences import says

MakePair = Callable[..., AnsweredPair]
Verdicts = tuple[str | None, str | None]
GATES = parse_gates("preference>=-5%")


def judged(make_pair: MakePair, verdicts: list[Verdicts]) -> list[AnsweredPair]:
    return [
        replace(says(make_pair(i), f"one {i}", f"two {i}"), preference=merge(both))
        for i, both in enumerate(verdicts)
    ]


@pytest.mark.parametrize(
    ("verdicts", "problem"),
    [
        ([("A", "B")] * 300, "changed with the order of the answers on 100% of the 300 pairs"),
        ([("A", "B")] * 150 + [("A", "A"), ("B", "B")] * 100, "on 43% of the 350 pairs"),
        ([("tie", "tie")] * 300, "never preferred an answer on 300 pairs"),
        ([("A", "B")] * 100 + [("A", "A"), ("B", "B")] * 100, None),
        ([("A", "B")] * 4, None),
    ],
)
def test_what_a_judge_must_not_do(
    make_pair: MakePair, verdicts: list[Verdicts], problem: str | None
) -> None:
    pairs = judged(make_pair, verdicts)
    found = quality(pairs, verdicts).problem()
    assert (found is None) if problem is None else (found is not None and problem in found)


def test_an_unreadable_judge_is_quoted(make_pair: MakePair) -> None:
    verdicts: list[Verdicts] = [("A", "A")] * 7 + [(None, None)] * 3
    said = [[]] * 7 + [["I like both."], ["As a language model…"], ["Hm."]]
    problem = quality(judged(make_pair, verdicts), verdicts, said).problem()
    assert problem is not None
    assert "were unreadable for 3 of 10 pairs" in problem and "'I like both.'" in problem


def test_flips_prove_no_likeness(make_pair: MakePair) -> None:
    """An always-"1" judge: every verdict flips, no pair counts, and the result is inconclusive."""
    judgement = judge(GATES, judged(make_pair, [("A", "B")] * 400), 0)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.results[0].effect.num_pairs == 0


def test_a_run_with_such_a_judge_could_not_measure(make_pair: MakePair) -> None:
    verdicts: list[Verdicts] = [("A", "B")] * 400
    pairs = judged(make_pair, verdicts)
    outcome = finish(pairs, allows_inconclusive=True, judge_quality=quality(pairs, verdicts))
    assert outcome.decision.exit_code == 3
    assert outcome.decision.headline.startswith("could not measure: the judge's verdict changed")
    assert outcome.to_record()["verdict"] == "could not measure"


def test_ties_do_not_hide_a_judge_that_flips(make_pair: MakePair) -> None:
    verdicts: list[Verdicts] = [*[("tie", "tie")] * 120, *[("A", "B")] * 79, ("A", "A")]
    found = quality(judged(make_pair, verdicts), verdicts).problem()
    assert found is not None and "99% of the 80 pairs" in found


def test_a_judge_that_is_silent_proves_nothing(make_pair: MakePair) -> None:
    verdicts: list[Verdicts] = [*[(None, None)] * 100, *[("tie", "tie")] * 99, ("A", "A")]
    found = quality(judged(make_pair, verdicts), verdicts).problem()
    assert found == "the judge gave no verdict on 100 of 200 pairs"
