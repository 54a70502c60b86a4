"""Counts of timely and late first tokens by class, over a sliding window."""

from __future__ import annotations

from collections import Counter, deque

from evenkeel_runtime.control.ladder import ClassCounts


class SlidingWindow:
    """Counts over the last `window_s` seconds, in slices of a tenth.

    Args:
        window_s: Length of the window.
    """

    def __init__(self, window_s: float) -> None:
        self._slice_s = window_s / 10
        self._slices: deque[tuple[int, Counter[tuple[str, bool]]]] = deque()

    def resize(self, window_s: float) -> None:
        """Change the window's length; existing counts are kept."""
        slice_s = window_s / 10
        if slice_s == self._slice_s:
            return
        slices, self._slices = self._slices, deque()
        for number, counts in slices:
            moved = int(number * self._slice_s / slice_s)
            if not self._slices or self._slices[-1][0] != moved:
                self._slices.append((moved, Counter()))
            self._slices[-1][1].update(counts)
        self._slice_s = slice_s

    def add(self, slo_class: str, is_good: bool, now_s: float) -> None:
        """Count one request's first token, or its refusal."""
        number = int(now_s / self._slice_s)
        if not self._slices or self._slices[-1][0] != number:
            self._slices.append((number, Counter()))
        self._slices[-1][1][slo_class, is_good] += 1

    def read(self, overdue: Counter[str], now_s: float) -> dict[str, ClassCounts]:
        """Return the counts by class.

        Args:
            overdue: Late requests without a first token yet, by class.
            now_s: The current time.
        """
        oldest = int(now_s / self._slice_s) - 9
        while self._slices and self._slices[0][0] < oldest:
            self._slices.popleft()
        total: Counter[tuple[str, bool]] = Counter()
        for _, counts in self._slices:
            total.update(counts)
        names = {name for name, _ in total} | set(overdue)
        return {
            name: ClassCounts(total[name, True], total[name, False] + overdue[name])
            for name in names
        }
