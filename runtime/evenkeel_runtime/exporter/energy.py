"""Energy of one engine's GPUs: readings of their counters, and what it was spent on."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from time import monotonic_ns

import numpy as np

from evenkeel.error_guard import ErrorGuard
from evenkeel_runtime.ledger.step_cost_model import FloatArray
from evenkeel_runtime.ledger.timeline import Steps
from evenkeel_runtime.wire.steps import Arrived, Left, RequestEvent

logger = logging.getLogger(__name__)

# Counters of GPUs change every 20 to 100 ms; between two readings, power counts as constant.
_INTERVAL_S = 0.1
# A reading takes a millisecond or so. A GPU that has failed may block the driver for good.
_LONGEST_READING_S = 2.0
# No GPU takes more, and counters change within a second: a larger step is a wrong reading.
_MOST_W = 10_000
_MOST_LATE_S = 1.0
# About ten minutes of readings; older ones are thinned, not dropped: a step may take long.
_MAX_READINGS = 8192
# Records are this old at most when they arrive: idle time until then is certain.
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class EngineEnergy:
    """Energy of an engine's GPUs since its first request, in J; each kind only grows.

    Attributes:
        requests_j: In steps, shared out among their requests.
        idle_j: While no request was in the engine.
        between_j: The rest: time between steps, and steps of no known request.
    """

    requests_j: float = 0.0
    idle_j: float = 0.0
    between_j: float = 0.0


class EnergyMeter:
    """Energy that an engine's GPUs have used, at any moment between two readings.

    Readings may be taken by another thread than the one that calls the other methods.

    Args:
        read: Returns the counter of each GPU in mJ.
    """

    def __init__(self, read: Callable[[], Sequence[int]]) -> None:
        self._read = read
        self._errors = ErrorGuard(
            logger.warning,
            "energy is unknown while NVML cannot be read; further errors are not logged: %s",
            expected=Exception,
        )
        self._counters: Sequence[int] = ()
        self._lock = threading.Lock()
        self._times_ns: list[int] = []
        self._joules: list[float] = []
        # In joules, because readings of long ago are thinned.
        self._begin_j: float | None = None
        self._idle_since_ns: int | None = None
        self._idle_since_j = 0.0
        self._idle_j = 0.0
        self._idle_told_j = 0.0
        self._requests_j = 0.0
        self._between_j = 0.0

    def sample(self, clock_ns: Callable[[], int]) -> None:
        """Read the counters; what is used until a later reading is unknown if that fails."""
        begin_ns = clock_ns()
        try:
            counters = self._read()
        except Exception as error:
            self._errors.record(error)
            return
        time_ns = (begin_ns + clock_ns()) // 2
        before_ns = self._times_ns[-1] if self._times_ns else time_ns
        most_mj = _MOST_W * ((time_ns - before_ns) / 1e6 + 1e3 * _MOST_LATE_S)
        # After its driver was loaded again, a counter begins at 0.
        steps = (after - before for before, after in zip(self._counters, counters, strict=False))
        spent_j = sum(step for step in steps if 0 < step <= most_mj) / 1e3
        self._counters = counters
        with self._lock:
            self._times_ns.append(time_ns)
            self._joules.append((self._joules[-1] if self._joules else 0.0) + spent_j)
            if len(self._times_ns) > _MAX_READINGS:
                half = _MAX_READINGS // 2
                for series in (self._times_ns, self._joules):
                    del series[1:half:2]

    def of_steps(self, steps: Steps) -> FloatArray | None:
        """Return the energy used in each step, in J; None if readings do not cover them."""
        first_ns, last_ns = int(steps.begin_ns[0]), int(steps.end_ns[-1])
        with self._lock:
            if not self._times_ns or first_ns < self._times_ns[0] or last_ns > self._times_ns[-1]:
                return None
            # From the last reading before them on: there may be thousands.
            at = bisect_right(self._times_ns, first_ns) - 1
            times_ns, joules = self._times_ns[at:], self._joules[at:]
        begin_j, end_j = (
            np.interp(when, times_ns, joules) for when in (steps.begin_ns, steps.end_ns)
        )
        return np.maximum(end_j - begin_j, 0.0)

    def add_event(self, event: RequestEvent, num_live: int) -> None:
        """Follow a request's event; `num_live` requests are in the engine after it."""
        match event:
            case Arrived(_, time_ns):
                if self._begin_j is None:
                    self._begin_j = self._joules_at(time_ns)
                if self._idle_since_ns is not None:
                    self._idle_j += max(0.0, self._joules_at(time_ns) - self._idle_since_j)
                    self._idle_since_ns = None
            case Left(_, time_ns) if not num_live:
                self._be_idle_since(time_ns)

    def add_steps(self, steps: Steps, shared_j: float) -> None:
        """Add consecutive steps, of whose energy known requests share `shared_j`."""
        begin_ns, end_ns = int(steps.begin_ns[0]), int(steps.end_ns[-1])
        if self._begin_j is None:
            self._begin_j = self._joules_at(begin_ns)
        self._requests_j += shared_j
        if self._idle_since_ns is not None and end_ns > self._idle_since_ns:
            # The last request may have been aborted during a step.
            self._be_idle_since(end_ns)
        known_j = self._begin_j + self._requests_j + self._idle_j
        until_j = self._joules_at(end_ns) if self._idle_since_ns is None else self._idle_since_j
        self._between_j = max(self._between_j, until_j - known_j)

    def lose_records(self) -> None:
        """Count the energy until the next step as `between`: requests may have come and gone."""
        if self._idle_since_ns is not None:
            self._idle_j = max(self._idle_j, self._idle_told_j)
            self._idle_since_ns = None

    def total(self, now_ns: int) -> EngineEnergy | None:
        """Return the energy up to the last step, and idle energy after it up to shortly before now.

        None before the first reading. No kind is ever less than in an earlier call: a counter that
        falls counts as restarted. Idle energy that turns out to belong to a step is not taken back,
        but made up for by later idle energy.
        """
        if not self._times_ns:
            return None
        idle_j = self._idle_j
        if self._idle_since_ns is not None:
            idle_j += max(0.0, self._joules_at(now_ns - _SETTLED_NS) - self._idle_since_j)
        self._idle_told_j = max(self._idle_told_j, idle_j)
        return EngineEnergy(self._requests_j, self._idle_told_j, self._between_j)

    def _be_idle_since(self, time_ns: int) -> None:
        self._idle_since_ns, self._idle_since_j = time_ns, self._joules_at(time_ns)

    def _joules_at(self, time_ns: int) -> float:
        with self._lock:
            at = bisect_right(self._times_ns, time_ns)
            near = slice(max(at - 1, 0), at + 1)
            times_ns, joules = self._times_ns[near], self._joules[near]
        return float(np.interp(time_ns, times_ns, joules)) if times_ns else 0.0


class EnergySampler:
    """Reads the counters of all engines in a thread of its own, because NVML may block.

    Args:
        meters: The meters of the engines.
    """

    def __init__(self, meters: Collection[EnergyMeter]) -> None:
        self._meters = meters
        self._is_wanted = threading.Event()
        self._should_stop = threading.Event()
        self._finished = threading.Condition()
        self._read_since_ns = 0
        self._is_late = False

    def start(self) -> None:
        """Start reading; nothing without meters."""
        if self._meters:
            threading.Thread(target=self._run, name="evenkeel-energy", daemon=True).start()

    def stop(self) -> None:
        """Stop reading; does not wait for it."""
        self._should_stop.set()
        self._is_wanted.set()

    def refresh(self) -> None:
        """Wait until the counters have been read anew; not for long, and only once per reading."""
        if not self._meters:
            return
        now_ns = monotonic_ns()
        self._is_wanted.set()
        with self._finished:
            longest_s = 0.0 if self._is_late else _LONGEST_READING_S
            self._is_late = not self._finished.wait_for(
                lambda: self._read_since_ns >= now_ns, longest_s
            )

    def _run(self) -> None:
        while not self._should_stop.is_set():
            self._is_wanted.clear()
            begin_ns = monotonic_ns()
            for meter in self._meters:
                meter.sample(monotonic_ns)
            with self._finished:
                self._read_since_ns, self._is_late = begin_ns, False
                self._finished.notify_all()
            self._is_wanted.wait(_INTERVAL_S)
