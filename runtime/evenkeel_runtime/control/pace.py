"""Measurements behind the gate: its pace, and the time from admission to first token.

Forecasts use both, and so does the number of requests worth running at a time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

# Turns remembered, and the minimum for a forecast.
_NUM_TURNS = 64
_LEAST_TURNS = 16
_NUM_FIRST_TOKENS = 64
_FEWEST_PLACES = 16
# First tokens between two changes, so that each change can take effect.
_SAMPLES_PER_CHANGE = 16
# Step in which withheld places are restored: admitting all waiting prompts at once would make new
# requests late.
_RELEASE = 1.5
# With this share of places left, first tokens must be this much faster, else places were not the
# cause.
_CHECKED_RATIO, _EFFECT_RATIO = 0.6, 0.85
# First tokens to wait before the next attempt.
_PAUSE = 1024
# A limit expires after this many of its usual gaps without a request, within these bounds in
# seconds.
_GAPS_AWAY, _MOST_AWAY_S, _LEAST_AWAY_S = 10.0, 3.0, 0.25
# Weight of the newest gap in the usual one.
_NEWEST_GAP = 0.1


class Pace:
    """Measures how fast requests are let in while others wait; without a queue it stays unknown."""

    def __init__(self) -> None:
        self._turns: deque[tuple[float, float]] = deque(maxlen=_NUM_TURNS)
        self._gaps_s = 0.0
        self._last_s: float | None = None

    def pause(self) -> None:
        """Record that the queue is empty; the time until it fills again is ignored."""
        self._last_s = None

    def begin(self, now_s: float) -> None:
        """Record that requests are waiting from now on."""
        if self._last_s is None:
            self._last_s = now_s

    def record(self, limit_s: float, now_s: float) -> None:
        """Count a turn given to a request with this limit while others waited."""
        if self._last_s is None:
            return
        if len(self._turns) == _NUM_TURNS:
            self._gaps_s -= self._turns[0][1]
        gap_s = max(0.0, now_s - self._last_s)
        self._turns.append((limit_s, gap_s))
        self._gaps_s += gap_s
        self._last_s = now_s

    def per_s(self, limit_s: float = 0.0) -> float | None:
        """Turns per second for requests with this limit or a longer one; None if not known yet.

        Requests with a shorter limit keep arriving and go first, so their share is not available.
        """
        if len(self._turns) < _LEAST_TURNS or self._gaps_s <= 0:
            return None
        return sum(1 for limit, _ in self._turns if limit >= limit_s) / self._gaps_s


class FirstTokens:
    """Seconds from a request's turn to its first token, by class."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[float]] = {}

    def keep(self, classes: Mapping[str, object]) -> None:
        """Forget the classes that are not among these."""
        self._seen = {name: seen for name, seen in self._seen.items() if name in classes}

    def record(self, slo_class: str, seconds: float) -> None:
        """Count one first token."""
        self._seen.setdefault(slo_class, deque(maxlen=_NUM_FIRST_TOKENS)).append(seconds)

    def least_s(self, slo_class: str) -> float:
        """Return the shortest recent value; 0 without any."""
        return min(self._seen.get(slo_class, ()), default=0.0)


class ActiveLimits:
    """Tracks the limits of the requests that currently arrive.

    A limit expires after a multiple of its usual gap, so a frequent class expires sooner than an
    occasional one.
    """

    def __init__(self) -> None:
        # By limit: the last arrival and the usual gap, in seconds.
        self._seen: dict[float, tuple[float, float]] = {}

    def record(self, limit_s: float, now_s: float) -> None:
        """Record the arrival of a request with this limit."""
        last_s, gap_s = self._seen.get(limit_s, (now_s, _MOST_AWAY_S / _GAPS_AWAY))
        gap_s += _NEWEST_GAP * (now_s - last_s - gap_s) if limit_s in self._seen else 0.0
        self._seen[limit_s] = (now_s, gap_s)

    def shortest_s(self, now_s: float) -> float:
        """Return the shortest active limit; infinite if there is none."""
        for limit_s, (last_s, gap_s) in list(self._seen.items()):
            away_s = min(_MOST_AWAY_S, max(_LEAST_AWAY_S, _GAPS_AWAY * gap_s))
            if now_s - last_s > away_s:
                del self._seen[limit_s]
        return min(self._seen, default=math.inf)


@dataclass(frozen=True, slots=True)
class ConcurrencyRule:
    """When to remove places, and when to add them again.

    Attributes:
        busy_ratio: Places are removed above this time from turn to first token, as a share of the
            limit.
        calm_ratio: Places are added below this one.
        shrink: Share of the used places to keep.
        quantile: Quantile of the first-token times to compare.
        in_a_row: How many times in a row `busy_ratio` must be exceeded, so that one stall does not
            count.
        grow: Factor by which places grow.
    """

    busy_ratio: float
    calm_ratio: float
    shrink: float
    quantile: float = 0.9
    in_a_row: int = 1
    grow: float = 1.05


# Patient requests are held back before any is late; those in the engine finish soon.
FOR_PATIENT = ConcurrencyRule(busy_ratio=0.6, calm_ratio=0.4, shrink=0.85)
# Holding back urgent requests makes them late, so do it only if the engine makes them late anyway:
# half of them, three times in a row, since a stalled engine recovers at once and a queue does not.
# Use small steps, since none enters until that many have finished, and recover quickly.
FOR_URGENT = ConcurrencyRule(
    busy_ratio=1.0, calm_ratio=0.8, shrink=0.97, quantile=0.5, in_a_row=3, grow=1.3
)


class ConcurrencyLimit:
    """Limits how many requests run in the engine before others are held back.

    All of vLLM's places are used while first tokens come within their limit after admission, and
    fewer otherwise, because each running request makes every step longer. Only the shortest limit
    among the requests that currently arrive counts. If removing places does not make first tokens
    faster, the cause lies elsewhere, such as in the requests' own prompts, and all places are
    restored, so that the engine does not idle for nothing.

    Args:
        most: Maximum number of places, such as vLLM's `--max-num-seqs`.
        rule: When to remove places.
    """

    def __init__(self, most: int, rule: ConcurrencyRule) -> None:
        self._rule = rule
        self._most = self._now = float(most)
        self._ratios: list[float] = []
        self._checked: tuple[float, float] | None = None
        self._pause = self._num_high = 0

    @property
    def num(self) -> int:
        """Current number of places."""
        return int(self._now)

    @property
    def is_unrestricted(self) -> bool:
        """Whether all places are available."""
        return self._now == self._most

    def resize(self, most: int) -> None:
        """Apply a new maximum, and start from it."""
        if most != self._most:
            self._most = float(most)
            self.begin()

    def begin(self) -> None:
        """Restore all places: the requests have a different limit than before."""
        self._now = self._most
        self.discard_samples()

    def discard_samples(self) -> None:
        """Keep the places, but discard what was measured for another limit."""
        self._ratios.clear()
        self._checked, self._num_high = None, 0

    def record(self, ratio: float, num_inside: int) -> bool:
        """Count a first token; return whether the number of places changed.

        Args:
            ratio: Time from its turn to the token, as a share of its limit.
            num_inside: Requests in the engine.
        """
        self._pause = max(0, self._pause - 1)
        self._ratios.append(ratio)
        if len(self._ratios) < _SAMPLES_PER_CHANGE:
            return False
        high = sorted(self._ratios)[int(self._rule.quantile * _SAMPLES_PER_CHANGE)]
        self._num_high = self._num_high + 1 if high > self._rule.busy_ratio else 0
        self._ratios.clear()
        before = self._now
        if self._pause:
            self._now = min(self._most, self._now * _RELEASE)
        elif self._num_high >= self._rule.in_a_row:
            self._shrink(high, num_inside)
        elif high < self._rule.calm_ratio:
            self._now = min(self._most, self._now * self._rule.grow)
            self._checked = None
        return self._now != before

    def _shrink(self, high: float, num_inside: int) -> None:
        # Removing unused places has no effect.
        used = min(self._now, float(num_inside))
        if self._checked is None:
            self._checked = used, high
        places, ratio = self._checked
        # Already at the minimum: no larger effect is possible.
        is_least = used < places and used <= _FEWEST_PLACES
        if used <= places * _CHECKED_RATIO or is_least:
            if high > ratio * _EFFECT_RATIO:
                self._pause, self._checked = _PAUSE, None
                self._now = min(self._most, self._now * _RELEASE)
                return
            self._checked = used, high
        self._now = min(self._now, max(min(_FEWEST_PLACES, self._most), used * self._rule.shrink))
