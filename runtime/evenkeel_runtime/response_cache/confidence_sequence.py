"""Anytime-valid bounds on the rate of a binary event, however often they are checked.

A fixed-sample interval checked after each observation fails sooner or later; these stay valid under
continuous monitoring and optional stopping. Logarithms throughout avoid overflow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Prior mass at small rates, because the bounded events are rare: its mean is 1 in 201.
PRIOR_EVENTS = 0.5
PRIOR_NON_EVENTS = 100.0
# How far a bound may lie above the exact one.
PRECISION = 1e-7


def log_evidence(num_events: int, num_seen: int, rate: float) -> float:
    """Return the log e-value against the hypothesis "every event has probability `rate`".

    The beta-binomial mixture B(a + k, b + n − k) / B(a, b) / (rateᵏ · (1 − rate)ⁿ⁻ᵏ): a test
    martingale if the rate is true, so by Ville's inequality it ever reaches 1/α with probability at
    most α (Howard, Ramdas, McAuliffe, Sekhon 2021, section 3.2).

    Args:
        num_events: k.
        num_seen: n, at least k.
        rate: Between 0 and 1, both excluded.
    """
    num_others = num_seen - num_events
    likelihood = num_events * math.log(rate) + num_others * math.log1p(-rate)
    return _log_mixture(num_events, num_seen) - likelihood


def upper_bound(num_events: int, num_seen: int, alpha: float) -> float:
    """Return a bound that holds at all times together with probability at least 1 - `alpha`.

    The largest rate that `log_evidence` does not reject, at most `PRECISION` above it; 1.0 without
    observations.

    Raises:
        ValueError: If `alpha` is not between 0 and 1, or there are more events than seen.
    """
    if not 0 < alpha < 1 or not 0 <= num_events <= num_seen:
        raise ValueError(f"no bound for {num_events} of {num_seen} at alpha {alpha}")
    # log_evidence(rate) < -log(alpha), without computing its mixture for each rate.
    least = _log_mixture(num_events, num_seen) + math.log(alpha)
    num_others = num_seen - num_events
    # Above the observed share, the evidence grows with the rate.
    low, high = num_events / max(1, num_seen), 1.0
    while high - low > PRECISION:
        middle = (low + high) / 2
        likelihood = num_events * math.log(middle) + num_others * math.log1p(-middle)
        if likelihood > least:
            low = middle
        else:
            high = middle
    return high


@dataclass(slots=True)
class RiseDetector:
    """Detects that a rate has risen above a limit.

    The Shiryaev-Roberts sum of e-values, R ← (R + 1) · (1 + λ(x − limit)): while the rate stays at
    or below the limit, the mean number of observations until a false alarm is at least
    `mean_run` (Shin, Ramdas, Rinaldo 2023, "E-detectors").

    Attributes:
        limit: The limit on the rate.
        mean_run: Minimum mean number of observations between false alarms.
        value: R.
    """

    limit: float
    mean_run: float
    value: float = 0.0

    def record(self, is_event: bool) -> bool:
        """Add one observation; return whether the rate has risen."""
        # Half the maximum bet: 1/limit loses everything on the first non-event.
        bet = 0.5 / self.limit
        self.value = (self.value + 1) * (1 + bet * (float(is_event) - self.limit))
        return self.value >= self.mean_run


def _log_mixture(num_events: int, num_seen: int) -> float:
    num_others = num_seen - num_events
    mixture = _log_beta(PRIOR_EVENTS + num_events, PRIOR_NON_EVENTS + num_others)
    return mixture - _log_beta(PRIOR_EVENTS, PRIOR_NON_EVENTS)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
