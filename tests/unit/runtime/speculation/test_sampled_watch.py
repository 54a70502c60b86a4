"""How soon the watch over sampled tokens notices that they are wrong, and how rarely it errs."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from evenkeel_runtime.speculation.sampled_watch import (
    LOG_LIMIT,
    RARE_RATIO,
    SampledToken,
    SampledWatch,
)

VOCABULARY = 40
Floats = NDArray[np.float64]


def softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max())
    probabilities: Floats = weights / weights.sum()
    return probabilities


def look_at(probabilities: Floats, token: int) -> SampledToken:
    own, limit = probabilities[token], probabilities.max() * RARE_RATIO
    half = probabilities[probabilities == own].sum() / 2
    place = float(probabilities[probabilities > own].sum() + half)
    rare_chance = float(probabilities[probabilities < limit].sum())
    return SampledToken(place, bool(own < limit), rare_chance)


def watch(
    draw: Callable[[Generator, Floats], int], num_tokens: int, sharpness: float, seed: int
) -> tuple[float, int | None]:
    """Watch tokens drawn by `draw`; return the most evidence, and after how many it was enough."""
    random, watched, most = default_rng(seed), SampledWatch(), 0.0
    for number in range(1, num_tokens + 1):
        logits = random.normal(size=VOCABULARY) * sharpness
        watched.record(look_at(softmax(logits), draw(random, logits)))
        most = max(most, watched.log_evidence)
        if most >= LOG_LIMIT:
            return most, number
    return most, None


def at_temperature(temperature: float) -> Callable[[Generator, Floats], int]:
    def draw(random: Generator, logits: Floats) -> int:
        return int(random.choice(VOCABULARY, p=softmax(logits / temperature)))

    return draw


def now_hot_now_cold(random: Generator, logits: Floats) -> int:
    return at_temperature(4.0 if random.random() < 0.3 else 0.25)(random, logits)


@pytest.mark.parametrize("sharpness", [0.0, 1.0, 4.0], ids=["flat", "usual", "peaked"])
def test_exact_tokens_raise_no_alarm(sharpness: float) -> None:
    runs = [watch(at_temperature(1.0), 600, sharpness, seed) for seed in range(8)]
    # By Ville's inequality at most one run in ten ever has ten times the wealth it began with.
    assert max(most for most, _ in runs) < LOG_LIMIT / 2
    assert sum(most >= np.log(10) for most, _ in runs) <= 4


@pytest.mark.parametrize(
    ("draw", "sharpness", "within"),
    [
        pytest.param(lambda r, _: int(r.integers(VOCABULARY)), 4.0, 80, id="any token, peaked"),
        pytest.param(lambda r, _: int(r.integers(VOCABULARY)), 1.0, 400, id="any token, usual"),
        pytest.param(lambda _, logits: int(logits.argmax()), 1.0, 80, id="always the best"),
        pytest.param(lambda _, logits: int(logits.argmin()), 1.0, 40, id="always the worst"),
        pytest.param(at_temperature(3.0), 2.0, 600, id="three times too hot"),
        pytest.param(at_temperature(0.3), 2.0, 900, id="too cold"),
        pytest.param(now_hot_now_cold, 3.0, 600, id="wrong in both directions by turns"),
    ],
)
def test_wrong_tokens_are_noticed(
    draw: Callable[[Generator, Floats], int], sharpness: float, within: int
) -> None:
    for seed in range(3):
        _, noticed = watch(draw, within, sharpness, seed)
        assert noticed is not None


def test_what_is_bet_on_has_the_mean_it_is_said_to_have() -> None:
    for probabilities in (
        [1.0],
        [0.5, 0.5],
        [0.7, 0.1, 0.1, 0.1],
        [0.9, 0.1, 0.0],
        [0.99, 0.005, 0.005],
    ):
        target = np.array(probabilities)
        looks = [look_at(target, i) for i in range(len(probabilities))]
        assert target @ [look.place for look in looks] == pytest.approx(0.5)
        assert target @ [look.is_rare for look in looks] == pytest.approx(looks[0].rare_chance)


def test_nothing_seen_is_no_evidence() -> None:
    assert SampledWatch().log_evidence == 0
    assert SampledWatch().num_tokens == 0


def test_what_is_no_number_is_no_evidence() -> None:
    watched = SampledWatch()
    for place, chance in ((float("nan"), 0.1), (0.5, float("nan")), (float("inf"), 0.1)):
        watched.record(SampledToken(place, False, chance))
    assert watched.num_tokens == 0
    assert watched.log_evidence == 0.0
