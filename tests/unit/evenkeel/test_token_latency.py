"""Token latency against the definitions of docs/metrics.md."""

from math import nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.token_latency import ZERO_GAPS, Emissions, TokenLatency, measure, zero_gap_note

MS = 1_000_000


def stream(*pairs: tuple[int, int]) -> Emissions:
    return Emissions([time_ms * MS for time_ms, _ in pairs], [tokens for _, tokens in pairs])


@pytest.mark.parametrize(
    ("emissions", "expected"),
    [
        pytest.param(
            stream(), TokenLatency(None, None, None, None, None), id="no token, no latency"
        ),
        pytest.param(
            stream((30, 1)), TokenLatency(0.03, None, None, None, None), id="one token has no TPOT"
        ),
        pytest.param(
            stream((30, 1), (40, 1), (60, 1)),
            TokenLatency(0.03, 0.015, 0.015, 0.0199, 0.02),
            id="two gaps",
        ),
        pytest.param(
            stream((30, 1), (40, 4)),
            TokenLatency(0.03, 0.0025, 0.0, 0.0097, 0.01),
            id="a burst of four is one gap and three zeros",
        ),
        pytest.param(
            stream((30, 3)),
            TokenLatency(0.03, 0.0, 0.0, 0.0, None),
            id="all tokens in one emission never stall",
        ),
    ],
)
def test_measure(emissions: Emissions, expected: TokenLatency) -> None:
    measured = measure(0, emissions)
    for name in TokenLatency.__slots__:
        assert getattr(measured, name) == pytest.approx(getattr(expected, name)), name


@pytest.mark.parametrize(
    "emissions",
    [
        pytest.param(stream((30, 1), (20, 1)), id="time runs backwards"),
        pytest.param(stream((30, 0)), id="an emission without a token"),
    ],
)
def test_measure_refuses(emissions: Emissions) -> None:
    with pytest.raises(ValueError, match="emission"):
        measure(0, emissions)


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(1, 9)), min_size=1, max_size=40))
def test_quantiles_equal_numpy_on_the_expanded_gaps(steps: list[tuple[int, int]]) -> None:
    time_ns, times_ns, gaps = 5, [], []
    for index, (gap_ns, tokens) in enumerate(steps):
        time_ns += gap_ns
        times_ns.append(time_ns)
        gaps += ([] if index == 0 else [gap_ns / 1e9]) + [0.0] * (tokens - 1)
    measured = measure(0, Emissions(times_ns, [tokens for _, tokens in steps]))
    if not gaps:
        assert measured.itl_p50_s is None
        return
    assert measured.itl_p50_s == pytest.approx(np.quantile(gaps, 0.5), abs=1e-9)
    assert measured.itl_p99_s == pytest.approx(np.quantile(gaps, 0.99), abs=1e-9)
    assert measured.tpot_s == pytest.approx(np.mean(gaps), abs=1e-9)


@pytest.mark.parametrize(
    ("gaps_s", "is_said"),
    [((0.0, 0.003), True), ((1e-13,), True), ((1e-6, 0.003), False), ((None, nan), False)],
)
def test_a_percentile_of_0_is_explained(gaps_s: tuple[float | None, ...], is_said: bool) -> None:
    assert zero_gap_note(*gaps_s) == (ZERO_GAPS if is_said else "")
