"""What is measured behind the gate: its pace, and how soon a first token follows a turn.

Forecasts rest on both, and so does how many requests are worth having in the engine at a time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

# Turns that are remembered, and how many a forecast needs.
_NUM_TURNS = 64
_LEAST_TURNS = 16
_NUM_FIRST_TOKENS = 64
_FEWEST_PLACES = 16
# First tokens between two changes, so that each shows its effect.
_SAMPLES_PER_CHANGE = 16
# Places that did not help are given back in such steps: all who wait at once, with their prompts,
# would make late who comes now.
_RELEASE = 1.5
# With so many of the places left first tokens have to come so much sooner, or it was not them.
_CHECKED_RATIO, _EFFECT_RATIO = 0.6, 0.85
# First tokens for which nothing more is tried then.
_PAUSE = 1024
# A class that nobody has asked for so many of its usual gaps does not ask at present; at most, and
# at least, so many seconds.
_GAPS_AWAY, _MOST_AWAY_S, _LEAST_AWAY_S = 10.0, 3.0, 0.25
# What the newest gap counts for in the usual one.
_NEWEST_GAP = 0.1


class Pace:
    """The turns given while somebody waited; without a queue nothing is learned of the engine."""

    def __init__(self) -> None:
        self._turns: deque[tuple[float, float]] = deque(maxlen=_NUM_TURNS)
        self._gaps_s = 0.0
        self._last_s: float | None = None

    def pause(self) -> None:
        """Note that nobody waits: the time until somebody does again says nothing."""
        self._last_s = None

    def begin(self, now_s: float) -> None:
        """Note that somebody waits from now on."""
        if self._last_s is None:
            self._last_s = now_s

    def record(self, limit_s: float, now_s: float) -> None:
        """Count a turn given to a request of a class with this limit, while somebody waited."""
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

        Requests with a shorter limit keep coming and go first: their share is not left to others.
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
        """Return the shortest of the last ones; 0 without any."""
        return min(self._seen.get(slo_class, ()), default=0.0)


class Asking:
    """Which limits the requests have that come at present.

    A class that came often and stops is noticed soon; one that comes now and then is expected back.
    """

    def __init__(self) -> None:
        # By limit, when it last came and its usual gap, in seconds.
        self._seen: dict[float, tuple[float, float]] = {}

    def record(self, limit_s: float, now_s: float) -> None:
        """Record that a request of a class with this limit came."""
        last_s, gap_s = self._seen.get(limit_s, (now_s, _MOST_AWAY_S / _GAPS_AWAY))
        gap_s += _NEWEST_GAP * (now_s - last_s - gap_s) if limit_s in self._seen else 0.0
        self._seen[limit_s] = (now_s, gap_s)

    def shortest_s(self, now_s: float) -> float:
        """Return the shortest of them; infinite where nobody asks."""
        for limit_s, (last_s, gap_s) in list(self._seen.items()):
            away_s = min(_MOST_AWAY_S, max(_LEAST_AWAY_S, _GAPS_AWAY * gap_s))
            if now_s - last_s > away_s:
                del self._seen[limit_s]
        return min(self._seen, default=math.inf)


@dataclass(frozen=True, slots=True)
class ConcurrencyRule:
    """When places become fewer, and more again.

    Attributes:
        busy_ratio: What the first token may take from its turn on, as a share of the limit.
        calm_ratio: Under which share there is room.
        shrink: What is kept of the places that are used.
        quantile: Which of the first tokens is compared.
        in_a_row: How often it has to be over the ratio, so that a stall does not count.
        grow: By how much places become more while there is room.
    """

    busy_ratio: float
    calm_ratio: float
    shrink: float
    quantile: float = 0.9
    in_a_row: int = 1
    grow: float = 1.05


# Those that can wait are held back before anybody is late, and what is in the engine ends soon.
FOR_PATIENT = ConcurrencyRule(busy_ratio=0.6, calm_ratio=0.4, shrink=0.85)
# To hold back those that cannot wait makes them late: only where the engine would as well, half of
# them three times running, since an engine that stalled is in time again at once and a queue is
# not; in small steps, since nobody at all goes in until so many have ended; and not for long.
FOR_URGENT = ConcurrencyRule(
    busy_ratio=1.0, calm_ratio=0.8, shrink=0.97, quantile=0.5, in_a_row=3, grow=1.3
)


class ConcurrencyLimit:
    """How many requests may be in the engine before some are held back.

    As many as vLLM runs, while first tokens follow their turns within their limit; fewer where they
    do not, because each running request makes every step longer. Those count that have the shortest
    limit of all that ask at present.
    Where fewer do not bring them sooner, it is something else that they wait for, such as prompts
    of their own, and all places are given back: the engine is not kept from work for nothing.

    Args:
        most: Most places, such as vLLM's `--max-num-seqs`.
        rule: When they become fewer.
    """

    def __init__(self, most: int, rule: ConcurrencyRule) -> None:
        self._rule = rule
        self._most = self._now = float(most)
        self._ratios: list[float] = []
        self._checked: tuple[float, float] | None = None
        self._pause = self._num_high = 0

    @property
    def num(self) -> int:
        """Places now."""
        return int(self._now)

    @property
    def are_all(self) -> bool:
        """Whether there are as many as there can be."""
        return self._now == self._most

    def resize(self, most: int) -> None:
        """Put another greatest number in force, and begin with it."""
        if most != self._most:
            self._most = float(most)
            self.begin()

    def begin(self) -> None:
        """Give all places back: those who ask have another limit than before."""
        self._now = self._most
        self.look_anew()

    def look_anew(self) -> None:
        """Keep the places, and forget what was seen of another limit."""
        self._ratios.clear()
        self._checked, self._num_high = None, 0

    def record(self, ratio: float, num_inside: int) -> bool:
        """Count a first token; returns whether the number of places changed.

        Args:
            ratio: What it took from its turn on, as a share of its limit.
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
        # What is not used is no lever.
        used = min(self._now, float(num_inside))
        if self._checked is None:
            self._checked = used, high
        places, ratio = self._checked
        # Fewer than the least there cannot be: what that brought is all there is to see.
        is_least = used < places and used <= _FEWEST_PLACES
        if used <= places * _CHECKED_RATIO or is_least:
            if high > ratio * _EFFECT_RATIO:
                self._pause, self._checked = _PAUSE, None
                self._now = min(self._most, self._now * _RELEASE)
                return
            self._checked = used, high
        self._now = min(self._now, max(min(_FEWEST_PLACES, self._most), used * self._rule.shrink))
