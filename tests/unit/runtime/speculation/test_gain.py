"""The speed-up and its interval, against numbers worked out elsewhere and by simulation."""

import math
from random import Random

import pytest
from scipy.special import stdtrit

from evenkeel_runtime.speculation.gain import MIN_BLOCKS, GainEstimate, student_t


@pytest.mark.parametrize("freedom", [7, 8, 12, 30, 400])
def test_students_t_is_scipys(freedom: int) -> None:
    assert student_t(freedom) == pytest.approx(float(stdtrit(freedom, 0.975)), abs=1e-3)


def test_without_enough_blocks_there_is_no_estimate() -> None:
    gain = GainEstimate()
    for _ in range(MIN_BLOCKS - 1):
        gain.add_block(1, True, 16, 0.16)
    for _ in range(100):
        gain.add_block(1, False, 32, 0.16)
    assert gain.estimate() is None
    gain.add_block(1, True, 16, 0.16)
    found = gain.estimate()
    assert found is not None
    assert found.ratio == pytest.approx(2.0)
    assert (found.lower, found.upper) == (pytest.approx(2.0), pytest.approx(2.0))


def test_one_batch_size_by_hand() -> None:
    gain = GainEstimate()
    held = [(10, 1.0), (12, 1.0), (8, 1.0), (10, 1.0)] * 2
    drafted = [(20, 1.0), (22, 1.0), (18, 1.0), (20, 1.0)] * 2
    for tokens, seconds in held:
        gain.add_block(1, True, tokens, seconds)
    for tokens, seconds in drafted:
        gain.add_block(1, False, tokens, seconds)
    # Residuals 0, 2, -2, 0 twice: sum of squares 16, times n/(n-1) = 8/7, over (80, 160) squared.
    variance = 16 * 8 / 7 * (1 / 80**2 + 1 / 160**2)
    found = gain.estimate()
    assert found is not None
    assert found.ratio == pytest.approx(2.0)
    assert math.log(found.upper / 2) == pytest.approx(student_t(7) * math.sqrt(variance))


def test_batch_sizes_are_compared_within_themselves() -> None:
    # Drafting happens to meet more of the fast large batches: the speed-up is 1 all the same.
    gain = GainEstimate()
    for _ in range(10):
        gain.add_block(1, True, 10, 1.0)
        gain.add_block(32, True, 100, 1.0)
        gain.add_block(1, False, 10, 1.0)
    for _ in range(90):
        gain.add_block(32, False, 100, 1.0)
    found = gain.estimate()
    assert found is not None
    assert found.ratio == pytest.approx(1.0)
    assert set(gain.estimate_by_batch()) == {1, 32}


def test_the_interval_holds_the_truth_about_95_times_in_100() -> None:
    random = Random(3)
    runs, held = 400, 0
    for _ in range(runs):
        gain = GainEstimate()
        for size, truth in ((1, 2.0), (8, 1.4)):
            for is_holdout, count in ((True, 12), (False, 200)):
                for _ in range(count):
                    seconds = 0.16 * random.lognormvariate(0, 0.3)
                    rate = size * 100 * (1 if is_holdout else truth)
                    tokens = rate * seconds * random.lognormvariate(-0.02, 0.2)
                    gain.add_block(size, is_holdout, round(tokens), seconds)
        found = gain.estimate()
        assert found is not None
        # All sizes draft as many blocks; tokens drafted there weigh the two ratios.
        without = 2.0 * 1 + 1.4 * 1
        held += found.lower <= without / 2 <= found.upper
    assert 0.91 <= held / runs <= 0.98


@pytest.mark.parametrize(("tokens", "seconds"), [(0, 1.0), (5, 0.0), (5, -1.0)])
def test_an_empty_block_is_passed_over(tokens: int, seconds: float) -> None:
    gain = GainEstimate()
    for _ in range(50):
        gain.add_block(1, True, tokens, seconds)
        gain.add_block(1, False, tokens, seconds)
    assert gain.estimate() is None
