"""Bounds on the rate of a yes-or-no event that hold at every moment, however often one looks.

A fixed-sample interval, looked at after each observation, is wrong sooner or later; these stay
valid under continuous looking and stopping at will. Logarithms throughout: no overflow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Mass where rates are small, because what is bounded here is rare: its mean is 1 in 21.
PRIOR_EVENTS = 0.5
PRIOR_NON_EVENTS = 10.0
_PRECISION = 1e-9


def log_evidence(num_events: int, num_seen: int, rate: float) -> float:
    """Return the log e-value against "every event has the probability `rate`".

    The beta-binomial mixture B(a + k, b + n − k) / B(a, b) / (rateᵏ · (1 − rate)ⁿ⁻ᵏ): a test
    martingale where the rate is true, so by Ville's inequality it ever reaches 1/α with a
    probability of at most α (Howard, Ramdas, McAuliffe, Sekhon 2021, section 3.2).

    Args:
        num_events: k.
        num_seen: n, at least k.
        rate: Between 0 and 1, both excluded.
    """
    num_others = num_seen - num_events
    mixture = _log_beta(PRIOR_EVENTS + num_events, PRIOR_NON_EVENTS + num_others)
    mixture -= _log_beta(PRIOR_EVENTS, PRIOR_NON_EVENTS)
    return mixture - num_events * math.log(rate) - num_others * math.log1p(-rate)


def upper_bound(num_events: int, num_seen: int, alpha: float) -> float:
    """Return a bound that the true rate never exceeds, at all moments together, but with `alpha`.

    The largest rate that `log_evidence` does not refute; 1.0 where nothing was seen.

    Raises:
        ValueError: If `alpha` is not between 0 and 1, or there are more events than seen.
    """
    if not 0 < alpha < 1 or not 0 <= num_events <= num_seen:
        raise ValueError(f"no bound for {num_events} of {num_seen} at alpha {alpha}")
    limit = -math.log(alpha)
    # Above the observed share the evidence only grows with the rate.
    low, high = num_events / max(1, num_seen), 1.0
    while high - low > _PRECISION:
        middle = (low + high) / 2
        if middle < 1 and log_evidence(num_events, num_seen, middle) < limit:
            low = middle
        else:
            high = middle
    return high


@dataclass(slots=True)
class RiseDetector:
    """Notices that a rate which was below a limit has risen above it.

    The Shiryaev-Roberts sum of e-values, R ← (R + 1) · (1 + λ(x − limit)): while the rate stays at
    or below the limit, the mean number of observations up to a false alarm is at least
    `mean_run` (Shin, Ramdas, Rinaldo 2023, "E-detectors").

    Attributes:
        limit: The rate.
        mean_run: Observations between false alarms, on average, at least.
        value: R.
    """

    limit: float
    mean_run: float
    value: float = 0.0

    def record(self, is_event: bool) -> bool:
        """Take one observation; whether the rate has risen."""
        # Half the most that a bet may be: 1/limit loses everything on the first non-event.
        bet = 0.5 / self.limit
        self.value = (self.value + 1) * (1 + bet * (float(is_event) - self.limit))
        return self.value >= self.mean_run


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
