"""Good and bad events in time buckets, and the verdict on an SLO at one moment.

The same code judges live requests, backtests and tests; only the source of the buckets differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from evenkeel.slo.burn_rates import (
    DEFAULT_SIGNIFICANCE,
    AlertWindow,
    Counts,
    Severity,
    Significance,
    budget_left_ratio,
    burn_rate,
    confidence_z,
    error_ratio_lower,
    exceeds,
)

# Seconds. With at least ten buckets, a window's start is off by at most a tenth of its length.
_WIDTHS_S = tuple(Fraction(w) for w in ("0.1", "0.2", "0.5", "1", "2", "5", "10", "30", "60"))
_BUCKETS_IN_A_WINDOW = 10


class BucketSeries:
    """Counts of the newest `num_buckets` buckets; sums over any recent window in constant time.

    Buckets are numbered: bucket k of width w holds the events with k·w ≤ time < (k + 1)·w. Time
    before the first bucket ever filled counts as no events, so a window longer than the history
    uses what exists. Memory: 16 bytes per bucket.

    Args:
        num_buckets: How far back sums may reach.
    """

    def __init__(self, num_buckets: int) -> None:
        if num_buckets < 1:
            raise ValueError(f"a series needs at least one bucket, not {num_buckets}")
        self.num_buckets = num_buckets
        # Running sums in a ring, with one extra slot for the sum before the oldest bucket.
        self._total = np.zeros(num_buckets + 1)
        self._bad = np.zeros(num_buckets + 1)
        self._first = 0
        self._newest: int | None = None

    @property
    def newest(self) -> int | None:
        """The newest bucket; None if none was filled."""
        return self._newest

    def replace_tail(self, first: int, counts: Sequence[Counts]) -> None:
        """Replace the buckets from `first` on with `counts`.

        A gap between the newest bucket and `first` is filled with empty buckets.

        Raises:
            ValueError: If `first` is older than the series still holds.
        """
        total = np.array([count.total for count in counts])
        self.replace_tail_arrays(first, total, np.array([count.bad for count in counts]))

    def replace_tail_arrays(
        self, first: int, total: NDArray[np.float64], bad: NDArray[np.float64]
    ) -> None:
        """Do the same as `replace_tail`, with the counts in two arrays.

        Raises:
            ValueError: If `first` is older than the series still holds.
        """
        if self._newest is None or first - self._newest > self.num_buckets:
            self._restart(first)
        assert self._newest is not None
        # Overwritten buckets stay lost, even if the newest bucket moves back.
        self._first = max(self._first, self._newest - self.num_buckets + 1)
        if first < self._first:
            raise ValueError(f"bucket {first} is older than the series holds")
        if first <= self._newest:
            self._newest = first - 1
        gap = np.zeros(first - self._newest - 1)
        self._extend(np.concatenate([gap, total]), np.concatenate([gap, bad]))

    def sum(self, num_buckets: int, end: int) -> Counts:
        """Return the counts of the last `num_buckets` buckets up to and including `end`."""
        if self._newest is None:
            return Counts(0.0, 0.0)
        oldest = max(self._first, self._newest - self.num_buckets + 1)
        last = min(end, self._newest)
        before = max(end - num_buckets, oldest - 1)
        if last <= before:
            return Counts(0.0, 0.0)
        slots = self.num_buckets + 1
        return Counts(
            float(self._total[last % slots] - self._total[before % slots]),
            float(self._bad[last % slots] - self._bad[before % slots]),
        )

    def _restart(self, first: int) -> None:
        self._first, self._newest = first, first - 1
        self._total[(first - 1) % (self.num_buckets + 1)] = 0.0
        self._bad[(first - 1) % (self.num_buckets + 1)] = 0.0

    def _extend(self, total: NDArray[np.float64], bad: NDArray[np.float64]) -> None:
        assert self._newest is not None
        num_lost = len(total) - self.num_buckets
        if num_lost > 0:
            self._restart(self._newest + 1 + num_lost)
            total, bad = total[num_lost:], bad[num_lost:]
        if not len(total):
            return
        slots = self.num_buckets + 1
        previous = self._newest % slots
        places = (self._newest + 1 + np.arange(len(total))) % slots
        for sums, new in ((self._total, total), (self._bad, bad)):
            sums[places] = np.cumsum(np.concatenate([[sums[previous]], new]))[1:]
        self._newest += len(total)


def choose_width_s(windows: Sequence[AlertWindow]) -> Fraction:
    """Return a bucket width that fits the shortest window at least ten times, up to a minute."""
    shortest = min((w.short_s for w in windows), default=_WIDTHS_S[-1] * _BUCKETS_IN_A_WINDOW)
    fitting = [width for width in _WIDTHS_S if width * _BUCKETS_IN_A_WINDOW <= shortest]
    return max(fitting, default=_WIDTHS_S[0])


@dataclass(frozen=True, slots=True)
class WindowBurn:
    """How fast one pair of windows burns; a rate is None if the window has no valid event.

    `is_unknown`: there are too few events to tell. One window is empty, and the other does not rule
    out that the pair burns. `bad_long` is how many events of the long window were bad; of a budget
    in money, what was spent in it.
    """

    window: AlertWindow
    burn_long: float | None
    burn_short: float | None
    is_burning: bool
    is_unknown: bool = False
    bad_long: float = 0.0

    @property
    def excess(self) -> float:
        """The lower of the two burn rates over the factor; above 1 means burning."""
        return min(self.burn_long or 0.0, self.burn_short or 0.0) / float(self.window.factor)


@dataclass(frozen=True, slots=True)
class SloStatus:
    """The state of an SLO at one moment.

    Attributes:
        counts: Events of the whole period.
        sli: Good / valid of the period; None without valid events.
        budget_left_ratio: Of the period's budget; None without valid events.
        burns: One element per alert window.
    """

    counts: Counts
    sli: float | None
    budget_left_ratio: float | None
    burns: tuple[WindowBurn, ...]

    @property
    def has_data(self) -> bool:
        """Whether the period has any valid event."""
        return self.counts.total > 0

    def burning(self, severity: Severity) -> WindowBurn | None:
        """Return the burning pair furthest above its factor; None if none burns."""
        burning = [b for b in self.burns if b.is_burning and b.window.severity is severity]
        return max(burning, key=lambda b: b.excess, default=None)

    def holds(self, severity: Severity) -> bool | None:
        """Return whether a pair of that severity burns; None if it has too few events to tell."""
        of_severity = [b for b in self.burns if b.window.severity is severity]
        if any(b.is_burning for b in of_severity):
            return True
        return None if any(b.is_unknown for b in of_severity) else False


class SeriesEvaluator:
    """Judges one SLO on buckets of one width.

    A window is rounded to whole buckets, at least one.

    Args:
        target: The share of valid events that must be good.
        windows: The alert windows.
        period_s: The period the budget covers.
        width_s: The width of the buckets.
        significance: Conditions for a pair in addition to its burn rates.
    """

    def __init__(
        self,
        target: Fraction,
        windows: Sequence[AlertWindow],
        period_s: Fraction,
        width_s: Fraction,
        significance: Significance = DEFAULT_SIGNIFICANCE,
    ) -> None:
        self._target = target
        self._significance = significance
        self._z = None if significance.confidence is None else confidence_z(significance.confidence)
        self._num_period = buckets_in(period_s, width_s)
        # Computed once: fraction arithmetic would otherwise dominate the time of a verdict.
        self._plan = [
            (
                window,
                window.error_limit(target),
                buckets_in(window.long_s, width_s),
                buckets_in(window.short_s, width_s),
            )
            for window in windows
        ]

    @property
    def num_buckets(self) -> int:
        """How far back a verdict reads."""
        return max(self._num_period, *(num_long for _, _, num_long, _ in self._plan), 1)

    def verdict(self, series: BucketSeries, end: int, num_period: int | None = None) -> SloStatus:
        """Return the verdict over windows that end with bucket `end`, inclusive.

        The budget covers the newest `num_period` buckets; by default a whole rolling period.

        A window without valid events does not burn, but does not prove that a burn is over.
        """
        burns = []
        for window, limit, num_long, num_short in self._plan:
            long, short = series.sum(num_long, end), series.sum(num_short, end)
            is_long_over, is_short_over = exceeds(long, limit), exceeds(short, limit)
            is_over = is_long_over and is_short_over
            burns.append(
                WindowBurn(
                    window,
                    burn_rate(long, self._target),
                    burn_rate(short, self._target),
                    is_over and self._is_certain(window, long, limit),
                    not (short.total > 0 or (long.total > 0 and not is_long_over)),
                    long.bad,
                )
            )
        counts = series.sum(num_period or self._num_period, end)
        return SloStatus(counts, counts.sli, budget_left_ratio(counts, self._target), tuple(burns))

    def _is_certain(self, window: AlertWindow, long: Counts, limit: Fraction) -> bool:
        if long.bad < self._significance.min_bad:
            return False
        if self._z is None or window.severity is not Severity.PAGE:
            return True
        return error_ratio_lower(long, self._z) > limit


def buckets_in(span_s: Fraction, width_s: Fraction) -> int:
    """Return how many buckets of `width_s` a span takes, rounded, at least one."""
    return max(1, round(span_s / width_s))
