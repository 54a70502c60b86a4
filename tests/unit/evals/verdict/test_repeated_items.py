"""Repeats of an item count once."""

from dataclasses import replace

import numpy as np
import pytest

from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.gate_verdicts import Look
from evenkeel_evals.verdict.gates import parse_gates
from evenkeel_evals.verdict.looks import StoppingRule, judge_look
from evenkeel_evals.verdict.repeated_items import has_repeats, measure_items
from tests.unit.evals.conftest import MakePair

ACCURACY, SHIFT = parse_gates("accuracy>=-1%, shift_ttft<=+3%")


def repeat(pairs, count: int):  # type: ignore[no-untyped-def]
    return [
        replace(pair, index=i * len(pairs) + pair.index) for i in range(count) for pair in pairs
    ]


def test_three_repeats_are_not_three_items(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = [make_pair(i, True, i >= 5) for i in range(60)]
    once, thrice = measure_items(ACCURACY, pairs, 0), measure_items(ACCURACY, repeat(pairs, 3), 0)
    assert (once.num_pairs, thrice.num_pairs) == (60, 60)
    assert once == thrice
    assert once.estimate == pytest.approx(-5 / 60)
    assert once.p_worse == pytest.approx(1 / 32)


def test_an_item_is_the_mean_of_its_repeats(make_pair) -> None:  # type: ignore[no-untyped-def]
    steady = [make_pair(i) for i in range(30)]
    wavering = [*steady, *repeat([make_pair(0, True, False)], 1), make_pair(0)]
    effect = measure_items(ACCURACY, wavering, 0)
    assert effect.estimate == pytest.approx(-(1 / 3) / 30)
    assert has_repeats(wavering) and not has_repeats(steady)


def test_latency_is_the_geometric_mean_of_the_repeats(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = [make_pair(i, ttft_s=(0.1, 0.1 * 1.21)) for i in range(20)]
    slow = [make_pair(i, ttft_s=(0.1, 0.1)) for i in range(20)]
    effect = measure_items(SHIFT, pairs + slow, 0)
    assert (effect.num_pairs, effect.estimate) == (20, pytest.approx(0.1))


def test_unchanged_items_without_spread_do_not_clear_every_margin(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = repeat([make_pair(i) for i in range(40)], 2)
    judgement = judge_look(StoppingRule.FIXED, Look(1, 1, 80), [ACCURACY], pairs, 0)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    many = repeat([make_pair(i) for i in range(400)], 2)
    judgement = judge_look(StoppingRule.FIXED, Look(1, 1, 800), [ACCURACY], many, 0)
    assert judgement.verdict is Verdict.NO_WORSE


@pytest.mark.parametrize(("num_items", "percent"), [(100, 5), (300, 2)])
def test_a_loss_as_large_as_the_margin_passes_in_one_of_twenty_runs(
    make_pair: MakePair, num_items: int, percent: int
) -> None:
    gate = parse_gates(f"accuracy>=-{percent}%")[0]
    generator = np.random.default_rng(11)
    passed = 0
    for num_lost in generator.binomial(num_items, percent / 100, size=200):
        pairs = [make_pair(i, True, i >= num_lost) for i in range(num_items)]
        passed += (measure_items(gate, repeat(pairs, 2), 0).p_beyond or 0.0) < 0.05
    # 5 %, the steps of a count, and the scatter of 200 runs; a tenth to a sixth passed before.
    assert passed <= 18
