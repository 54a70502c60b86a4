"""Determines whether the collector is ready, for `/readyz`."""

from __future__ import annotations

import time
from collections.abc import Callable

from evenkeel_collector.log.write_ahead_log import LogFullError, LogWriteError, WriteAheadLog
from evenkeel_collector.ports.memory_budget import BusyError, MemoryBudget

# A load balancer that polls every few seconds sees each refusal. After that the next sender may
# try: only a successful write shows that a disk works again.
SHOWN_S = 5.0
# Refusals caused by the collector, not by a sender.
OURS = (LogFullError, LogWriteError, BusyError)


class Readiness:
    """Tracks why intake or SLO evaluation is blocked.

    Args:
        log: The log, which may be full.
        memory: The memory budget, which may be used up.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        log: WriteAheadLog,
        memory: MemoryBudget,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._memory = memory
        self._clock = clock
        self._refusal: tuple[float, str] | None = None
        self._others: list[Callable[[], str | None]] = []

    def watch(self, why_not: Callable[[], str | None]) -> None:
        """Register a check that returns why another part is stuck; it must not block."""
        self._others.append(why_not)

    def record(self, error: Exception) -> None:
        """Remember a refusal."""
        if isinstance(error, OURS):
            self._refusal = (self._clock(), str(error))

    def record_accepted(self) -> None:
        """Forget the last refusal: a request has reached the disk since."""
        self._refusal = None

    def why_not(self) -> str | None:
        """Return why requests are refused or another part is stuck; None if all is well."""
        if self._log.is_full():
            return "the log is full: the store cannot keep up"
        if self._memory.num_bytes >= self._memory.limit_bytes:
            return "too many requests in progress"
        if self._refusal is not None and self._clock() - self._refusal[0] < SHOWN_S:
            return f"a request was refused a moment ago: {self._refusal[1]}"
        return next((reason for other in self._others if (reason := other())), None)
