"""Check that sampled tokens follow the model's distribution.

Two statistics of a sampled token have a mean that follows from the model's probabilities:

- its place: the probability of all likelier tokens plus half that of equally likely ones, the
  mid-distribution function (Parzen, 2004). Its mean is 1/2. Too many unlikely tokens raise it, too
  many likely ones lower it.
- whether it is rare: less than a hundredth as likely as the likeliest token. Its mean is the sum of
  the probabilities of all such tokens. This detects temperatures that are alternately too high and
  too low, which leave the mean place unchanged.

For a bet b on x with mean m, given all earlier tokens, the wealth

    W_b = product over tokens of (1 + b · (x - m))

is a non-negative martingale with mean 1, and so is the mean E over the bets. By Ville's inequality
(1939) the probability that E ever reaches 1/α is at most α, however long it is observed: a limit of
a million means one false alarm per million engines over their whole lifetimes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite, log, log1p

# Bets on places. A place is at most 1/2 from its mean, so no single token can lose all the wealth.
# Small bets detect a lasting bias of a few hundredths, large ones detect garbage.
_BETS = (-1.0, -0.25, 0.25, 1.0)
# The largest bet on rare tokens, and the largest fraction of the wealth a bet may lose.
_RARE_BET = 4.0
_MOST_LOST = 0.5
# A token is rare if its probability is below this fraction of the likeliest one's.
RARE_RATIO = 0.01
LOG_LIMIT = log(1e6)
# Attribute of a step's output that carries the number of tokens checked and log E to the scheduler.
WATCH_ATTRIBUTE = "evenkeel_watch"


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The two statistics of one sampled token.

    Attributes:
        place: From 0 (likelier than all others) to 1 (impossible).
        is_rare: Whether the token is rare.
        rare_chance: Total probability of all rare tokens.
    """

    place: float
    is_rare: bool
    rare_chance: float


class SampledWatch:
    """Accumulates evidence that tokens are not drawn from the model's distribution.

    Attributes:
        num_tokens: Tokens checked.
    """

    def __init__(self) -> None:
        self._by_place = [0.0] * len(_BETS)
        self._by_rarity = 0.0
        self.num_tokens = 0

    def record(self, token: SampledToken) -> None:
        """Add a token; one with a non-finite probability is ignored."""
        if not (isfinite(token.place) and isfinite(token.rare_chance)):
            return
        self.num_tokens += 1
        for number, bet in enumerate(_BETS):
            self._by_place[number] += log1p(bet * (token.place - 0.5))
        # The bet may depend on the chance: it is known before the token is drawn.
        chance = min(1.0, token.rare_chance)
        bet = min(_RARE_BET, _MOST_LOST / chance) if chance else _RARE_BET
        self._by_rarity += log1p(bet * (token.is_rare - chance))

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of E; 0 before the first token."""
        wealth = (*self._by_place, self._by_rarity)
        most = max(wealth)
        return most + log(sum(exp(each - most) for each in wealth) / len(wealth))
