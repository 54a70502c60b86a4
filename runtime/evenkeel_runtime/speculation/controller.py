"""Choose the draft length of each request in a step that maximises tokens per second.

A step with n requests and D drafted tokens, G of them expected to be accepted, has

    goodput = (n + G) / (step + checking · [D > 0] + token · D)      tokens per second

Drafting one more token pays off if the probability that it and all before it are accepted exceeds
goodput × token: it then yields more tokens per second than the step does. That probability falls
with the position, so each request takes tokens up to the first that does not pay off; the goodput
of that choice is the next bar (Dinkelbach's method for ratios). If drafting nothing has the higher
goodput, nothing is drafted.

A draft of D tokens that could be verified along with its prompt can also wait a step, until the
answer's first token tells whether it is right. Waiting costs that request's share of a step if the
first token is right, with probability p, and saves the draft if it is not. So it waits if

    p · step / n < (1 - p) · token · D
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from evenkeel_runtime.speculation.acceptance import Acceptance, OwnRecord
from evenkeel_runtime.speculation.draft_cost import Prices, StepCostFit
from evenkeel_runtime.speculation.gain import Gain, GainEstimate
from evenkeel_runtime.speculation.sources import Draft, DraftSource

# Fraction of blocks that draft nothing, to measure the speed-up.
HOLDOUT_RATIO = 1 / 64
_BLOCK_STEPS = 16
# Fraction of steps that draft regardless of the estimates, to keep the estimates current.
EXPLORE_RATIO = 1 / 64
# Once prices are known, only every fourth step updates them: they change slowly.
_STEPS_PER_SAMPLE = 4
# Assumed until prices are known: verifying 100 tokens doubles the time of a step. So cached answers
# are verified from the start, and no longer if they turn out wrong.
_ASSUMED_PRICES = Prices(step_s=1.0, checking_s=0.1, token_s=0.009)


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft available to a request for the next step, and the request's draft results so far."""

    draft: Draft
    own: OwnRecord


@dataclass(slots=True)
class StepFacts:
    """One finished step.

    Attributes:
        num_requests: Requests that decoded in it.
        drafted_tokens: Tokens drafted for them.
        made_tokens: Tokens it produced.
        is_pure: Whether it only decoded; only such steps can be compared.
        seconds: Time since the end of the previous step, drafting included.
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
        gain: Speed-up over all batch sizes; None if there are too few blocks.
        gain_by_batch: Speed-up by the largest batch of each size class.
        mean_drafted: Recent mean of tokens drafted per request and step, by size class.
    """

    gain: Gain | None
    gain_by_batch: dict[int, Gain]
    mean_drafted: dict[int, float]


@dataclass(slots=True)
class _SizeClass:
    """Estimates for steps of similar batch size."""

    cost: StepCostFit
    mean_drafted: float = 0.0
    num_begun: int = 0
    block_tokens: int = 0
    block_seconds: float = 0.0


class GoodputController:
    """Chooses the draft lengths with the highest expected goodput; not thread-safe.

    Args:
        max_tokens: Longest draft of a request, except one from a cached or past answer.
        random: Picks holdout blocks and exploring steps.
    """

    def __init__(self, max_tokens: int, random: Random) -> None:
        self.max_tokens = max_tokens
        self._random = random
        self._acceptance = Acceptance()
        self._classes: dict[int, _SizeClass] = {}
        self._gain = GainEstimate()
        self._block_steps_left = 0
        self._is_holdout = False
        self._is_exploring = False
        self._num_pure_steps = 0

    def begin(self, num_requests: int) -> int:
        """Return the longest draft to look for in the next step.

        It is `max_tokens`, or 0 in a holdout block or while plain steps are still needed.
        """
        if self._block_steps_left == 0:
            self._begin_block()
        self._block_steps_left -= 1
        self._is_exploring = False
        if self._is_holdout:
            return 0
        size = self._class_of(num_requests)
        size.num_begun += 1
        if not size.cost.is_known:
            # Alternate both kinds of step until they can be compared.
            return self.max_tokens if size.num_begun % 2 or size.cost.has_plain else 0
        self._is_exploring = self._random.random() < EXPLORE_RATIO
        return self.max_tokens

    def is_exploring(self) -> bool:
        """Whether the current step drafts in order to update the estimates."""
        return self._is_exploring

    def pick(self, drafts: Sequence[Draft], own: OwnRecord) -> Draft | None:
        """Return the draft of which the most tokens are expected to be accepted; None if none."""
        if len(drafts) < 2:
            return drafts[0] if drafts else None
        return max(drafts, key=lambda draft: sum(self._acceptance.survival(draft, own, 0.01)))

    def decide(self, num_requests: int, offers: Sequence[Offer]) -> list[int]:
        """Return how many tokens of each offer to take in the current step."""
        if not offers:
            return []
        size = self._class_of(num_requests)
        lengths = [0] * len(offers)
        if size.cost.is_known:
            lengths = self._maximise(num_requests, offers, size.cost.prices(num_requests))
        if self._is_exploring or not size.cost.is_known:
            lengths = self._vary(lengths, offers)
        return lengths

    def decide_first(self, num_requests: int, offers: Sequence[Offer]) -> list[int]:
        """Return how many tokens of each cached answer to verify along with its prompt.

        None in a holdout block. The prices are those of steps that only decode.

        Args:
            num_requests: Requests of the step.
            offers: Of requests whose prompt it completes.
        """
        if self._is_holdout:
            return [0] * len(offers)
        size = self._class_of(num_requests)
        is_known = size.cost.is_known
        prices = size.cost.prices(num_requests) if is_known else _ASSUMED_PRICES
        lengths = self._maximise(num_requests, offers, prices)
        share_s = prices.step_s / num_requests
        for place, length in enumerate(lengths):
            if length:
                right = self._chances(offers[place], 0.0)[0]
                if right * share_s < (1 - right) * prices.token_s * length:
                    lengths[place] = 0
        if self._random.random() < EXPLORE_RATIO:
            chosen = self._random.randrange(len(offers))
            lengths[chosen] = len(offers[chosen].draft.tokens)
        return lengths

    def _vary(self, lengths: list[int], offers: Sequence[Offer]) -> list[int]:
        """Vary the lengths for exploration: shorten all, or draw one request's at random.

        Both cost little at any batch size; fitting prices needs steps with few and many tokens.
        """
        if any(lengths) and self._random.random() < 0.5:
            longest = self._random.randrange(max(lengths))
            return [min(length, longest) for length in lengths]
        answers = [i for i, offer in enumerate(offers) if offer.draft.source is DraftSource.CACHE]
        if answers and not self._is_exploring:
            # Prices are not known yet, but a cached answer is likely to pay off.
            for place in answers:
                lengths[place] = len(offers[place].draft.tokens)
            return lengths
        chosen = self._random.randrange(len(offers))
        longest = min(self.max_tokens, len(offers[chosen].draft.tokens))
        lengths[chosen] = self._random.randint(1, longest)
        return lengths

    def _maximise(self, num_requests: int, offers: Sequence[Offer], prices: Prices) -> list[int]:
        """Return the lengths with the highest expected goodput."""
        plain = num_requests / prices.step_s
        # Drafting nothing is always possible, so the bar is never below this.
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
        """Record how many tokens of an offer the model accepted."""
        self._acceptance.record(offer.draft, offer.own, drafted, accepted)

    def record_step(self, facts: StepFacts) -> None:
        """Record what a step cost; steps that did more than decode are ignored."""
        if not facts.is_pure or facts.num_requests == 0:
            return
        size = self._class_of(facts.num_requests)
        drafted = facts.drafted_tokens / facts.num_requests
        if not self._is_holdout:
            size.mean_drafted += 0.02 * (drafted - size.mean_drafted)
        # Under asynchronous scheduling the first step of a block was planned in the previous block.
        if not (self._is_holdout and facts.drafted_tokens):
            size.block_tokens += facts.made_tokens
            size.block_seconds += facts.seconds
        self._num_pure_steps += 1
        is_rare = (facts.drafted_tokens == 0) != (size.mean_drafted < 0.1)
        if not size.cost.is_known or is_rare or self._num_pure_steps % _STEPS_PER_SAMPLE == 0:
            size.cost.add(facts.num_requests, facts.drafted_tokens, facts.seconds)

    def read_state(self) -> ControllerState:
        """Return the current estimates; takes some tens of microseconds."""
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
        return self._acceptance.survival(offer.draft, offer.own, least)


def _goodput(
    num_requests: int, chances: Sequence[Sequence[float]], fixed_s: float, token_s: float
) -> float:
    gained = sum(map(sum, chances))
    drafted = sum(map(len, chances))
    return (num_requests + gained) / (fixed_s + token_s * drafted)
