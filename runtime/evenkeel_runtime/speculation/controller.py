"""Choose how many tokens to draft for each request of a step: as many as make decoding faster.

A step of n requests that drafts D tokens, of which G are expected to be accepted, makes

    goodput = (n + G) / (step + checking · [D > 0] + token · D)      tokens a second

A further token of a request pays where its chance of being accepted, all before it included, is
greater than goodput × token: it then makes more tokens in its time than the step does. Chances fall
with the position, so each request takes tokens up to the first that does not pay; the goodput of
that choice is the next bar (Dinkelbach's method for ratios). Where no draft at all has the higher
goodput, nothing is drafted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from evenkeel_runtime.speculation.acceptance import Acceptance, OwnRecord
from evenkeel_runtime.speculation.cost import StepCostFit
from evenkeel_runtime.speculation.gain import Gain, GainEstimate
from evenkeel_runtime.speculation.sources import Draft

# A share of blocks drafts nothing, to measure the speed-up.
HOLDOUT_RATIO = 1 / 64
_BLOCK_STEPS = 16
# A share of steps drafts some tokens for one request whatever is believed of them: beliefs and
# prices stay true.
EXPLORE_RATIO = 1 / 64
# Once prices are known, one step in so many is learned from: they change slowly.
_STEPS_PER_LESSON = 4


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft that a request could take into the next step, and how its drafts went so far."""

    draft: Draft
    own: OwnRecord


@dataclass(slots=True)
class StepFacts:
    """One step that is over.

    Attributes:
        num_requests: Requests that decoded in it.
        drafted_tokens: Tokens drafted for them.
        made_tokens: Tokens that came out of it.
        is_pure: It decoded and did nothing else; only such steps can be compared.
        seconds: From the end of the step before it, the making of its drafts included.
    """

    num_requests: int
    drafted_tokens: int
    made_tokens: int
    is_pure: bool = True
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ControllerState:
    """The controller's estimates, for `/metrics`.

    Attributes:
        gain: Speed-up over all batch sizes; None without enough blocks.
        gain_by_batch: Speed-up by the largest batch of each size class.
        mean_drafted: Recent mean of tokens drafted per request and step, by size class.
    """

    gain: Gain | None
    gain_by_batch: dict[int, Gain]
    mean_drafted: dict[int, float]


class Controller(Protocol):
    """Who decides on draft lengths: `GoodputController`, or a fixed length to compare it with."""

    max_tokens: int

    def begin(self, num_requests: int) -> int:
        """Return the longest draft worth looking for in the next step; 0 for none."""
        ...

    def is_exploring(self) -> bool:
        """Whether drafts are wanted also of requests that had none worth taking lately."""
        ...

    def decide(self, num_requests: int, offers: Sequence[Offer]) -> list[int]:
        """Return how many tokens of each offer to take."""
        ...

    def record_verified(self, offer: Offer, drafted: int, accepted: int) -> None:
        """Learn the outcome of an offer of which `drafted` tokens were taken."""
        ...

    def record_step(self, facts: StepFacts) -> None:
        """Learn what the step that was last begun and decided cost."""
        ...


@dataclass(slots=True)
class _SizeClass:
    """The estimates for steps of about one batch size."""

    cost: StepCostFit
    mean_drafted: float = 0.0
    num_begun: int = 0
    block_tokens: int = 0
    block_seconds: float = 0.0


class GoodputController:
    """Maximises goodput; belongs to one thread.

    Args:
        max_tokens: Longest draft of a request.
        random: Draws the blocks and steps of the experiments.
    """

    def __init__(self, max_tokens: int, random: Random) -> None:
        self.max_tokens = max_tokens
        self._random = random
        self._acceptance = Acceptance(max_tokens)
        self._classes: dict[int, _SizeClass] = {}
        self._gain = GainEstimate()
        self._block_steps_left = 0
        self._is_holdout = False
        self._is_exploring = False
        self._num_lessons = 0

    def begin(self, num_requests: int) -> int:
        """Return `max_tokens`; 0 in a holdout block, and where a plain step is still to be seen."""
        if self._block_steps_left == 0:
            self._begin_block()
        self._block_steps_left -= 1
        self._is_exploring = False
        if self._is_holdout:
            return 0
        size = self._class_of(num_requests)
        size.num_begun += 1
        if not size.cost.is_known:
            # Both kinds of step in turn, until they can be compared.
            return self.max_tokens if size.num_begun % 2 or size.cost.has_plain else 0
        self._is_exploring = self._random.random() < EXPLORE_RATIO
        return self.max_tokens

    def is_exploring(self) -> bool:
        """Whether the step that was begun drafts to learn."""
        return self._is_exploring

    def decide(self, num_requests: int, offers: Sequence[Offer]) -> list[int]:
        """Return how many tokens of each offer to take, for the step that was begun."""
        if not offers:
            return []
        size = self._class_of(num_requests)
        lengths = [0] * len(offers)
        if size.cost.is_known:
            lengths = self._maximise(num_requests, offers, size)
        if self._is_exploring or not size.cost.is_known:
            lengths = self._vary(lengths, offers)
        return lengths

    def _vary(self, lengths: list[int], offers: Sequence[Offer]) -> list[int]:
        """Change the lengths to learn from them: all shorter, or one request's at random.

        Either costs little at any batch size, and prices need steps with few and many tokens.
        """
        if any(lengths) and self._random.random() < 0.5:
            longest = self._random.randrange(max(lengths))
            return [min(length, longest) for length in lengths]
        chosen = self._random.randrange(len(offers))
        lengths[chosen] = self._random.randint(1, len(offers[chosen].draft.tokens))
        return lengths

    def _maximise(self, num_requests: int, offers: Sequence[Offer], size: _SizeClass) -> list[int]:
        """The lengths with the highest expected goodput."""
        prices = size.cost.prices(num_requests)
        plain = num_requests / prices.step_s
        # No choice is worse than drafting nothing, so no bar is lower than this one.
        chances = [self._chances(offer, plain * prices.token_s) for offer in offers]
        goodput = _goodput(num_requests, chances, prices.step_s + prices.checking_s, prices.token_s)
        bar = max(goodput, plain) * prices.token_s
        for chance in chances:
            while chance and chance[-1] < bar:
                chance.pop()
        goodput = _goodput(num_requests, chances, prices.step_s + prices.checking_s, prices.token_s)
        if goodput <= plain:
            return [0] * len(offers)
        return [len(chance) for chance in chances]

    def record_verified(self, offer: Offer, drafted: int, accepted: int) -> None:
        """Learn how far the model agreed with an offer."""
        draft = offer.draft
        self._acceptance.record(draft.source, draft.strength, offer.own, drafted, accepted)

    def record_step(self, facts: StepFacts) -> None:
        """Learn what a step cost; steps that did more than decode say nothing."""
        if not facts.is_pure or facts.num_requests == 0:
            return
        size = self._class_of(facts.num_requests)
        drafted = facts.drafted_tokens / facts.num_requests
        if not self._is_holdout:
            size.mean_drafted += 0.02 * (drafted - size.mean_drafted)
        # With a step under way while the next is drafted, the first of a block was still planned by
        # the block before.
        if not (self._is_holdout and facts.drafted_tokens):
            size.block_tokens += facts.made_tokens
            size.block_seconds += facts.seconds
        self._num_lessons += 1
        is_rare = (facts.drafted_tokens == 0) != (size.mean_drafted < 0.1)
        if not size.cost.is_known or is_rare or self._num_lessons % _STEPS_PER_LESSON == 0:
            size.cost.add(facts.num_requests, facts.drafted_tokens, facts.seconds)

    def read_state(self) -> ControllerState:
        """Return what was learned so far; takes some tens of microseconds."""
        by_batch = self._gain.estimate_by_batch()
        drafted = {1 << key: size.mean_drafted for key, size in sorted(self._classes.items())}
        return ControllerState(self._gain.estimate(), by_batch, drafted)

    def _begin_block(self) -> None:
        for key, size in self._classes.items():
            if size.block_tokens:
                batch = 1 << key
                self._gain.add_block(batch, self._is_holdout, size.block_tokens, size.block_seconds)
                size.block_tokens, size.block_seconds = 0, 0.0
        self._is_holdout = self._random.random() < HOLDOUT_RATIO
        self._block_steps_left = _BLOCK_STEPS

    def _class_of(self, num_requests: int) -> _SizeClass:
        # 1, 2, 3-4, 5-8, 9-16, …: key k holds batches up to 2^k.
        key = max(num_requests - 1, 0).bit_length()
        size = self._classes.get(key)
        if size is None:
            most = 1 << key
            size = _SizeClass(StepCostFit(most, most * self.max_tokens))
            self._classes[key] = size
        return size

    def _chances(self, offer: Offer, least: float) -> list[float]:
        draft = offer.draft
        return self._acceptance.survival(
            draft.source, draft.strength, offer.own, len(draft.tokens), least
        )


def _goodput(
    num_requests: int, chances: Sequence[Sequence[float]], fixed_s: float, token_s: float
) -> float:
    gained = sum(map(sum, chances))
    drafted = sum(map(len, chances))
    return (num_requests + gained) / (fixed_s + token_s * drafted)
