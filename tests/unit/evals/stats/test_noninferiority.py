"""Non-inferiority of accuracy and latency."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_ind, ttest_rel

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.noninferiority import noninferior_accuracy, noninferior_latency
from evenkeel_evals.stats.verdict_names import Verdict

latencies = st.lists(st.floats(0.01, 10), min_size=3, max_size=30)


def test_disinfection_of_contact_lenses() -> None:
    # Tango 1998, Stat. Med. 17:891, section 5 (Miyanaga 1994): 44 pairs, one lost, margin 0.1:
    # Z = 1.709, one-sided p = 0.044, 90% interval (−0.096, 0.027).
    result = noninferior_accuracy(n=44, n10=1, n01=0, margin=0.1)
    assert result.delta == pytest.approx(-1 / 44)
    assert result.z == pytest.approx(1.709, abs=5e-4)
    assert result.p == pytest.approx(0.044, abs=5e-4)
    assert result.lower90 == pytest.approx(-0.096, abs=5e-4)
    assert result.verdict is Verdict.NO_WORSE


@given(st.integers(1, 400), st.integers(0, 60), st.integers(0, 60), st.floats(0, 0.3))
def test_the_test_and_the_interval_say_the_same(n: int, n10: int, n01: int, margin: float) -> None:
    result = noninferior_accuracy(n + n10 + n01, n10, n01, margin)
    if abs(result.p - 0.05) > 1e-6:
        assert (result.p < 0.05) == (result.lower90 > -margin)


@pytest.mark.parametrize(
    ("name", "n10", "n01", "verdict"),
    [
        ("many lost", 40, 4, Verdict.REGRESSED),
        ("many gained", 4, 40, Verdict.BETTER),
        ("nothing changed", 0, 0, Verdict.NO_WORSE),
        ("as many lost as gained", 20, 20, Verdict.INCONCLUSIVE),
    ],
)
def test_verdicts_on_accuracy(name: str, n10: int, n01: int, verdict: Verdict) -> None:
    assert noninferior_accuracy(400, n10, n01, 0.01).verdict is verdict, name


@given(latencies, st.integers(0, 1000))
def test_paired_latency_is_the_t_test_on_logarithms(a: list[float], seed: int) -> None:
    b = (np.array(a) * np.random.default_rng(seed).lognormal(0, 0.2, len(a))).tolist()
    result = noninferior_latency(a, b, 1.05)
    expected = ttest_rel(np.log(b), np.log(a) + math.log(1.05), alternative="less")
    assert result.p == pytest.approx(expected.pvalue)
    assert result.upper95 == pytest.approx(
        math.exp(ttest_rel(np.log(b), np.log(a)).confidence_interval(0.9).high)
    )
    assert result.ratio == pytest.approx(math.exp(np.mean(np.log(b)) - np.mean(np.log(a))))


@given(latencies, latencies)
def test_lists_of_different_lengths_are_independent_samples(a: list[float], b: list[float]) -> None:
    a = [*a, 0.5, 2.0]
    b = [*b, *(0.5 + i for i in range(len(a) + 1))]
    result = noninferior_latency(a, b, 1.1)
    expected = ttest_ind(np.log(b), np.log(a) + math.log(1.1), equal_var=False, alternative="less")
    assert result.p == pytest.approx(expected.pvalue, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "factor", "verdict"),
    [
        ("twice as fast", 0.5, Verdict.BETTER),
        ("the same", 1.0, Verdict.NO_WORSE),
        ("a little slower, within the margin", 1.02, Verdict.NO_WORSE),
        ("half as slow again", 1.5, Verdict.REGRESSED),
    ],
)
def test_verdicts_on_latency(name: str, factor: float, verdict: Verdict) -> None:
    a = np.random.default_rng(3).lognormal(0, 0.5, 200)
    noise = np.random.default_rng(4).lognormal(0, 0.01, 200)
    result = noninferior_latency(a.tolist(), (a * noise * factor).tolist(), 1.05)
    assert result.verdict is verdict, name


def test_latencies_without_spread_compare_exactly() -> None:
    result = noninferior_latency([1.0, 2.0, 3.0], [1.1, 2.2, 3.3], 1.05)
    assert (result.p, result.verdict) == (1.0, Verdict.REGRESSED)
    assert result.upper95 == pytest.approx(1.1)


def test_a_margin_may_be_a_ratio_or_a_fraction() -> None:
    a, b = [1.0, 2.0, 3.0, 4.0], [1.1, 1.9, 3.2, 3.8]
    assert noninferior_latency(a, b, 1.05).p == pytest.approx(noninferior_latency(a, b, 0.05).p)
    with pytest.raises(ConfigurationError, match=r"0\.95"):
        noninferior_latency(a, b, 0.95)


@pytest.mark.parametrize(
    ("a", "b"), [([1.0], [1.0]), ([0.0, 1.0], [1.0, 1.0]), ([1.0, -1], [1, 1])]
)
def test_latencies_without_an_answer_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ConfigurationError):
        noninferior_latency(a, b, 1.05)


def test_counts_without_an_answer_are_refused() -> None:
    for arguments in ((0, 0, 0, 0.1), (5, 3, 3, 0.1), (5, 1, 1, -0.1), (5, 1, 1, 1.0)):
        with pytest.raises(ConfigurationError):
            noninferior_accuracy(*arguments)
