"""From pairs to verdicts."""

import numpy as np
import pytest

from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.effect import Effect
from evenkeel_evals.verdict.gate_verdicts import OVERALL, GateResult, combine, judge
from evenkeel_evals.verdict.gates import LatencyGate, parse_gates
from evenkeel_evals.verdict.latency_effects import min_pairs_for, pairs_around
from evenkeel_evals.verdict.measure import measure

GATES = parse_gates("accuracy>=-1%, p95_ttft<=+5%, shift_ttft<=+3%")


def noisy(make_pair, count: int, factor: float = 1.0, seed: int = 0) -> list[AnsweredPair]:  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(seed)
    base = generator.lognormal(-3, 0.4, count)
    noise = generator.lognormal(0, 0.05, (2, count))
    return [
        make_pair(i, ttft_s=(base[i] * noise[0, i], base[i] * noise[1, i] * factor))
        for i in range(count)
    ]


def verdicts(pairs: list[AnsweredPair]) -> dict[tuple[str, str], Verdict]:
    return {(r.metric, r.slice_name): r.verdict for r in judge(GATES, pairs, 0).results}


@pytest.mark.parametrize(
    ("name", "factor", "expected"),
    [
        ("30% slower", 1.3, Verdict.REGRESSED),
        ("30% faster", 0.7, Verdict.BETTER),
        ("the same", 1.0, Verdict.NO_WORSE),
    ],
)
def test_latency(make_pair, name: str, factor: float, expected: Verdict) -> None:  # type: ignore[no-untyped-def]
    found = verdicts(noisy(make_pair, 400, factor))
    assert found["shift_ttft", OVERALL] is expected, name
    assert found["p95_ttft", OVERALL] in (expected, Verdict.INCONCLUSIVE), name


def test_a_loss_in_one_slice_regresses_the_run(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = [make_pair(i, True, i % 4 != 0, tags=("hard",)) for i in range(60)]
    pairs += [make_pair(60 + i, tags=("easy",)) for i in range(60)]
    judgement = judge(GATES[:1], pairs, 0)
    found = {r.slice_name: r.verdict for r in judgement.results}
    assert found["hard"] is Verdict.REGRESSED
    assert found["easy"] is not Verdict.REGRESSED
    assert judgement.verdict is Verdict.REGRESSED
    assert {r.slice_name for r in judgement.regressed} == {OVERALL, "hard"}


@pytest.mark.parametrize("tag", ["overall", "all", ""])
def test_a_tag_that_means_all_items_is_a_slice_of_its_own(make_pair, tag: str) -> None:  # type: ignore[no-untyped-def]
    pairs = [make_pair(i, tags=(tag,) if i < 5 else (f"tag:{tag}",)) for i in range(300)]
    judgement = judge(GATES[:1], pairs, 0)
    assert [(r.slice_name, r.effect.num_pairs) for r in judgement.results] == [
        (OVERALL, 300),
        (f"tag:{tag}", 5),
        (f"tag:tag:{tag}", 295),
    ]
    assert judgement.verdict is Verdict.NO_WORSE


B, N, U, R = Verdict.BETTER, Verdict.NO_WORSE, Verdict.INCONCLUSIVE, Verdict.REGRESSED


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        pytest.param([(N, OVERALL), (B, OVERALL)], B, id="one better"),
        pytest.param([(N, OVERALL)], N, id="within the margin"),
        pytest.param([(N, OVERALL), (U, OVERALL)], U, id="cannot tell"),
        pytest.param([(N, OVERALL), (U, "long")], N, id="a slice cannot tell"),
        pytest.param([(B, OVERALL), (R, "long")], R, id="a slice regressed"),
    ],
)
def test_the_verdict_of_several_gates(
    results: list[tuple[Verdict, str]], expected: Verdict
) -> None:
    effect = Effect(0, None, None)
    given = [GateResult(GATES[0], name, effect, verdict) for verdict, name in results]
    assert combine(given) is expected


def test_the_effect_on_accuracy_is_that_of_the_table(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = [make_pair(0, True, False), make_pair(1, False, True), make_pair(2, True, False)]
    pairs += [make_pair(3), make_pair(4, None, True), make_pair(5, False, False)]
    effect = measure(GATES[0], pairs, 0)
    assert (effect.num_pairs, effect.baseline, effect.candidate) == (5, 0.6, 0.4)
    assert effect.estimate == pytest.approx(-0.2)
    # Two of three discordant pairs were lost: P(at least 2 of 3) and P(at least 1 of 3).
    assert (effect.p_worse, effect.p_better) == (pytest.approx(0.5), pytest.approx(0.875))


def test_a_latency_effect_is_the_ratio(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = [make_pair(i, ttft_s=(0.1 + i / 100, (0.1 + i / 100) * 1.2)) for i in range(120)]
    for gate in GATES[1:]:
        effect = measure(gate, pairs, 0)
        assert effect.estimate == pytest.approx(0.2)
        assert (effect.lower, effect.upper) == (pytest.approx(0.2), pytest.approx(0.2))


def test_swapping_the_sides_turns_the_evidence_round(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = noisy(make_pair, 200, 1.1)
    swapped = [AnsweredPair(p.index, p.item, p.first, p.b, p.a) for p in pairs]
    for gate in GATES[1:]:
        forward, backward = measure(gate, pairs, 0), measure(gate, swapped, 0)
        assert isinstance(gate, LatencyGate)
        assert forward.p_worse is not None and backward.p_better is not None
        assert forward.estimate is not None and backward.estimate is not None
        if gate.quantile is None:
            assert forward.p_worse == pytest.approx(backward.p_better)
        else:
            # "Better" must hold for the plain quantiles too; "worse" need not.
            assert forward.p_worse <= backward.p_better
        assert 1 + forward.estimate == pytest.approx(1 / (1 + backward.estimate))


def test_too_few_pairs_are_inconclusive_and_say_so(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = noisy(make_pair, 30, 3.0)
    effect = measure(GATES[1], pairs, 0)
    assert (effect.estimate, effect.note) == (None, "30 of the 72 pairs needed")
    assert verdicts(pairs)["p95_ttft", OVERALL] is Verdict.INCONCLUSIVE


def test_nothing_scored_is_no_data(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = [make_pair(i, None, None) for i in range(12)]
    for result in judge(GATES, pairs, 0).results:
        assert (result.effect.estimate, result.effect.num_pairs) == (None, 0)
        assert result.verdict is Verdict.INCONCLUSIVE


def test_a_tag_on_every_item_is_not_a_slice(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = [make_pair(i, tags=("all", "odd") if i % 2 else ("all",)) for i in range(20)]
    assert {r.slice_name for r in judge(GATES[:1], pairs, 0).results} == {OVERALL, "odd"}


def test_unchanged_candidates_are_rarely_called_regressed(make_pair) -> None:  # type: ignore[no-untyped-def]
    gates = [GATES[0], GATES[2]]
    runs = 60
    generator = np.random.default_rng(1)
    alarms = 0
    for seed in range(runs):
        flips = generator.random((2, 60)) < 0.15
        times = generator.lognormal(0, 0.3, (2, 60))
        pairs = [
            make_pair(
                i,
                bool(not flips[0, i]),
                bool(not flips[1, i]),
                (times[0, i], times[1, i]),
                ("odd",) if i % 2 else ("even",),
            )
            for i in range(60)
        ]
        alarms += judge(gates, pairs, seed).verdict is Verdict.REGRESSED
    # 5% at most, of which 60 runs show up to 8 by chance (binomial, 99%); bench/eval_runs.py
    # counts over 1,000.
    assert alarms <= 8


@pytest.mark.parametrize(("quantile", "pairs"), [(0.95, 72), (0.99, 368), (0.5, 10), (0.05, 72)])
def test_pairs_that_a_quantile_takes(quantile: float, pairs: int) -> None:
    assert min_pairs_for(quantile) == pairs


def test_stalls_on_both_sides_do_not_hide_a_slower_tail(make_pair) -> None:  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(8)
    base = generator.lognormal(-3, 0.5, 1000)
    times = base * generator.lognormal(0, 0.15, (2, 1000))
    times += (generator.random((2, 1000)) < 0.02) * generator.uniform(0.02, 0.2, (2, 1000))
    for factor, is_regressed in ((1.2, True), (1.0, False)):
        pairs = [make_pair(i, ttft_s=(times[0, i], times[1, i] * factor)) for i in range(1000)]
        gate = parse_gates("p95_ttft<=+10%")
        (result,) = judge(gate, pairs, 0).results
        assert (result.verdict is Verdict.REGRESSED) is is_regressed


def test_the_pairs_around_a_quantile() -> None:
    times = np.arange(1.0, 201.0).astype(np.float64)
    assert sorted(times[pairs_around(0.95, times, times)]) == list(range(181, 201))
    assert len(pairs_around(0.5, times, times)) == 200
    assert sorted(times[pairs_around(0.1, times, times)]) == list(range(1, 41))
    assert len(pairs_around(0.99, times, times)) == 10


def test_more_stalls_move_a_p95(make_pair) -> None:  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(9)
    times = generator.lognormal(-3, 0.2, 400) * generator.lognormal(0, 0.05, (2, 400))
    times[1] += (generator.random(400) < 0.08) * 0.3
    pairs = [make_pair(i, ttft_s=(times[0, i], times[1, i])) for i in range(400)]
    (result,) = judge(parse_gates("p95_ttft<=+10%"), pairs, 0).results
    assert result.verdict is Verdict.REGRESSED


def test_worse_within_the_margin_has_a_word_of_its_own(make_pair) -> None:  # type: ignore[no-untyped-def]
    (gate,) = parse_gates("accuracy>=-20%")
    judgement = judge([gate], [make_pair(i, True, i % 20 != 0) for i in range(400)], 0)
    assert judgement.verdict is Verdict.WORSE
    # Worse, but not shown to be within or beyond the margin: inconclusive.
    (gate,) = parse_gates("accuracy>=-6%")
    judgement = judge([gate], [make_pair(i, True, i % 20 != 0) for i in range(400)], 0)
    assert judgement.verdict is Verdict.INCONCLUSIVE


def test_a_slice_that_lost_is_known(make_pair) -> None:  # type: ignore[no-untyped-def]
    (gate,) = parse_gates("accuracy>=-10%")
    pairs = [make_pair(i, True, i >= 9, tags=("hard",)) for i in range(100)]
    pairs += [make_pair(i, tags=("easy",)) for i in range(100, 900)]
    judgement = judge([gate], pairs, 0)
    assert judgement.verdict is Verdict.WORSE
    assert [r.slice_name for r in judgement.lost_slices] == ["hard"]
