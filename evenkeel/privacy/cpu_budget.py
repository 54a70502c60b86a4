"""Limits the CPU spent scanning texts, so that one sender cannot starve others.

A text's allowance is `ALLOWANCE_S + ALLOWANCE_S_PER_BYTE * bytes` of this thread's CPU; all texts
of a request together have the same allowance for the request's bytes. Ordinary texts use a tenth
of it. In hasty mode, while others queue behind the request, it is a fifth; beyond that the request
is set aside.
"""

from __future__ import annotations

import time
from collections.abc import Callable

ALLOWANCE_S = 0.1
ALLOWANCE_S_PER_BYTE = 0.5e-6
HASTY_RATIO = 0.2
# A unit of work takes a few microseconds, reading the clock a third of one.
UNITS_PER_LOOK = 64
# Elements of lists; visiting one takes a microsecond even if it is empty.
MAX_HASTY_VALUES = 10_000


class OverBudgetError(Exception):
    """A text exceeded its CPU budget; its content was not fully checked."""


class CpuBudget:
    """The CPU budget of one request.

    Args:
        num_bytes: The request's size; None if each text has its own budget.
        clock: CPU seconds of the calling thread.
        is_hasty: Whether texts over the budget are checked again later with more time.
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
        self._num_values = 0
        self._is_spent = False

    def begin(self, num_bytes: int) -> None:
        """Start the next text.

        Raises:
            OverBudgetError: If no budget is left for it.
        """
        if self._is_spent:
            raise OverBudgetError
        self._text_bytes = num_bytes
        self._text_end_s = None

    def visit(self, num_values: int) -> None:
        """Count values of lists that are about to be checked.

        Raises:
            OverBudgetError: If they are too many for a hasty check.
        """
        self._num_values += num_values
        if self.is_hasty and self._num_values > MAX_HASTY_VALUES:
            raise OverBudgetError

    def spend(self, units: int = 1) -> None:
        """Count work, and check the clock from time to time.

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
    """Return the CPU seconds allowed for a number of bytes."""
    return ALLOWANCE_S + ALLOWANCE_S_PER_BYTE * num_bytes
