"""Accounts for an engine's time: every second belongs to exactly one kind."""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel_runtime.ledger.timeline import Steps
from evenkeel_runtime.wire.steps import Arrived, Left, RequestEvent

# Records are this old at most when they arrive: idle time until then is certain.
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class AccountedTime:
    """Seconds of an engine by kind, each only growing; together the time since its first request.

    Attributes:
        requests_s: Steps, shared out among their requests.
        other_s: Steps without work of a known request.
        between_s: Time between steps while requests were in the engine.
        idle_s: Time without any request in the engine.
        unrecorded_s: Time in which records are missing.
    """

    requests_s: float = 0.0
    other_s: float = 0.0
    between_s: float = 0.0
    idle_s: float = 0.0
    unrecorded_s: float = 0.0

    @property
    def total_s(self) -> float:
        """The engine's time."""
        return self.requests_s + self.other_s + self.between_s + self.idle_s + self.unrecorded_s


class EngineAccount:
    """Time of one engine, from its first request on."""

    def __init__(self) -> None:
        self._begin_ns: int | None = None
        self._idle_since_ns: int | None = None
        self._steps_ns = 0
        self._idle_ns = 0
        self._between_ns = 0
        self._unrecorded_ns = 0
        self._shared_s = 0.0
        self._other_s = 0.0
        self._idle_told_ns = 0
        self._known_until_ns = 0
        self._has_lost = False

    def lose_records(self) -> None:
        """Count the time from the last recorded step to the next one as unrecorded.

        Idle time that `read` has returned stays idle time.
        """
        self._has_lost = self._begin_ns is not None
        if self._idle_since_ns is not None:
            told_ns = max(0, self._idle_told_ns - self._idle_ns)
            self._idle_ns += told_ns
            self._known_until_ns = self._idle_since_ns + told_ns
        self._idle_since_ns = None

    def add_event(self, event: RequestEvent, num_live: int) -> None:
        """Follow a request's event; `num_live` requests are in the engine after it."""
        match event:
            case Arrived(_, time_ns):
                if self._begin_ns is None:
                    self._begin_ns = time_ns
                if self._idle_since_ns is not None:
                    self._idle_ns += max(0, time_ns - self._idle_since_ns)
                    self._idle_since_ns = None
            case Left(_, time_ns) if not num_live and not self._has_lost:
                self._idle_since_ns = time_ns

    def add_steps(self, steps: Steps, shared_s: float, previous_end_ns: int) -> None:
        """Add consecutive steps.

        Args:
            steps: The steps, at least one.
            shared_s: Seconds of them that known requests share.
            previous_end_ns: End of the step before the first.
        """
        begin_ns, end_ns = int(steps.begin_ns[0]), int(steps.end_ns[-1])
        if self._begin_ns is None:
            self._begin_ns = begin_ns
        if self._has_lost:
            known_ns = max(previous_end_ns, self._begin_ns, self._known_until_ns)
            self._unrecorded_ns += max(0, begin_ns - known_ns)
            self._has_lost = False
        steps_ns = int((steps.end_ns - steps.begin_ns).sum())
        self._steps_ns += steps_ns
        self._shared_s += shared_s
        # By batch: the difference of two long sums would fall by rounding.
        self._other_s += max(0.0, steps_ns / 1e9 - shared_s)
        if self._idle_since_ns is not None:
            # The last request may have been aborted during a step.
            self._idle_since_ns = max(self._idle_since_ns, end_ns)
        known_ns = self._steps_ns + self._idle_ns + self._unrecorded_ns
        self._between_ns = max(self._between_ns, end_ns - self._begin_ns - known_ns)

    def read(self, now_ns: int) -> AccountedTime:
        """Return the time up to the last step, and idle time after it up to shortly before now.

        No kind is ever less than in an earlier call: a counter that falls counts as restarted. Idle
        time that turns out to belong to a long step is not taken back, but made up for by later
        idle time.
        """
        idle_ns = self._idle_ns
        if self._idle_since_ns is not None:
            idle_ns += max(0, now_ns - _SETTLED_NS - self._idle_since_ns)
        self._idle_told_ns = max(self._idle_told_ns, idle_ns)
        return AccountedTime(
            requests_s=self._shared_s,
            other_s=self._other_s,
            between_s=self._between_ns / 1e9,
            idle_s=self._idle_told_ns / 1e9,
            unrecorded_s=self._unrecorded_ns / 1e9,
        )
