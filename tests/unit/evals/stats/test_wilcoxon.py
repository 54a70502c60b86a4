"""Wilcoxon and Hodges-Lehmann against R's documentation, scipy and brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats import ranks, wilcoxon
from evenkeel_evals.stats.ordered_sums import OrderedSums
from evenkeel_evals.stats.wilcoxon import shift_paired, shift_unpaired

# Hamilton depression scale, first and second visit: Hollander and Wolfe, table 3.1; the first
# example of R's `?wilcox.test`: V = 40, p-value = 0.01953 for alternative = "greater".
FIRST = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
SECOND = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
# Permeability of human chorioamnion: Hollander and Wolfe, table 4.1; the second example of
# `?wilcox.test`: W = 35, p-value = 0.1272 for alternative = "greater".
AT_TERM = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
EARLY = [1.15, 0.88, 0.90, 0.74, 1.21]

small_values = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=8)
distinct = st.lists(st.integers(-10_000, 10_000).map(float), min_size=1, max_size=9, unique=True)


def test_depression_scale() -> None:
    result = shift_paired(FIRST, SECOND)
    assert result.v == 40
    assert result.p_greater == pytest.approx(0.01953125)
    assert result.p_two_sided == pytest.approx(0.0390625)
    assert result.pseudo_median == pytest.approx(0.46)
    assert result.ci95 == pytest.approx((0.010, 0.786))


def test_permeability() -> None:
    result = shift_unpaired(AT_TERM, EARLY)
    assert result.u == 35
    assert result.p_greater == pytest.approx(0.1272, abs=5e-5)
    assert result.p_two_sided == pytest.approx(0.2544, abs=5e-5)
    assert result.hodges_lehmann == pytest.approx(0.305)
    assert result.ci95 == pytest.approx((-0.15, 0.76))


def signed_rank_by_enumeration(differences: list[float]) -> tuple[float, float]:
    nonzero = np.array([d for d in differences if d != 0])
    doubled = ranks.doubled_ranks(np.abs(nonzero))
    observed = doubled[nonzero > 0].sum()
    sums = np.array(
        [
            sum(r for r, sign in zip(doubled, signs, strict=True) if sign)
            for signs in itertools.product([0, 1], repeat=len(nonzero))
        ]
    )
    return float(np.mean(sums >= observed)), float(np.mean(sums <= observed))


@given(small_values)
def test_signed_ranks_with_ties_and_zeros_match_enumeration(differences: list[float]) -> None:
    result = shift_paired(differences, [0.0] * len(differences))
    if not any(differences):
        assert (result.p_greater, result.p_two_sided, result.pseudo_median) == (1, 1, 0)
        return
    greater, less = signed_rank_by_enumeration(differences)
    assert result.p_greater == pytest.approx(greater)
    assert result.p_two_sided == pytest.approx(min(1, 2 * min(greater, less)))


@given(small_values, small_values)
@settings(max_examples=25)
def test_rank_sums_with_ties_match_enumeration(x: list[float], y: list[float]) -> None:
    doubled = ranks.doubled_ranks(np.array(x + y))
    observed = doubled[: len(x)].sum()
    sums = np.array([sum(c) for c in itertools.combinations(doubled.tolist(), len(x))])
    result = shift_unpaired(x, y)
    greater, less = float(np.mean(sums >= observed)), float(np.mean(sums <= observed))
    assert result.p_greater == pytest.approx(greater)
    assert result.p_two_sided == pytest.approx(min(1, 2 * min(greater, less)))


@given(distinct, distinct)
def test_without_ties_scipy_agrees(x: list[float], y: list[float]) -> None:
    y = [value + 0.5 for value in y]
    result = shift_unpaired(x, y)
    expected = stats.mannwhitneyu(x, y, alternative="two-sided", method="exact")
    assert result.u == expected.statistic
    assert result.p_two_sided == pytest.approx(expected.pvalue)


@given(distinct.filter(lambda d: len({abs(v) for v in d}) == len(d) and 0 not in d))
def test_without_ties_the_interval_inverts_the_test(differences: list[float]) -> None:
    low, high = shift_paired(differences, [0.0] * len(differences)).ci95
    if len(differences) < 6:
        assert (low, high) == (None, None)
        return
    assert low is not None and high is not None
    # A shift just outside the interval is rejected at 5%, one just inside is not.
    inside = stats.wilcoxon(np.array(differences) - (low + 1e-6), method="exact").pvalue
    outside = stats.wilcoxon(np.array(differences) - (low - 1e-6), method="exact").pvalue
    assert outside <= 0.05 < inside


@given(small_values, small_values)
def test_swapping_the_samples_turns_the_shift_round(x: list[float], y: list[float]) -> None:
    forward, backward = shift_unpaired(x, y), shift_unpaired(y, x)
    assert forward.hodges_lehmann == -backward.hodges_lehmann
    assert forward.p_two_sided == pytest.approx(backward.p_two_sided)
    assert forward.u + backward.u == len(x) * len(y)


def test_one_pair_has_an_estimate_but_no_interval() -> None:
    result = shift_paired([3.0], [1.0])
    assert (result.v, result.p_two_sided, result.pseudo_median) == (1.0, 1.0, 2.0)
    assert result.ci95 == (None, None)


def test_differences_that_are_equal_but_for_rounding_are_ties() -> None:
    # 0.3 − 0.2 and 0.2 − 0.1 differ in the last bit; as ties both have rank 1.5.
    assert shift_paired([0.3, 0.1], [0.2, 0.2]).v == 1.5


def test_large_samples_agree_with_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(7)
    x, y = generator.normal(0.1, 1, 200), generator.normal(0, 1, 200)
    exact = shift_paired(x.tolist(), y.tolist())
    unpaired = shift_unpaired(x[:60].tolist(), y[:70].tolist())
    monkeypatch.setattr(ranks, "MAX_ADDITIONS", 0)
    wilcoxon._paired_critical.cache_clear()
    normal = shift_paired(x.tolist(), y.tolist())
    assert normal.p_two_sided == pytest.approx(exact.p_two_sided, abs=2e-3)
    assert normal.ci95 == pytest.approx(exact.ci95, abs=0.01)
    normal_unpaired = shift_unpaired(x[:60].tolist(), y[:70].tolist())
    assert normal_unpaired.p_greater == pytest.approx(unpaired.p_greater, abs=2e-3)
    assert normal_unpaired.ci95 == pytest.approx(unpaired.ci95, abs=0.02)
    wilcoxon._paired_critical.cache_clear()


@given(small_values, small_values, st.booleans())
def test_ranks_found_by_bisection_are_those_of_sorting(
    x: list[float], y: list[float], is_triangle: bool
) -> None:
    first, second = np.array(x) / 7, None if is_triangle else np.array(y) / 3
    stored = OrderedSums(first, second)
    sought = OrderedSums(first, second)
    sought._sorted = None
    for rank in range(1, len(stored) + 1):
        assert sought.at_rank(rank) == pytest.approx(stored.at_rank(rank), abs=1e-12)


@pytest.mark.parametrize(
    ("x", "y"), [([], []), ([1.0], [1.0, 2.0]), (["a"], [1.0]), ([float("nan")], [1.0])]
)
def test_samples_without_an_answer_are_refused(x: list[float], y: list[float]) -> None:
    with pytest.raises(ConfigurationError):
        shift_paired(x, y)
