"""Paired tables and proportions against published values and brute force."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from statsmodels.stats.contingency_tables import mcnemar

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.binary import paired_binary, proportion
from evenkeel_evals.stats.tango import score_z

counts = st.integers(0, 60)
tables = st.tuples(counts, counts, counts, counts).filter(lambda t: sum(t) > 0)
intervals = ("wald", "bonett_price", "newcombe", "tango")


def test_airway_hyper_responsiveness_before_and_after_transplantation() -> None:
    # Bentur et al. 2009 as tabulated by Fagerland, Lydersen and Laake, Stat. Med. 2014, 33:2850:
    # there 1 − 2, here B − A with B the second, so signs are reversed.
    result = paired_binary(n11=1, n10=1, n01=7, n00=12)
    assert result.n == 21
    assert result.delta == pytest.approx(0.286, abs=5e-4)
    assert result.p_exact == pytest.approx(0.0703, abs=5e-5)
    assert result.p_midp == pytest.approx(0.0391, abs=5e-5)
    assert result.p_asymptotic == pytest.approx(0.0339, abs=5e-5)
    assert result.p_cc == pytest.approx(0.0771, abs=5e-5)
    assert result.ci95.wald == pytest.approx((0.052, 0.520), abs=5e-4)
    assert result.ci95.bonett_price == pytest.approx((0.013, 0.508), abs=5e-4)
    assert result.ci95.newcombe == pytest.approx((0.026, 0.507), abs=5e-4)
    assert result.ci95.tango == pytest.approx((0.026, 0.517), abs=5e-4)


def test_approval_of_the_prime_minister() -> None:
    # Agresti, Categorical Data Analysis, section 10.1.1: difference 0.04 with standard error
    # 0.0095 and interval (0.021, 0.059), McNemar's z² = 17.36; signs as B − A.
    result = paired_binary(n11=794, n10=150, n01=86, n00=570)
    assert result.delta == pytest.approx(-0.04)
    assert result.ci95.wald == pytest.approx((-0.059, -0.021), abs=5e-4)
    assert result.p_asymptotic == pytest.approx(math.erfc(math.sqrt(17.36 / 2)), rel=5e-3)


@given(tables)
def test_p_values_are_those_of_statsmodels(table: tuple[int, int, int, int]) -> None:
    n11, n10, n01, n00 = table
    result = paired_binary(*table)
    exact = mcnemar([[n11, n10], [n01, n00]], exact=True)
    assert result.p_exact == pytest.approx(exact.pvalue)
    if n10 + n01 > 0:
        plain = mcnemar([[n11, n10], [n01, n00]], exact=False, correction=False)
        assert result.p_asymptotic == pytest.approx(plain.pvalue)
    # statsmodels corrects equal counts away from each other: χ² = 1/n if nothing differs.
    if n10 != n01:
        corrected = mcnemar([[n11, n10], [n01, n00]], exact=False, correction=True)
        assert result.p_cc == pytest.approx(corrected.pvalue)


@given(counts, counts)
def test_the_mid_p_is_the_exact_p_less_one_point(n10: int, n01: int) -> None:
    n = n10 + n01
    tail = sum(math.comb(n, k) for k in range(min(n10, n01))) / 2**n
    point = math.comb(n, min(n10, n01)) / 2**n
    # At a tie, only half of the single table counts, not half of both tails.
    expected = 1 - point / 2 if n10 == n01 else 2 * (tail + point / 2)
    assert paired_binary(1, n10, n01, 0).p_midp == pytest.approx(expected if n else 1.0)


@given(tables)
def test_swapping_the_sides_turns_every_interval_round(table: tuple[int, int, int, int]) -> None:
    n11, n10, n01, n00 = table
    forward, backward = paired_binary(n11, n10, n01, n00), paired_binary(n11, n01, n10, n00)
    assert forward.delta == -backward.delta
    assert forward.p_exact == backward.p_exact
    for name in intervals:
        low, high = getattr(forward.ci95, name)
        assert (low, high) == pytest.approx(
            tuple(-limit for limit in reversed(getattr(backward.ci95, name))), abs=1e-9
        )
        assert -1 <= low <= forward.delta + 1e-12 or name == "bonett_price"
        assert low <= high <= 1


@given(tables)
def test_tango_limits_are_where_the_score_test_says_1_96(table: tuple[int, int, int, int]) -> None:
    _, n10, n01, _ = table
    n = sum(table)
    low, high = paired_binary(*table).ci95.tango
    if low > -1:
        assert score_z(low, n, n10, n01) == pytest.approx(1.959964, abs=1e-4)
    if high < 1:
        assert score_z(high, n, n10, n01) == pytest.approx(-1.959964, abs=1e-4)


def test_without_discordant_pairs_nothing_speaks_against_equality() -> None:
    result = paired_binary(30, 0, 0, 10)
    assert (result.p_exact, result.p_midp, result.p_asymptotic, result.p_cc) == (1, 1, 1, 1)
    half = 1.959964**2 / (40 + 1.959964**2)
    assert result.ci95.tango == pytest.approx((-half, half), abs=1e-6)


@pytest.mark.parametrize(
    "table", [(0, 0, 0, 0), (-1, 0, 0, 2), (1.5, 0, 0, 2), (True, 0, 0, 1), ("1", 0, 0, 1)]
)
def test_a_table_without_an_answer_is_refused(table: tuple[int, int, int, int]) -> None:
    with pytest.raises(ConfigurationError):
        paired_binary(*table)


@given(st.integers(0, 80), st.integers(1, 80))
def test_proportions_are_those_of_scipy(x: int, n: int) -> None:
    x = min(x, n)
    result = proportion(x, n)
    for name, method in (("wilson", "wilson"), ("clopper_pearson", "exact")):
        expected = binomtest(x, n).proportion_ci(0.95, method=method)
        assert getattr(result, name) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_newcombe_1998_single_proportions() -> None:
    # Newcombe 1998, Stat. Med. 17:857, table I: 81/263 and 0/20.
    assert proportion(81, 263).wilson == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert proportion(81, 263).clopper_pearson == pytest.approx((0.2527, 0.3676), abs=5e-5)
    assert proportion(0, 20).wilson == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert proportion(0, 20).clopper_pearson == pytest.approx((0.0, 0.1684), abs=5e-5)
