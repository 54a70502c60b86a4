"""E-values and confidence sequences."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.sequential import confidence_sequence, evalue_discordant


@given(st.integers(0, 40), st.integers(0, 40), st.floats(0.5, 5))
def test_the_mixture_is_the_integral(k: int, rest: int, prior: float) -> None:
    n = k + rest
    expected, _ = quad(
        lambda p: beta.pdf(p, prior, prior) * (2 * p) ** k * (2 * (1 - p)) ** rest, 0, 1, limit=200
    )
    assert evalue_discordant(k, n, prior).log_e == pytest.approx(math.log(expected), abs=1e-3)


def test_the_uniform_prior_has_a_closed_form() -> None:
    result = evalue_discordant(9, 10, 1)
    assert result.e == pytest.approx(2**10 / (11 * math.comb(10, 9)))
    assert result.anytime_p == pytest.approx(11 * 10 / 2**10)


@given(st.integers(0, 60), st.floats(0.2, 4), st.floats(0.2, 4))
def test_under_a_fair_coin_the_expectation_is_one(n: int, a: float, b: float) -> None:
    total = sum(
        math.comb(n, k) / 2**n * math.exp(evalue_discordant(k, n, [a, b]).log_e)
        for k in range(n + 1)
    )
    assert total == pytest.approx(1.0, rel=1e-6)


def test_no_pair_is_no_evidence_and_huge_evidence_does_not_overflow() -> None:
    assert evalue_discordant(0, 0, 1).e == 1.0
    huge = evalue_discordant(5000, 5000, 1)
    assert huge.e is None
    assert huge.anytime_p == 0.0


def test_the_boundary_is_that_of_howard_et_al() -> None:
    expected = math.sqrt(101 * math.log(101 / (1 * 0.05**2)))
    assert confidence_sequence(0.05, 1, 100).bound == pytest.approx(expected)
    assert confidence_sequence(0.05, 4, 0).bound == pytest.approx(
        math.sqrt(4 * math.log(1 / 0.05**2))
    )


@given(st.floats(0.001, 0.5), st.floats(0.1, 100), st.floats(0, 1e6), st.floats(0.1, 1e4))
def test_the_boundary_widens_with_time_and_confidence(
    alpha: float, rho: float, v: float, more: float
) -> None:
    bound = confidence_sequence(alpha, rho, v).bound
    assert confidence_sequence(alpha, rho, v + more).bound > bound
    assert confidence_sequence(alpha / 2, rho, v).bound > bound


@pytest.mark.parametrize(("k", "n", "prior"), [(3, 2, 1), (1, 2, 0), (1, 2, [1]), (-1, 2, 1)])
def test_evidence_without_an_answer_is_refused(k: int, n: int, prior: float) -> None:
    with pytest.raises(ConfigurationError):
        evalue_discordant(k, n, prior)
