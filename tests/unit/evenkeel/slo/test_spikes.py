"""When a window is above its cohort's own past, and when it is not."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

from bench.anomalies import DAY_S, SHARE, TOKENS, Replay, daily, stationary
from evenkeel.slo.spikes import (
    LEVELS,
    Spike,
    SpikePast,
    SpikeResult,
    SpikeWindow,
    deviation,
    judge_spike,
    range_text,
    spike_text,
)

DAY = 288


def tokens(times: float, num: int = 100, width: int = 1) -> SpikeWindow:
    """Return a window whose tokens are spread from half to one and a half of a level of 100."""
    return SpikeWindow(width, num, tuple(100 * times * (0.5 + level) for level in LEVELS))


def past(values: list[float], num: int = 100) -> SpikePast:
    return SpikePast(np.where(np.isnan(values), 0.0, num), np.array(values))


CALM = past([100.0] * 60)
# A batch of an hour on each of five days, that began at the same time a day ago.
BATCH = past(([300.0] * 12 + [100.0] * (DAY - 12)) * 5)


@pytest.mark.parametrize(
    ("window", "before", "holds"),
    [
        pytest.param(tokens(2), CALM, True, id="twice as many"),
        pytest.param(tokens(1.4), CALM, False, id="too small an effect"),
        pytest.param(tokens(2, 29), CALM, None, id="too few requests"),
        pytest.param(tokens(2), past([100.0] * 11), None, id="too little past"),
        pytest.param(tokens(2), past([np.nan] * 60), None, id="an empty past"),
        pytest.param(tokens(2), past([100.0] * 60, num=7), None, id="a past of few requests"),
        pytest.param(tokens(3), BATCH, False, id="the same time yesterday"),
        pytest.param(tokens(6), BATCH, True, id="more than at that time"),
        pytest.param(tokens(2), past([100.0, 100.0, 220.0] * 20), False, id="bursts are usual"),
        pytest.param(tokens(0.2), CALM, False, id="fewer"),
        pytest.param(tokens(2), past([0.0] * 60), True, id="nothing before"),
    ],
)
def test_tokens_against_the_past(
    window: SpikeWindow, before: SpikePast, holds: bool | None
) -> None:
    assert judge_spike(TOKENS, [window], before).holds is holds


@pytest.mark.parametrize(
    ("num", "share", "usual", "holds"),
    [
        pytest.param(60, 0.2, 0.01, True, id="one percent becomes twenty"),
        pytest.param(60, 0.05, 0.01, False, id="too small an effect"),
        pytest.param(30, 0.1, 0.0, False, id="three of thirty may be chance"),
        pytest.param(30, 0.5, 0.0, True, id="half of thirty is not"),
        pytest.param(60, 0.9, 0.9, False, id="always so"),
        pytest.param(29, 1.0, 0.0, None, id="too few requests"),
    ],
)
def test_shares_against_the_past(num: int, share: float, usual: float, holds: bool | None) -> None:
    window = SpikeWindow(1, num, share=share)
    assert judge_spike(SHARE, [window], past([usual] * 60)).holds is holds


def test_a_longer_window_finds_what_a_short_one_cannot() -> None:
    short, long = tokens(1.6, 30), tokens(1.6, 120, width=4)
    assert judge_spike(TOKENS, [short], CALM).holds is False
    found = judge_spike(TOKENS, [short, long], CALM)
    assert (found.holds, found.width, found.requests) == (True, 4, 120)


def test_the_deviance_of_a_share() -> None:
    """Known answers: 2 n KL, of which n log 2 for 'all' against one half."""
    assert deviation(30, 1.0, 0.5) == pytest.approx(sqrt(2 * 30 * np.log(2)))
    assert deviation(50, 0.5, 0.5) == 0
    assert deviation(100, 0.2, 0.5) == pytest.approx(-sqrt(200 * 0.192745), rel=1e-4)


def test_the_words() -> None:
    found = SpikeResult(True, 812.0, 401.0, 64, 2)
    assert spike_text(TOKENS, found) == (
        "812 input tokens per request (median of 64 in 10m), usually 401, 2.0 times as many"
    )
    found = SpikeResult(True, 0.25, 0.012, 64)
    assert spike_text(SHARE, found) == (
        "25% of 64 requests in 5m are answers that repeat themselves, usually 1.2%"
    )
    assert spike_text(SHARE, SpikeResult(None)) == "no data"


def test_the_range_that_is_usual() -> None:
    before = past([90.0, 110.0] * 12)
    found = judge_spike(TOKENS, [tokens(3)], before)
    assert (found.holds, found.usual_range) == (True, (90.0, 110.0))
    assert range_text(TOKENS, found) == "90 to 110 in nine of ten windows of the 2h before"
    assert range_text(SHARE, SpikeResult(None, usual_range=(0.0, 0.012))) == (
        "0.0% to 1.2% in nine of ten windows of the 2h before"
    )
    assert range_text(TOKENS, SpikeResult(None)) == ""


@pytest.mark.parametrize("test", [TOKENS, SHARE], ids=["tokens", "share"])
def test_calm_traffic_raises_no_alarm(test: Spike) -> None:
    """Two days of each kind; bench/anomalies.py replays months."""
    random = np.random.default_rng(7)
    for draw in (stationary, daily):
        replay = Replay(test, draw(random, 2, 0.3), 2)
        assert replay.alarms(DAY_S, 2 * DAY_S) == []


def test_a_day_need_not_be_a_whole_number_of_windows() -> None:
    """A batch from midnight to two is usual at 01:10 in windows of 50 minutes."""
    test = Spike("input_tokens", Fraction(3000))
    begins = np.arange(203) * 3000 % DAY_S
    values = np.where(begins < 7200, 300.0, 100.0).tolist()
    assert judge_spike(test, [tokens(3)], past(values)).holds is False


def test_when_nothing_can_be_judged_the_window_with_most_requests_is_returned() -> None:
    found = judge_spike(TOKENS, [tokens(2, 5), tokens(2, 40, width=4)], past([np.nan] * 60))
    assert (found.holds, found.requests) == (None, 40)


def test_a_short_window_is_compared_with_recent_ones_only() -> None:
    assert Spike("input_tokens", Fraction(10)).num_past == 288
