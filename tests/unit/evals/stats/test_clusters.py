"""Clustered items affect direction, interval and margin."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from bench.unchanged_runs import FALSE, GATES, simulate
from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.ask.schedule import interleave
from evenkeel_evals.stats.clustered_wilcoxon import shift_of_clusters
from evenkeel_evals.stats.clusters import cluster_codes, design_effect
from evenkeel_evals.stats.inputs import Floats
from evenkeel_evals.stats.sign_flips import sign_flip_tails
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.stats.wilcoxon import shift_of_differences
from evenkeel_evals.verdict.gate_verdicts import Look, judge
from evenkeel_evals.verdict.gates import parse_gates
from evenkeel_evals.verdict.looks import StoppingRule, judge_look
from evenkeel_evals.verdict.measure import measure
from evenkeel_evals.verdict.repeated_items import measure_items

MakePair = Callable[..., AnsweredPair]
ACCURACY, P50, SHIFT = parse_gates("accuracy>=-1%, p50_ttft<=+5%, shift_ttft<=+3%")


def in_clusters(pairs: list[AnsweredPair], size: int) -> list[AnsweredPair]:
    return [
        replace(pair, item=replace(pair.item, cluster_id=f"c{i // size}"))
        for i, pair in enumerate(pairs)
    ]


@given(st.integers(0, 40), st.integers(0, 40))
def test_signs_of_single_items_are_mcnemars_test(lost: int, gained: int) -> None:
    less, greater = sign_flip_tails(np.array([-1.0] * lost + [1.0] * gained + [0.0]))
    assert less == pytest.approx(float(binom.sf(lost - 1, lost + gained, 0.5)))
    assert greater == pytest.approx(float(binom.sf(gained - 1, lost + gained, 0.5)))


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=12))
def test_tails_are_those_of_all_signs(terms: list[int]) -> None:
    sums = np.zeros(1)
    for term in terms:
        sums = np.concatenate([sums + term, sums - term])
    total = sum(terms)
    exact = (float((sums <= total).mean()), float((sums >= total).mean()))
    many = np.array(terms + [0] * 30, dtype=float)
    assert sign_flip_tails(many) == pytest.approx(exact)


def test_sums_on_a_lattice_of_many_terms_are_exact_in_the_tail() -> None:
    less, greater = sign_flip_tails(np.full(100, 6.0))
    assert (less, greater) == (1.0, pytest.approx(0.5**100))


@pytest.mark.parametrize("scale", [1e-200, 1e-10, 1.0, 2.0**53, 1e150, 1e307])
@pytest.mark.parametrize(
    "terms",
    [np.full(25, 1.0), np.linspace(-1.0, 2.0, 20), np.linspace(-1.0, 1.1, 1200)],
    ids=["a lattice", "few", "many"],
)
def test_tails_do_not_depend_on_the_unit(terms: Floats, scale: float) -> None:
    assert sign_flip_tails(terms * scale) == pytest.approx(sign_flip_tails(terms), rel=1e-9)


def test_of_very_many_terms_the_normal_distribution_is_close() -> None:
    generator = np.random.default_rng(0)
    terms = generator.integers(-50_000, 50_100, 4000).astype(float)
    less, greater = sign_flip_tails(terms)
    assert less + greater == pytest.approx(1.0, abs=1e-6)


def test_single_clusters_change_no_shift() -> None:
    differences = np.random.default_rng(1).normal(0.1, 1, 40)
    assert shift_of_clusters(differences, np.arange(40)) == shift_of_differences(differences)


def test_clusters_of_one_mind_are_worth_as_many_items_as_there_are_clusters() -> None:
    few = np.random.default_rng(2).normal(0.5, 1, 30)
    many, codes = np.repeat(few, 5), np.repeat(np.arange(30), 5)
    whole, single = shift_of_clusters(many, codes), shift_of_differences(few)
    assert whole.p_greater == pytest.approx(single.p_greater, rel=0.5)
    assert whole.ci95[0] is not None and single.ci95[0] is not None
    assert whole.ci95[0] < shift_of_differences(many).ci95[0]  # type: ignore[operator]
    assert whole.ci95[0] == pytest.approx(single.ci95[0], abs=0.15)


def test_a_design_effect_lies_between_independence_and_one_mind() -> None:
    codes = np.repeat(np.arange(40), 5)
    generator = np.random.default_rng(3)
    alike = np.repeat(generator.choice([-1.0, 0.0, 1.0], 40), 5)
    apart = generator.choice([-1.0, 0.0, 1.0], 200)
    nothing = np.zeros(200)
    assert design_effect(alike, nothing, codes) == pytest.approx(5.0, rel=0.05)
    assert design_effect(apart, nothing, codes) < 1.6
    # No changes, so the baseline's scores decide; those do not vary either: fully correlated.
    assert design_effect(nothing, apart, codes) < 1.6
    assert design_effect(nothing, np.ones(200), codes) == 5.0
    assert design_effect(nothing, np.ones(200), np.arange(200)) == 1.0


def test_large_clusters_beside_single_items_hide_no_loss(make_pair: MakePair) -> None:
    gate = parse_gates("accuracy>=-10%")[0]
    right, lost = make_pair(0), make_pair(0, True, False)
    clusters = np.repeat(np.arange(153), [50] * 3 + [1] * 150)
    generator, num_passed = np.random.default_rng(4), 0
    for _ in range(100):
        # A tenth of the questions is lost, with all of their variants.
        is_lost = generator.random(153) < 0.1
        pairs = [
            replace(pair, item=replace(pair.item, id=str(i), cluster_id=str(code)))
            for i, code in enumerate(clusters)
            for pair in [lost if is_lost[code] else right]
        ]
        num_passed += (measure(gate, pairs, 0).p_beyond or 0.0) < 0.05
    assert num_passed <= 9


def num_passing(make_pair: MakePair, sizes: list[int], correlation: float, lost: float) -> int:
    """Return how many of 200 runs pass accuracy>=-10%, with a baseline that is 95% right.

    Items take their question's fate with the square root of the correlation as its probability;
    of the right answers, the candidate loses a share, and 1.5% change in either direction.
    """
    gate = parse_gates("accuracy>=-10%")[0]
    codes = np.repeat(np.arange(len(sizes)), sizes)
    n, generator = len(codes), np.random.default_rng(6)

    def draw(probability: float) -> np.ndarray:
        common, own = generator.random(len(sizes)), generator.random(n)
        is_shared = generator.random(n) < np.sqrt(correlation)
        return np.where(is_shared, common[codes], own) < probability

    known = {ab: make_pair(0, *ab) for ab in ((x, y) for x in (True, False) for y in (True, False))}
    num_passed = 0
    for _ in range(200):
        a = draw(0.95)
        b = (a & ~draw(lost)) ^ (generator.random(n) < (0.0 if lost else 0.03))
        pairs = [
            replace(pair, item=replace(pair.item, id=str(i), cluster_id=str(code)))
            for i, code in enumerate(codes)
            for pair in [known[bool(a[i]), bool(b[i])]]
        ]
        num_passed += (measure(gate, pairs, 0).p_beyond or 0.0) < 0.05
    return num_passed


@pytest.mark.parametrize("sizes", [[60] * 5, [20] * 6, [10] * 12])
def test_few_questions_with_many_variants_hide_no_loss(
    make_pair: MakePair, sizes: list[int]
) -> None:
    # 5% of 200, and their scatter; 20 to 60 passed while a few wrong answers told the correlation.
    assert num_passing(make_pair, sizes, 0.6, 0.1 / 0.95) <= 18


def test_a_few_questions_suffice_if_their_variants_are_independent(make_pair: MakePair) -> None:
    assert num_passing(make_pair, [30] * 10, 0.0, 0.0) >= 180


def test_a_cluster_larger_than_all_others_is_as_correlated_as_they_are() -> None:
    codes = np.repeat(np.arange(101), [100] + [2] * 100)
    changes = np.where((codes > 0) & (codes % 5 == 0), -1.0, 0.0)
    # 300 items: Σm²/Σm = 10,400 / 300.
    assert design_effect(changes, np.ones(300), codes) == pytest.approx(34.7, rel=0.05)


def test_clusters_shape_accuracy_in_every_respect(make_pair: MakePair) -> None:
    pairs = [make_pair(i, True, i % 60 >= 15) for i in range(300)]
    single, whole = measure(ACCURACY, pairs, 0), measure(ACCURACY, in_clusters(pairs, 5), 0)
    assert single.estimate == whole.estimate
    assert single.p_worse is not None and whole.p_worse is not None
    assert single.p_worse < whole.p_worse
    assert whole.p_worse == pytest.approx(0.5**15)
    assert whole.lower < single.lower and whole.upper > single.upper  # type: ignore[operator]
    assert "over 60 clusters" in str(whole.note)


def test_one_cluster_proves_nothing(make_pair: MakePair) -> None:
    effect = measure(ACCURACY, in_clusters([make_pair(i) for i in range(400)], 400), 0)
    assert (effect.lower, effect.upper, effect.p_beyond) == (-1.0, 1.0, 1.0)


@pytest.mark.parametrize("gate", [P50, SHIFT], ids=["p50", "shift"])
def test_clusters_widen_latency_intervals(make_pair: MakePair, gate: object) -> None:
    generator = np.random.default_rng(4)
    shared = np.repeat(generator.normal(0, 0.1, 40), 10)
    base = generator.lognormal(-3, 0.5, 400)
    pairs = [make_pair(i, ttft_s=(base[i], base[i] * float(np.exp(shared[i])))) for i in range(400)]
    single, whole = measure(gate, pairs, 0), measure(gate, in_clusters(pairs, 10), 0)  # type: ignore[arg-type]
    assert whole.upper - whole.lower > 1.5 * (single.upper - single.lower)  # type: ignore[operator]


@pytest.mark.parametrize("size", [1, 5, 20])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
def test_an_unchanged_candidate_hardly_ever_gets_a_verdict(size: int, correlation: float) -> None:
    """A short form of bench/unchanged_runs.py: the chance of 12 of 60 is 1 in 10,000,000."""
    runs = 60 if size > 1 else 30
    verdicts = [
        judge(GATES, simulate(size, correlation, seed), seed).verdict for seed in range(runs)
    ]
    assert sum(verdict in FALSE for verdict in verdicts) < 12


def test_repeats_of_clustered_items_flip_signs_by_cluster(make_pair: MakePair) -> None:
    lost = [make_pair(i, True, i >= 30) for i in range(60)]
    twice = [*lost, *(replace(pair, index=pair.index + 60) for pair in lost)]
    single = measure_items(ACCURACY, twice, 0)
    whole = measure_items(ACCURACY, in_clusters(lost, 10) + in_clusters(lost, 10), 0)
    assert single.p_worse == pytest.approx(0.5**30)
    assert whole.p_worse == pytest.approx(0.5**3)


def test_at_any_time_one_bet_is_made_on_a_cluster(make_pair: MakePair) -> None:
    pairs = [make_pair(i, True, i >= 60) for i in range(100)]
    look = Look(1, 2, 100)
    assert judge_look(StoppingRule.ANYTIME, look, [ACCURACY], pairs, 0).verdict is Verdict.REGRESSED
    clustered = in_clusters(pairs, 20)
    assert (
        judge_look(StoppingRule.ANYTIME, look, [ACCURACY], clustered, 0).verdict
        is Verdict.INCONCLUSIVE
    )


def test_the_items_of_a_cluster_follow_each_other_if_asked_to(make_pair: MakePair) -> None:
    items = [pair.item for pair in in_clusters([make_pair(i) for i in range(60)], 5)]
    items = items[::2] + items[1::2]
    planned = interleave(items, 3, keeps_clusters=True)
    names = [pair.item.cluster_id for pair in planned]
    changes = sum(a != b for a, b in pairwise(names))
    assert changes == 11
    assert cluster_codes(names).max() == 11
    assert [pair.item.id for pair in interleave(items, 3)] != [p.item.id for p in planned]
