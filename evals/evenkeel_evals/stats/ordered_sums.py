"""Order statistics of all sums of two samples, without storing millions of them."""

from __future__ import annotations

import numpy as np

from evenkeel_evals.stats.inputs import Floats

# Up to this many sums are sorted directly; beyond it, a rank is found by bisection.
MAX_STORED = 4_000_000


class OrderedSums:
    """All sums first[i] + second[j]; with no second sample, all first[i] + first[j] with i ≤ j.

    Args:
        first: One sample, at least one value.
        second: The other one, or None for the sums of `first` with itself.
    """

    def __init__(self, first: Floats, second: Floats | None) -> None:
        self._first = np.sort(first)
        self._second = self._first if second is None else np.sort(second)
        self._is_triangle = second is None
        n = len(self._first)
        self._length = n * (n + 1) // 2 if second is None else n * len(self._second)
        self._sorted = self._sort() if self._length <= MAX_STORED else None

    def __len__(self) -> int:
        return self._length

    def at_rank(self, rank: int) -> float:
        """Return the rank-th smallest sum, counted from 1."""
        if self._sorted is not None:
            return float(self._sorted[rank - 1])
        low = float(self._first[0] + self._second[0])
        high = float(self._first[-1] + self._second[-1])
        if self._num_at_most(low) >= rank:
            return low
        while True:
            middle = low + (high - low) / 2
            if not low < middle < high:
                return high
            if self._num_at_most(middle) >= rank:
                high = middle
            else:
                low = middle

    def median(self) -> float:
        """Return the middle sum, or the mean of the two in the middle."""
        low, high = self.at_rank((self._length + 1) // 2), self.at_rank(self._length // 2 + 1)
        return low + (high - low) / 2

    def _sort(self) -> Floats:
        sums = self._first[:, None] + self._second[None, :]
        if self._is_triangle:
            return np.sort(sums[np.triu_indices(len(self._first))])
        return np.sort(sums, axis=None)

    def _num_at_most(self, bound: float) -> int:
        below = np.searchsorted(self._second, bound - self._first, side="right")
        if not self._is_triangle:
            return int(below.sum())
        num_diagonal = int(np.searchsorted(2 * self._first, bound, side="right"))
        return (int(below.sum()) + num_diagonal) // 2
