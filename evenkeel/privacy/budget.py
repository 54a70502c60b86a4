"""Bounds the CPU that looking through texts may take: one sender cannot take it from others.

A text's allowance is `ALLOWANCE_S + ALLOWANCE_S_PER_BYTE * bytes` of this thread's CPU; all texts
of a request together have the same for the request's bytes. Ordinary texts take a tenth of it. In
haste, where others wait behind the request, it is a fifth, and then the request is put aside.
"""

from __future__ import annotations

import time
from collections.abc import Callable

ALLOWANCE_S = 0.1
ALLOWANCE_S_PER_BYTE = 0.5e-6
HASTY_RATIO = 0.2
# A unit of work is some microseconds, reading the clock a third of one.
UNITS_PER_LOOK = 64


class OverBudgetError(Exception):
    """A text took longer than it may; nothing is known of what it holds."""


class CpuBudget:
    """The CPU of one request.

    Args:
        num_bytes: The request's; None where each text stands for itself.
        clock: Seconds of CPU of the calling thread.
        is_hasty: Whether somebody with more time looks again at what is over the budget.
    """

    def __init__(
        self,
        num_bytes: int | None = None,
        clock: Callable[[], float] = time.thread_time,
        *,
        is_hasty: bool = False,
    ) -> None:
        self.is_hasty = is_hasty
        self._clock = clock
        self._ratio = HASTY_RATIO if is_hasty else 1.0
        self._request_end_s = (
            float("inf") if num_bytes is None else clock() + self._ratio * allowance_s(num_bytes)
        )
        self._text_bytes = 0
        self._text_end_s: float | None = None
        self._units = 0
        self._is_spent = False

    def begin(self, num_bytes: int) -> None:
        """Begin the next text.

        Raises:
            OverBudgetError: If nothing is left for it.
        """
        if self._is_spent:
            raise OverBudgetError
        self._text_bytes = num_bytes
        self._text_end_s = None

    def spend(self, units: int = 1) -> None:
        """Count work, and look at the clock now and then.

        Raises:
            OverBudgetError: If the text, or the request, has taken too long.
        """
        self._units += units
        if self._units < UNITS_PER_LOOK:
            return
        self._units = 0
        now_s = self._clock()
        self._is_spent = now_s > self._request_end_s
        if self._text_end_s is None:
            self._text_end_s = now_s + self._ratio * allowance_s(self._text_bytes)
        if self._is_spent or now_s > self._text_end_s:
            raise OverBudgetError


def allowance_s(num_bytes: int) -> float:
    """Return the seconds of CPU that so many bytes may take."""
    return ALLOWANCE_S + ALLOWANCE_S_PER_BYTE * num_bytes
