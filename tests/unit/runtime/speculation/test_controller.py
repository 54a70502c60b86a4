"""The controller drafts what makes decoding faster, and nothing else; simulated costs."""

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_runtime.speculation.acceptance import OwnRecord
from evenkeel_runtime.speculation.cached_draft import AFTER_DIFFERENCE
from evenkeel_runtime.speculation.controller import (
    HOLDOUT_RATIO,
    GoodputController,
    Offer,
    StepFacts,
)
from evenkeel_runtime.speculation.sources import Draft, DraftSource
from tests.fixtures.fixed_length import FixedLength

MAX_TOKENS = 12


@dataclass(slots=True)
class Engine:
    """An engine with known costs and a known chance that a drafted token is right.

    Attributes:
        chance: Of each next token being right, all before it right.
        token_s: What a drafted token adds to a step.
        checking_s: What any draft adds.
        noise: Some steps wait for the machine, this many times their own time.
    """

    chance: float
    token_s: float
    checking_s: float = 0.0
    step_s: float = 0.010
    noise: float = 0.0
    random: Random = field(default_factory=lambda: Random(11))

    def run(self, controller: GoodputController | FixedLength, batch: int, steps: int) -> float:
        """Run steps and return tokens a second, by the engine's true costs."""
        own = [OwnRecord() for _ in range(batch)]
        made = 0
        seconds = 0.0
        for _ in range(steps):
            offers = []
            if controller.begin(batch):
                offers = [Offer(Draft([1] * MAX_TOKENS, DraftSource.RETRIEVAL, 8), o) for o in own]
            lengths = controller.decide(batch, offers)
            new = batch
            for offer, length in zip(offers, lengths, strict=True):
                if length:
                    right = self._right(length)
                    controller.record_verified(offer, length, right)
                    new += right
            drafted = sum(lengths)
            true_s = self.step_s + self.token_s * drafted + self.checking_s * (drafted > 0)
            seen_s = true_s * (1 + self.random.random() * 0.02)
            if self.noise and self.random.random() < 0.1:
                seen_s *= self.noise
            controller.record_step(StepFacts(batch, drafted, new, True, seen_s))
            made += new
            seconds += true_s
        return made / seconds

    def _right(self, length: int) -> int:
        for position in range(length):
            if self.random.random() >= self.chance:
                return position
        return length


@pytest.mark.parametrize("batch", [1, 4, 32])
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(Engine(chance=0.97, token_s=0.0001), id="sure and cheap"),
        pytest.param(Engine(chance=0.9, token_s=0.001), id="likely and dear"),
        pytest.param(Engine(chance=0.6, token_s=0.0005), id="a toss-up"),
        pytest.param(Engine(chance=0.02, token_s=0.0005), id="never right"),
        pytest.param(Engine(chance=0.9, token_s=0.004), id="dearer than a step's token"),
        pytest.param(Engine(chance=0.3, token_s=0.0001, checking_s=0.008), id="dear to check"),
        pytest.param(Engine(chance=0.9, token_s=0.0005, noise=8.0), id="on a busy machine"),
    ],
)
def test_it_is_as_fast_as_the_best_fixed_length(engine: Engine, batch: int) -> None:
    controller = GoodputController(MAX_TOKENS, Random(5))
    engine.run(controller, batch, 800)
    learned = engine.run(controller, batch, 4000)
    # A step of a large batch says as much as many steps of one request. The best of several noisy
    # means is above the truth: few steps would ask for too much.
    steps = 12_800 // batch
    best = max(engine.run(FixedLength(length), batch, steps) for length in (0, 1, 2, 4, 8, 12))
    assert learned >= 0.95 * best


def test_it_follows_a_change_of_traffic() -> None:
    controller = GoodputController(MAX_TOKENS, Random(5))
    fresh = Engine(chance=0.02, token_s=0.0005)
    repeating = Engine(chance=0.95, token_s=0.0005)
    fresh.run(controller, 1, 2000)
    repeating.run(controller, 1, 6000)
    assert repeating.run(controller, 1, 1000) >= 0.9 * repeating.run(FixedLength(12), 1, 1000)
    fresh.run(controller, 1, 1500)
    assert fresh.run(controller, 1, 2000) >= 0.95 * fresh.run(FixedLength(0), 1, 1000)


def test_the_holdout_measures_the_true_speed_up() -> None:
    engine = Engine(chance=0.9, token_s=0.0005)
    controller = GoodputController(MAX_TOKENS, Random(5))
    engine.run(controller, 4, 40_000)
    gain = controller.read_state().gain
    assert gain is not None
    truth = engine.run(controller, 4, 5000) / engine.run(FixedLength(0), 4, 1000)
    # `truth` contains the holdout's own steps, one in 64.
    assert gain.lower * 0.97 <= truth <= gain.upper
    assert gain.upper / gain.lower < 1.1
    share = gain.num_holdout_blocks / (gain.num_holdout_blocks + gain.num_blocks)
    assert share == pytest.approx(HOLDOUT_RATIO, rel=0.5)


def test_nothing_is_looked_for_in_a_holdout_block() -> None:
    controller = GoodputController(MAX_TOKENS, Random(5))
    begun = []
    for _ in range(16 * 400):
        begun.append(controller.begin(4))
        controller.decide(4, [])
        controller.record_step(StepFacts(4, 0, 4, True, 0.01))
    blocks = [begun[i : i + 16] for i in range(0, len(begun), 16)]
    held = sum(not any(block) for block in blocks[4:])
    assert 1 <= held <= 20
    assert all(not any(block) or all(block) for block in blocks[4:])


def test_steps_with_a_prompt_in_them_teach_nothing() -> None:
    controller = GoodputController(MAX_TOKENS, Random(5))
    for _ in range(50):
        controller.begin(1)
        controller.record_step(StepFacts(1, 0, 1, is_pure=False, seconds=9.0))
    state = controller.read_state()
    assert (state.gain, state.mean_drafted) == (None, {1: 0.0})


offer_lengths = st.lists(st.integers(1, MAX_TOKENS), max_size=8)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(offer_lengths, st.integers(0, MAX_TOKENS), st.floats(1e-6, 10)), max_size=60)
)
def test_whatever_happens_no_offer_is_overdrawn(
    steps: list[tuple[list[int], int, float]],
) -> None:
    controller = GoodputController(MAX_TOKENS, Random(5))
    for lengths, accepted, seconds in steps:
        limit = controller.begin(max(1, len(lengths)))
        offers = [Offer(Draft([1] * n, DraftSource.PROMPT, 2), OwnRecord()) for n in lengths]
        taken = controller.decide(len(offers), offers if limit else [])
        assert limit in (0, MAX_TOKENS)
        for offer, length in zip(offers, taken, strict=False):
            assert 0 <= length <= len(offer.draft.tokens)
            if length:
                controller.record_verified(offer, length, min(accepted, length))
        made = len(lengths) + 1
        controller.record_step(StepFacts(max(1, len(lengths)), sum(taken), made, True, seconds))
    controller.read_state()


@pytest.mark.parametrize("under_way", [0, 1])
def test_the_speed_up_is_true_with_a_step_under_way(under_way: int) -> None:
    # Each draft of 15 is accepted, and every step takes the same: 16 times as fast.
    controller, drafts = GoodputController(15, Random(3)), deque([15] * under_way)
    for _ in range(60_000):
        drafts.append(15 if controller.begin(1) else 0)
        drafted = drafts.popleft()
        controller.record_step(StepFacts(1, drafted, 1 + drafted, seconds=0.01))
    gain = controller.read_state().gain
    assert gain is not None
    assert gain.ratio == pytest.approx(16, rel=0.01)


def run_answers(controller: GoodputController, agreed: int, requests: int) -> tuple[float, float]:
    """Cached answers of 100 tokens, of which so many agree; return drafted and accepted a request.

    The rest of an answer is decoded without drafts; a step is 10 ms, a drafted token 0.1 ms.
    """
    drafted = accepted = 0
    for _ in range(requests):
        offer = Offer(Draft([1] * 100, DraftSource.CACHE, 0), OwnRecord())
        (length,) = controller.decide_first(1, [offer])
        if length:
            controller.record_verified(offer, length, min(agreed, length))
        drafted, accepted = drafted + length, accepted + min(agreed, length)
        for _ in range(100 - min(agreed, length)):
            controller.begin(1)
            controller.record_step(StepFacts(1, 0, 1, True, 0.01))
    return drafted / requests, accepted / requests


def test_right_answers_are_verified_from_the_first_one() -> None:
    drafted, accepted = run_answers(GoodputController(15, Random(5)), 100, 300)
    assert accepted == drafted >= 95


def test_wrong_answers_cost_less_than_three_percent() -> None:
    drafted, _ = run_answers(GoodputController(15, Random(5)), 0, 300)
    assert drafted * 0.0001 <= 0.03 * 100 * 0.01
    # And they are still tried, to notice a change.
    assert drafted > 0


def test_answers_are_verified_again_when_they_become_right() -> None:
    controller = GoodputController(15, Random(5))
    run_answers(controller, 0, 200)
    run_answers(controller, 100, 1500)
    drafted, _ = run_answers(controller, 100, 200)
    assert drafted >= 80


@pytest.mark.parametrize(
    ("num_requests", "token_s", "is_drafted"),
    [
        pytest.param(16, 0.00002, True, id="cheap tokens"),
        pytest.param(16, 0.0001, False, id="dear tokens"),
        pytest.param(1, 0.0001, True, id="the same for a single request"),
    ],
)
def test_an_unsure_answer_waits_for_its_first_token_if_that_is_cheaper(
    num_requests: int, token_s: float, is_drafted: bool
) -> None:
    # Three of four answers of 30 tokens are right. A step of 10 ms is shared by all requests.
    controller, random = GoodputController(15, Random(5)), Random(7)
    for number in range(400):
        if controller.begin(num_requests):
            drafted = number % 16
            made = num_requests + drafted
            facts = StepFacts(num_requests, drafted, made, True, 0.01 + token_s * drafted)
            controller.record_step(facts)
    lengths = []
    for _ in range(1000):
        offer = Offer(Draft([1] * 30, DraftSource.CACHE, 0, 1), OwnRecord())
        (length,) = controller.decide_first(num_requests, [offer])
        if length:
            right = length if random.random() < 0.75 else 0
            controller.record_verified(offer, length, right)
        lengths.append(length)
    later = [length for length in lengths[500:] if length]
    assert len(later) > 400 if is_drafted else 0 < len(later) < 60
    assert set(later) == {30}


def test_the_draft_with_most_expected_tokens_is_picked() -> None:
    controller = GoodputController(15, Random(5))
    long_match = Draft([1] * 15, DraftSource.RETRIEVAL, 8)
    short_match = Draft([2] * 15, DraftSource.PROMPT, 2)
    guess = Draft([3] * 100, DraftSource.CACHE, 0, AFTER_DIFFERENCE)
    own = OwnRecord()
    assert controller.pick([], own) is None
    assert controller.pick([short_match], own) is short_match
    assert controller.pick([short_match, long_match, guess], own) is long_match
    for _ in range(100):
        controller.record_verified(Offer(long_match, OwnRecord()), 15, 0)
        controller.record_verified(Offer(guess, OwnRecord()), 100, 90)
    assert controller.pick([short_match, long_match, guess], own) is guess


def test_a_step_that_explores_drafts_no_more_than_the_other_sources_may() -> None:
    controller = GoodputController(15, Random(5))
    offer = Offer(Draft([1] * 128, DraftSource.RETRIEVAL, 2), OwnRecord())
    lengths = set()
    for _ in range(300):
        controller.begin(1)
        lengths.update(controller.decide(1, [offer]))
    assert max(lengths) == 15
