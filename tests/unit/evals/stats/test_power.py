"""Power and sample sizes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, multinomial

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.power import (
    mcnemar_power,
    pairs_to_show_noninferiority,
    sample_size_paired,
    smallest_detectable_difference,
)


def test_the_worked_example_of_miller() -> None:
    # Miller 2024, section 5: ω² = 1/9, no variance within questions, δ = 0.03: about 969.
    assert sample_size_paired(0.05, 0.8, 0.03, 1 / 9, 0, 0, 1, 1).n == 969


def test_more_answers_a_question_need_fewer_questions() -> None:
    one = sample_size_paired(0.05, 0.8, 0.03, 1 / 9, 1 / 6, 1 / 6, 1, 1).n
    ten = sample_size_paired(0.05, 0.8, 0.03, 1 / 9, 1 / 6, 1 / 6, 10, 10).n
    assert one == 3876
    assert ten == 1260


@given(st.integers(1, 14), st.floats(0, 0.6), st.floats(0, 0.4), st.sampled_from([0.01, 0.05, 0.2]))
@settings(max_examples=25)
def test_power_matches_enumeration(n: int, p10: float, p01: float, alpha: float) -> None:
    expected = 0.0
    for n10 in range(n + 1):
        for n01 in range(n + 1 - n10):
            p = min(1.0, 2 * binom.cdf(min(n10, n01), n10 + n01, 0.5))
            if p <= alpha:
                rest = max(0.0, 1 - p10 - p01)
                expected += multinomial.pmf([n10, n01, n - n10 - n01], n, [p10, p01, rest])
    assert mcnemar_power(n, p10, p01, alpha).power == pytest.approx(expected, abs=1e-9)


@given(st.integers(10, 500), st.floats(0, 0.5))
def test_the_level_is_never_exceeded(n: int, p: float) -> None:
    assert mcnemar_power(n, p / 2, p / 2, 0.05).power <= 0.05 + 1e-12


def test_two_hundred_items_see_six_points() -> None:
    # 200 items, 10% discordant: 6.4 points at 80% power; a −1 point margin takes 6,200 pairs.
    seen = smallest_detectable_difference(200, 0.1)
    assert seen == pytest.approx(0.064, abs=3e-3)
    assert pairs_to_show_noninferiority(0.01, 0.1) == pytest.approx(6183, abs=2)


def test_five_items_see_nothing() -> None:
    assert smallest_detectable_difference(5, 0.1) is None


def test_questions_without_an_answer_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="delta is 0"):
        sample_size_paired(0.05, 0.8, 0, 0.1, 0, 0, 1, 1)
    with pytest.raises(ConfigurationError):
        sample_size_paired(0.05, 0.8, 0.1, 0.1, 0, 0, 0, 1)
    with pytest.raises(ConfigurationError, match="p10"):
        mcnemar_power(10, 0.7, 0.5, 0.05)
    assert mcnemar_power(10, 0, 0, 0.05).power == 0
