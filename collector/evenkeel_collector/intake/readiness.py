"""Says whether the collector does its work: what `/readyz` answers."""

from __future__ import annotations

import time
from collections.abc import Callable

from evenkeel_collector.log.write_ahead_log import LogFullError, LogWriteError, WriteAheadLog
from evenkeel_collector.ports.memory_budget import BusyError, MemoryBudget

# A load balancer that asks every few seconds sees each refusal. After that the next sender may try:
# a disk that was mended says so by a write that succeeds, and by nothing else.
SHOWN_S = 5.0
# Refusals that are the collector's own doing, and no sender's.
OURS = (LogFullError, LogWriteError, BusyError)


class Readiness:
    """What keeps the intake from taking anything, or the SLOs from being evaluated.

    Args:
        log: Which may be full.
        memory: Which may be in use, all of it.
        clock: Seconds that never go back.
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
        """Let another part say why it does not do its work; it must answer at once."""
        self._others.append(why_not)

    def record(self, error: Exception) -> None:
        """Remember a refusal."""
        if isinstance(error, OURS):
            self._refusal = (self._clock(), str(error))

    def record_accepted(self) -> None:
        """Forget the last refusal: a request is on disk since."""
        self._refusal = None

    def why_not(self) -> str | None:
        """Return why requests are refused or another part is stuck; None if all is well."""
        if self._log.is_full():
            return "the log is full: the store does not keep up"
        if self._memory.num_bytes >= self._memory.limit_bytes:
            return "too many requests are being read"
        if self._refusal is not None and self._clock() - self._refusal[0] < SHOWN_S:
            return f"a request was refused a moment ago: {self._refusal[1]}"
        return next((reason for other in self._others if (reason := other())), None)
