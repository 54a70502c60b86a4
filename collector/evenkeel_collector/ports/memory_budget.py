"""Bounds the memory of all request bodies that are in hand at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class BusyError(Exception):
    """Too much is in hand: the request was not read, and may be sent again later."""


class Lease:
    """One request's share of the budget."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._num_bytes = 0

    def resize(self, num_bytes: int) -> None:
        """Hold this much from now on; one request alone may always hold what it needs.

        Raises:
            BusyError: If the others leave no room for it; what was held stays held.
        """
        budget = self._budget
        others = budget.num_bytes - self._num_bytes
        if others and others + num_bytes > budget.limit_bytes:
            raise BusyError("too many requests are being read")
        budget.num_bytes = others + num_bytes
        self._num_bytes = num_bytes


class MemoryBudget:
    """The budget; used by the event loop's thread alone.

    Args:
        limit_bytes: What all requests together may hold.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.num_bytes = 0

    @contextlib.contextmanager
    def lease(self, num_bytes: int) -> Iterator[Lease]:
        """Hold a share for the length of the block.

        Raises:
            BusyError: If there is no room.
        """
        lease = Lease(self)
        lease.resize(num_bytes)
        try:
            yield lease
        finally:
            lease.resize(0)
