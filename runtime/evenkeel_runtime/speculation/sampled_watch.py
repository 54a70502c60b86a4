"""Check that sampled tokens follow the model's distribution.

Two things about a token have a mean that the model's probabilities tell, whatever they are:

- its place: the probability of all likelier tokens and half of those exactly as likely, the
  mid-distribution function (Parzen, 2004). Its mean is 1/2. Too many unlikely tokens move it up,
  too many likely ones down.
- whether it is rare: less than a hundredth as likely as the likeliest. Its mean is the sum of such
  tokens' probabilities. This notices temperatures that are wrong in both directions by turns, of
  which the mean place says nothing.

For a bet b on x with mean m given all that came before, the wealth

    W_b = product over tokens of (1 + b · (x - m))

is a non-negative martingale with mean 1, and so is the mean E over the bets. By Ville's inequality
(1939) E ever reaches 1/α with probability at most α, however long it is watched: the limit of a
million is one false alarm in a million engines, over their whole lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite, log, log1p

# On places, of which none is further than 1/2 from the mean, so that no single token can take all
# the wealth. The small ones notice a lasting bias of some hundredths, the large ones garbage.
_BETS = (-1.0, -0.25, 0.25, 1.0)
# On rare tokens: at most so much, and never more than half of the wealth.
_RARE_BET = 4.0
_MOST_LOST = 0.5
# A token is rare below this share of the likeliest one's probability.
RARE_RATIO = 0.01
LOG_LIMIT = log(1e6)
# On a step's output: tokens looked at and the logarithm of E, on their way to the scheduler.
WATCH_ATTRIBUTE = "evenkeel_watch"


@dataclass(frozen=True, slots=True)
class SampledToken:
    """What is known of one token that was sampled.

    Attributes:
        place: From 0 (likelier than all others) to 1 (impossible).
        is_rare: Whether it is a rare one.
        rare_chance: How likely any of the rare ones was.
    """

    place: float
    is_rare: bool
    rare_chance: float


class SampledWatch:
    """Evidence against the hypothesis that tokens are drawn from the target's distribution.

    Attributes:
        num_tokens: Tokens looked at.
    """

    def __init__(self) -> None:
        self._by_place = [0.0] * len(_BETS)
        self._by_rarity = 0.0
        self.num_tokens = 0

    def record(self, token: SampledToken) -> None:
        """Take in a token; one whose probability is no number says nothing of how it was drawn."""
        if not (isfinite(token.place) and isfinite(token.rare_chance)):
            return
        self.num_tokens += 1
        for number, bet in enumerate(_BETS):
            self._by_place[number] += log1p(bet * (token.place - 0.5))
        # A bet may depend on the chance, which is known before the token is.
        chance = min(1.0, token.rare_chance)
        bet = min(_RARE_BET, _MOST_LOST / chance) if chance else _RARE_BET
        self._by_rarity += log1p(bet * (token.is_rare - chance))

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of E; 0 where nothing was seen."""
        wealth = (*self._by_place, self._by_rarity)
        most = max(wealth)
        return most + log(sum(exp(each - most) for each in wealth) / len(wealth))
