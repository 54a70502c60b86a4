"""Limits the memory of all request bodies in flight."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class BusyError(Exception):
    """The memory budget is exhausted; the request was not read and may be retried."""


class Lease:
    """One request's share of the budget."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._num_bytes = 0

    def resize(self, num_bytes: int) -> None:
        """Resize the share to this many bytes; a lone request always gets what it needs.

        Raises:
            BusyError: If other requests leave no room; the share keeps its size.
        """
        budget = self._budget
        others = budget.num_bytes - self._num_bytes
        if others and others + num_bytes > budget.limit_bytes:
            raise BusyError("too many request bodies in flight; retry later")
        budget.num_bytes = others + num_bytes
        self._num_bytes = num_bytes


class MemoryBudget:
    """The budget; used by the event loop's thread alone.

    Args:
        limit_bytes: The limit for all requests together.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.num_bytes = 0

    @contextlib.contextmanager
    def lease(self, num_bytes: int) -> Iterator[Lease]:
        """Hold a share for the duration of the block.

        Raises:
            BusyError: If there is no room.
        """
        lease = Lease(self)
        lease.resize(num_bytes)
        try:
            yield lease
        finally:
            lease.resize(0)
