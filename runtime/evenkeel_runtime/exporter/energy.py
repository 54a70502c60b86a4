"""Energy of one engine's GPUs: readings of their counters, and what it was spent on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenkeel_runtime.ledger.cost import FloatArray
from evenkeel_runtime.wire.steps import Arrived, Left, RequestEvent

logger = logging.getLogger(__name__)

# Counters of GPUs change every 20 to 100 ms; between two readings, power counts as constant.
_INTERVAL_NS = 50_000_000
# About seven minutes of readings; older ones are thinned, not dropped.
_MAX_READINGS = 8192
# Records are this old at most when they arrive.
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class EngineEnergy:
    """Energy of an engine's GPUs since its first request, in J; each kind only grows.

    Attributes:
        requests_j: In steps, shared out among their requests.
        idle_j: While no request was in the engine.
        other_j: The rest: steps of no known request, and the time between steps.
    """

    requests_j: float = 0.0
    idle_j: float = 0.0
    other_j: float = 0.0


class EnergyMeter:
    """Energy that an engine's GPUs have used, at any moment since the first reading.

    Args:
        read: Returns the counter of each GPU in mJ.

    Attributes:
        has_failed: Whether a reading failed: nothing is known from then on.
    """

    def __init__(self, read: Callable[[], Sequence[int]]) -> None:
        self._read = read
        self._counters: Sequence[int] = ()
        self._times_ns: list[int] = []
        self._joules: list[float] = []
        self._begin_ns: int | None = None
        self._idle_since_ns: int | None = None
        self._idle_j = 0.0
        self._requests_j = 0.0
        self._read_last = EngineEnergy()
        self.has_failed = False

    def sample(self, now_ns: int, *, is_due: bool = True) -> None:
        """Read the counters; without `is_due`, only if the last reading is old."""
        if self.has_failed or (
            not is_due and self._times_ns and now_ns - self._times_ns[-1] < _INTERVAL_NS
        ):
            return
        try:
            counters = self._read()
        except Exception as error:
            self.has_failed = True
            logger.warning("energy is no longer recorded: NVML: %s", error)
            return
        # After its driver was loaded again, a counter begins at 0.
        pairs = zip(self._counters, counters, strict=False)
        spent_j = sum(after - before for before, after in pairs if after > before) / 1e3
        self._counters = counters
        self._times_ns.append(now_ns)
        self._joules.append((self._joules[-1] if self._joules else 0.0) + spent_j)
        if len(self._times_ns) > _MAX_READINGS:
            half = _MAX_READINGS // 2
            for series in (self._times_ns, self._joules):
                del series[1:half:2]

    def between(
        self, begin_ns: NDArray[np.int64] | int, end_ns: NDArray[np.int64] | int
    ) -> FloatArray:
        """Return the energy used from each moment to another, in J; 0 outside the readings."""
        if not self._times_ns:
            return np.zeros(np.shape(begin_ns))
        at = [np.interp(when, self._times_ns, self._joules) for when in (begin_ns, end_ns)]
        return np.maximum(at[1] - at[0], 0.0)

    def add_event(self, event: RequestEvent, num_live: int) -> None:
        """Follow a request's event; `num_live` requests are in the engine after it."""
        match event:
            case Arrived(_, time_ns):
                if self._begin_ns is None:
                    self._begin_ns = time_ns
                if self._idle_since_ns is not None:
                    self._idle_j += float(self.between(self._idle_since_ns, time_ns))
                    self._idle_since_ns = None
            case Left(_, time_ns) if not num_live:
                self._idle_since_ns = time_ns

    def add_steps(self, end_ns: int, shared_j: float) -> None:
        """Add steps.

        Args:
            end_ns: End of the last one.
            shared_j: Energy of them that known requests share.
        """
        self._requests_j += shared_j
        if self._idle_since_ns is not None:
            # The last request may have been aborted during a step.
            self._idle_since_ns = max(self._idle_since_ns, end_ns)

    def lose_records(self) -> None:
        """Count the energy until the next event as other: requests may have come and gone."""
        self._idle_since_ns = None

    def total(self, now_ns: int) -> EngineEnergy:
        """Return the energy by kind up to shortly before now; no kind is less than before."""
        until_ns, idle_j, last = now_ns - _SETTLED_NS, self._idle_j, self._read_last
        if self._begin_ns is None:
            return last
        if self._idle_since_ns is not None:
            idle_j += float(self.between(self._idle_since_ns, until_ns))
        idle_j = max(idle_j, last.idle_j)
        rest_j = float(self.between(self._begin_ns, until_ns)) - idle_j - self._requests_j
        self._read_last = EngineEnergy(self._requests_j, idle_j, max(rest_j, last.other_j))
        return self._read_last
