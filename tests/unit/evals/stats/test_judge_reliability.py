"""Agreement, order effects and correction of a judge."""

import math

import numpy as np
import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.judge_reliability import judge_corrected, judge_swap, kappa


def test_diagnoses_of_fleiss_cohen_and_everitt() -> None:
    # Fleiss, Cohen and Everitt 1969, Psychol. Bull. 72:323, table 1 as proportions of 200:
    # unweighted kappa 0.429 with standard error 0.054.
    table = [[106, 10, 4], [22, 28, 10], [2, 12, 6]]
    result = kappa(table)
    assert result.kappa == pytest.approx(0.429, abs=5e-4)
    assert result.std_error == pytest.approx(0.054, abs=5e-4)


def test_kappa_of_two_raters_by_hand() -> None:
    # p_o = 0.7, p_e = 0.5.
    assert kappa([[20, 5], [10, 15]]).kappa == pytest.approx(0.4)
    assert kappa([[7, 0], [0, 3]]).kappa == pytest.approx(1.0)


@pytest.mark.parametrize(
    "table", [[[5, 0], [0, 0]], [[0, 0], [0, 0]], [[1, 2]], [[1, -1], [2, 3]], []]
)
def test_tables_without_a_kappa_are_refused(table: list[list[float]]) -> None:
    with pytest.raises(ConfigurationError):
        kappa(table)


def test_a_verdict_that_changes_with_the_order_is_a_tie() -> None:
    result = judge_swap([["A", "A"], ["A", "B"], ["tie", "tie"], ["B", "tie"], ["B", "B"]])
    assert result.verdicts == ["A", "tie", "tie", "tie", "B"]
    assert result.flip_rate == pytest.approx(0.4)


@pytest.mark.parametrize("pairs", [[], [["A"]], [["A", "C"]], ["AB", "BA", ["A", "A"]]])
def test_verdicts_that_are_none_are_refused(pairs: list[list[str]]) -> None:
    with pytest.raises(ConfigurationError):
        judge_swap(pairs)


def test_the_correction_removes_the_judges_bias() -> None:
    result = judge_corrected(
        human=[1, 0, 1, 0, 1], judge_on_human=[1, 1, 1, 1, 1], judge_sum=900, judge_n=1000
    )
    assert result.judge_only == pytest.approx(0.9)
    assert result.estimate == pytest.approx(0.5)
    error = math.sqrt(0.9 * 0.1 / 1000 + np.var([0, -1, 0, -1, 0]) / 5)
    assert result.ci95 == pytest.approx((0.5 - 1.959964 * error, 0.5 + 1.959964 * error))


def test_the_corrected_interval_covers_the_truth() -> None:
    generator = np.random.default_rng(11)
    covered = 0
    for _ in range(300):
        truth = generator.random(2300) < 0.6
        judged = np.where(generator.random(2300) < 0.8, truth, True)
        result = judge_corrected(
            truth[:300].astype(float).tolist(),
            judged[:300].astype(float).tolist(),
            float(judged[300:].sum()),
            2000,
        )
        covered += result.ci95[0] <= 0.6 <= result.ci95[1]
    assert 0.91 <= covered / 300 <= 0.985


def test_a_judge_without_labels_or_scores_is_refused() -> None:
    for arguments in (([1], [1], 5, 10), ([1, 0], [1], 5, 10), ([1, 0], [1, 2], 5, 10)):
        with pytest.raises(ConfigurationError):
            judge_corrected(*arguments)
    with pytest.raises(ConfigurationError):
        judge_corrected([1, 0], [1, 0], 11, 10)
