"""Clusters, multiplicity and permutations."""

import itertools

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats import sign_flips
from evenkeel_evals.stats.binary import paired_binary
from evenkeel_evals.stats.clusters import clustered_mean
from evenkeel_evals.stats.multiplicity import holm, multiplicity
from evenkeel_evals.stats.permutation import permutation_paired
from evenkeel_evals.stats.sign_flips import sign_flip_tails


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 4)), min_size=3, max_size=40))
def test_cluster_errors_are_those_of_statsmodels(rows: list[tuple[int, int]]) -> None:
    scores, clusters = [float(s) for s, _ in rows], [c for _, c in rows]
    result = clustered_mean(scores, clusters)
    assert result.mean == pytest.approx(np.mean(scores))
    if len(set(clusters)) < 2:
        assert (result.se_cr0, result.se_cr1) == (None, None)
        return
    model = sm.OLS(scores, np.ones(len(scores)))
    for field, corrected in (("se_cr0", False), ("se_cr1", True)):
        fit = model.fit(
            cov_type="cluster", cov_kwds={"groups": clusters, "use_correction": corrected}
        )
        assert getattr(result, field) == pytest.approx(float(fit.bse[0]), abs=1e-9)
    assert result.se_iid == pytest.approx(float(model.fit().bse[0]), abs=1e-9)


def test_clusters_of_one_are_nearly_independent_items() -> None:
    scores = [1, 0, 1, 1, 0]
    result = clustered_mean(scores, ["a", "b", "c", "d", "e"])
    assert result.se_cr1 == pytest.approx(result.se_iid)


def test_one_score_has_a_mean_and_no_error() -> None:
    result = clustered_mean([0.7], ["a"])
    assert (result.mean, result.se_iid, result.se_cr0, result.se_cr1) == (0.7, None, None, None)
    with pytest.raises(ConfigurationError):
        clustered_mean([], [])
    with pytest.raises(ConfigurationError):
        clustered_mean([1.0], ["a", "b"])


def test_holm_by_hand() -> None:
    # Holm 1979: 3 × 0.01, then 2 × 0.03, then at least as much.
    result = multiplicity([0.01, 0.04, 0.03], 0.05)
    assert result.holm.adjusted == pytest.approx([0.03, 0.06, 0.06])
    assert result.holm.reject == [True, False, False]
    assert result.bonferroni.adjusted == pytest.approx([0.03, 0.12, 0.09])
    assert result.fdr_bh.adjusted == pytest.approx([0.03, 0.04, 0.04])
    assert result.fdr_bh.reject == [True, True, True]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_at_least_what_bonferroni_does(p: list[float]) -> None:
    result = multiplicity(p, 0.05)
    for i in range(len(p)):
        assert p[i] <= result.holm.adjusted[i] + 1e-12
        assert result.holm.adjusted[i] <= result.bonferroni.adjusted[i] + 1e-12
        assert result.fdr_bh.adjusted[i] <= result.holm.adjusted[i] + 1e-12


def test_statsmodels_agrees() -> None:
    p = [0.001, 0.2, 0.04, 0.04, 0.011, 0.9]
    result = multiplicity(p, 0.05)
    for name in ("bonferroni", "holm", "fdr_bh"):
        reject, adjusted, _, _ = multipletests(p, 0.05, name)
        assert getattr(result, name).reject == reject.tolist()
        assert getattr(result, name).adjusted == pytest.approx(adjusted.tolist())


@pytest.mark.parametrize("p", [[], [1.2], [-0.1]])
def test_families_without_an_answer_are_refused(p: list[float]) -> None:
    with pytest.raises(ConfigurationError):
        multiplicity(p, 0.05)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=9))
def test_permutations_match_enumeration(differences: list[int]) -> None:
    observed = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product([-1, 1], repeat=len(differences))
    ]
    result = permutation_paired([0.0] * len(differences), [d / 10 for d in differences])
    assert result.p_two_sided == pytest.approx(np.mean([s >= observed for s in sums]))
    assert result.delta == pytest.approx(np.mean(differences) / 10, abs=1e-12)


@given(st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=25)
def test_scores_of_0_and_1_give_the_exact_mcnemar_test(lost: int, gained: int) -> None:
    a, b = [1] * lost + [0] * gained + [1], [0] * lost + [1] * gained + [1]
    result = permutation_paired(a, b)
    assert result.p_two_sided == pytest.approx(paired_binary(1, lost, gained, 0).p_exact)


def test_draws_approximate_the_exact_p() -> None:
    generator = np.random.default_rng(5)
    differences = generator.normal(0.3, 1, 20)
    exact = sign_flip_tails(differences)
    drawn = sign_flips._draw(np.abs(differences), abs(float(differences.sum())) - 1e-9)
    assert drawn == pytest.approx(2 * min(exact), abs=0.005)
    assert sign_flips._draw(np.abs(differences), abs(float(differences.sum())) - 1e-9) == drawn


def test_no_difference_is_no_evidence() -> None:
    assert permutation_paired([1, 2], [1, 2]).p_two_sided == 1.0
    with pytest.raises(ConfigurationError):
        permutation_paired([], [])
    for a in ([1e308, 1e308, -1e308], [-1e308, 1.0, 2.0]):
        with pytest.raises(ConfigurationError, match="too large to add"):
            permutation_paired(a, [1e308, 1e308, 1e308])
