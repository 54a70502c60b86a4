"""Bound the wrong hits among those already served, whatever the traffic.

The evidence bounds the rate on traffic like that seen before. Traffic made to fool it (near misses
of a trusted class) is caught here: served hits are replayed on the model at a random share that
keeps the wrong hits not yet detected within what the limit allows.
"""

from __future__ import annotations

import math
from collections import Counter

# Arguments of the martingale below: one for no detection, one for several.
_THETAS = (0.02, 0.3)
# Detections that the share leaves room for, so that they do not end serving.
_SPARE = 2
# Wrong hits beyond the bound before serving ends.
_MOST_BEYOND = 3.0


class WrongHits:
    """The wrong hits among those served, detected or not, since the last restart.

    A wrong hit that is replayed with probability p multiplies theta^detected / (1 - p(1 - theta)),
    whose mean is 1, into a martingale. So with probability at least 1 - alpha, at all times and
    whoever chooses the hits (Ville's inequality, alpha divided among the thetas):

        sum over wrong hits of cost(p) <= log(1 / alpha) + num_detected * log(1 / theta),
        cost(p) = -log(1 - p(1 - theta))

    What the detected ones leave of this, divided by the cost at the lowest share so far, bounds
    the others. The share is the lowest that leaves room for _SPARE more detections.

    Args:
        limit: Highest accepted share of wrong hits.
        alpha: Highest accepted probability of exceeding it unnoticed.
        least_ratio: Lowest share to replay.
    """

    def __init__(self, limit: float, alpha: float, least_ratio: float) -> None:
        self._limit = limit
        self._log_odds = math.log(len(_THETAS) / alpha)
        self.least_ratio = least_ratio
        self.restart()

    def restart(self) -> None:
        """Count anew."""
        self.num_served = 0
        self.num_pending = 0
        self.wrong_kinds: Counter[str] = Counter()
        self._lowest_ratio = 1.0
        self._detected_cost = [0.0] * len(_THETAS)

    @property
    def num_detected(self) -> int:
        """Wrong hits found by replays."""
        return self.wrong_kinds.total()

    @property
    def bound(self) -> float:
        """Upper bound on the wrong hits served."""
        if self._lowest_ratio == 1:
            return float(self.num_detected)
        left = [
            self._left(place, self.num_detected) / _cost(self._lowest_ratio, theta)
            for place, theta in enumerate(_THETAS)
        ]
        return min(float(self.num_served), self.num_detected + max(0.0, min(left)))

    @property
    def replay_ratio(self) -> float:
        """Share of served hits that must be replayed now."""
        num_detected = self.num_detected + _SPARE
        room = self._limit * self.num_served - num_detected
        if room <= 0 or self.bound > self._limit * self.num_served:
            return 1.0
        needed = [
            -math.expm1(-self._left(place, num_detected) / room) / (1 - theta)
            for place, theta in enumerate(_THETAS)
        ]
        return min(1.0, max(self.least_ratio, min(needed)))

    def _left(self, place: int, num_detected: int) -> float:
        gained = num_detected * math.log(1 / _THETAS[place])
        return self._log_odds + gained - self._detected_cost[place]

    @property
    def may_serve(self) -> bool:
        """Whether one more may be served before the replays under way are done."""
        return self.num_pending <= 1 + self._limit * self.num_served / 4

    @property
    def is_spent(self) -> bool:
        """Whether, after a wrong one, more may be wrong than the limit allows."""
        allowed = self._limit * self.num_served
        if self._lowest_ratio == 1:
            # All are known; one wrong of a few is no rate.
            return self.num_detected > allowed + 1
        return self.bound > allowed + _MOST_BEYOND

    def record_served(self) -> None:
        """Count a served hit."""
        self._lowest_ratio = min(self._lowest_ratio, self.replay_ratio)
        self.num_served += 1

    def record_replayed(self) -> None:
        """Count a replay that has ended, with or without a verdict."""
        self.num_pending = max(0, self.num_pending - 1)

    def record_wrong(self, kind: str, ratio: float) -> None:
        """Count a served hit that its replay, with this probability, found wrong."""
        self.wrong_kinds[kind] += 1
        for place, theta in enumerate(_THETAS):
            self._detected_cost[place] += _cost(ratio, theta)


def _cost(ratio: float, theta: float) -> float:
    return -math.log(1 - ratio * (1 - theta))
