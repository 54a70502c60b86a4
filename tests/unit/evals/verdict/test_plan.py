"""What a run can detect, planned in advance."""

from dataclasses import replace

import pytest

from evenkeel.errors import CannotMeasureError
from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.gate_verdicts import judge
from evenkeel_evals.verdict.gates import Gate, parse_gates
from evenkeel_evals.verdict.plan import Assumptions, plan_gates, refuse_undecidable


def test_two_hundred_items_cannot_hold_a_margin_of_one_point() -> None:
    (line,) = plan_gates(parse_gates("accuracy>=-1%"), 200)
    text = line.describe()
    assert "200 pairs can detect losses of 6.4 points or more" in text
    assert "takes about 6,183 pairs" in text
    assert "if 10% of the answers change" in text


def test_enough_pairs_are_said_to_be_enough() -> None:
    (line,) = plan_gates(parse_gates("accuracy>=-10%"), 200)
    assert "enough for 'no worse'" in line.describe()


@pytest.mark.parametrize("discordance", [0.0, 0.001])
def test_answers_that_never_change_take_as_many_pairs_as_the_score_test(discordance: float) -> None:
    known = Assumptions(discordance=discordance, is_measured=True)
    (line,) = plan_gates(parse_gates("accuracy>=-1%"), 200, known)
    assert (line.pairs_to_pass, line.can_pass) == (268, False)
    assert "'no worse' takes about 268 pairs" in line.describe()


def test_a_quantile_needs_more_than_a_shift() -> None:
    shift, p95 = plan_gates(parse_gates("shift_ttft<=5%, p95_ttft<=5%"), 300)
    assert shift.smallest_loss is not None and p95.smallest_loss is not None
    assert p95.smallest_loss > 1.9 * shift.smallest_loss
    assert (p95.pairs_to_pass or 0) > (shift.pairs_to_pass or 0)


def test_too_few_pairs_see_nothing() -> None:
    (line,) = plan_gates(parse_gates("p99_ttft<=5%"), 50)
    assert line.smallest_loss is None
    assert "50 pairs can detect nothing" in line.describe()


def test_a_margin_of_zero_cannot_be_passed_by_standing_still() -> None:
    for line in plan_gates(parse_gates("accuracy>=0%, shift_ttft<=0%"), 100):
        assert line.pairs_to_pass is None
        assert "no number of pairs" in line.describe()


def test_the_best_and_worst_cases_are_those_of_the_verdict(make_pair) -> None:  # type: ignore[no-untyped-def]
    gates = parse_gates("accuracy>=-1%, shift_ttft<=+3%, p95_ttft<=+5%")
    needed = [line.pairs_needed for line in plan_gates(gates, 5)]
    assert needed == [268, 10, 72]
    for gate, count in zip(gates, needed, strict=True):
        assert count is not None
        for num_pairs, possible in ((count, True), (count - 1, False)):
            (line,) = plan_gates([gate], num_pairs)
            same = [make_pair(i) for i in range(num_pairs)]
            assert line.can_pass is possible is (verdict(gate, same) is Verdict.NO_WORSE)
    accuracy = gates[0]
    for num_pairs, possible in ((6, True), (5, False)):
        (line,) = plan_gates([accuracy], num_pairs)
        lost = [make_pair(i, True, False) for i in range(num_pairs)]
        assert line.can_fail is possible is (verdict(accuracy, lost) is Verdict.REGRESSED)


@pytest.mark.parametrize(
    ("text", "to_pass", "to_fail"), [("accuracy>=-5%", 10, 6), ("shift_ttft<=+5%", 5, 6)]
)
def test_what_varies_together_is_no_more_than_its_clusters(  # type: ignore[no-untyped-def]
    make_pair,
    text: str,
    to_pass: int,
    to_fail: int,
) -> None:
    (gate,) = parse_gates(text)
    for num_clusters in (1, to_pass - 1, to_pass, to_fail - 1, to_fail):
        (line,) = plan_gates([gate], 120, num_clusters=num_clusters)
        unchanged = [make_pair(i, right, right) for i, right in enumerate([True, False] * 60)]
        unchanged = in_clusters(unchanged, num_clusters)
        assert line.can_pass is (num_clusters >= to_pass)
        assert (verdict(gate, unchanged) is Verdict.NO_WORSE) is line.can_pass, num_clusters
        lost = [make_pair(i, True, False, (0.1, 0.2)) for i in range(120)]
        assert line.can_fail is (num_clusters >= to_fail)
        lost = in_clusters(lost, num_clusters)
        assert (verdict(gate, lost) is Verdict.REGRESSED) is line.can_fail, num_clusters


def in_clusters(pairs: list[AnsweredPair], count: int) -> list[AnsweredPair]:
    size = len(pairs) // count
    return [
        replace(pair, item=replace(pair.item, cluster_id=f"c{min(i // size, count - 1)}"))
        for i, pair in enumerate(pairs)
    ]


def test_a_single_question_in_many_variants_is_refused_before_it_costs_anything() -> None:
    with pytest.raises(CannotMeasureError, match=r"300 pairs in 1 cluster; .* 10 clusters"):
        refuse_undecidable(plan_gates(parse_gates("accuracy>=-5%"), 300, num_clusters=1))


def verdict(gate: Gate, pairs: list[AnsweredPair]) -> Verdict:
    return judge([gate], pairs, 0).results[0].verdict


@pytest.mark.parametrize(
    ("gate", "num_pairs", "says"),
    [
        ("p95_ttft<=+5%", 40, "can neither pass nor fail with 40 pairs; it needs 72"),
        (
            "accuracy>=-1%",
            200,
            "cannot pass with 200 pairs unless the candidate is better; it needs 268",
        ),
        ("accuracy>=-0%", 200, "an unchanged candidate cannot pass a margin of 0"),
        ("shift_ttft<=+3%", 200, None),
    ],
)
def test_refusals(gate: str, num_pairs: int, says: str | None) -> None:
    (line,) = plan_gates(parse_gates(gate), num_pairs)
    assert (line.refusal is None) if says is None else (says in (line.refusal or ""))


def test_a_run_refuses_only_what_can_show_nothing() -> None:
    refuse_undecidable(plan_gates(parse_gates("accuracy>=-1%"), 200))
    with pytest.raises(CannotMeasureError, match="can neither pass nor fail with 71 pairs"):
        refuse_undecidable(plan_gates(parse_gates("p95_ttft<=+5%"), 71))


def test_a_gate_below_the_measured_noise_is_refused() -> None:
    known = Assumptions(noise_floor={"shift_ttft": 0.04}, floor_pairs=100, is_measured=True)
    (narrow,) = plan_gates(parse_gates("shift_ttft<=+3%"), 100, known)
    (enough,) = plan_gates(parse_gates("shift_ttft<=+3%"), 400, known)
    assert "below the noise floor of 4.0%" in (narrow.refusal or "")
    assert (enough.noise_floor, enough.refusal) == (pytest.approx(0.02), None)
    with pytest.raises(CannotMeasureError, match="below the noise floor"):
        refuse_undecidable([narrow])
