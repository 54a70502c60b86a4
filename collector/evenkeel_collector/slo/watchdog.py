"""Watches from another thread whether evaluation cycles still complete."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.matchers import silence_command
from evenkeel.slo.receiver import Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.state import Condition, Delays

logger = logging.getLogger(__name__)

ALERT_NAME = "SloEvaluationStalled"
# Names in a file have no colon, so no SLO or rule has this name.
STALLED = "evenkeel:evaluation"
NUM_INTERVALS = 3
# Demo intervals are shorter than the pauses of a busy machine.
_LEAST_S = 10.0
# Reading whole periods takes half a minute for 20 M requests, two minutes on a busy machine.
_LONG_READ_S = 300.0
_POLL_S = 1.0


class Heartbeat:
    """When the last cycle completed; thread-safe.

    Args:
        find_interval_s: Returns the current cycle interval in seconds.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, find_interval_s: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._find_interval_s = find_interval_s
        self._clock = clock
        self._last_s = clock()
        self._has_finished = False
        self._long_since_s: float | None = None

    def beat(self) -> None:
        """Record that a cycle completed."""
        self._last_s, self._has_finished = self._clock(), True

    @contextmanager
    def long_read(self) -> Iterator[None]:
        """Allow extra time for reading whole periods, which counts as progress if it succeeds."""
        self._long_since_s = self._clock()
        try:
            yield
            self._last_s = self._clock()
        finally:
            self._long_since_s = None

    def why_not(self) -> str | None:
        """Return why the evaluation is considered stalled, or None if it is not."""
        now_s, long_since_s = self._clock(), self._long_since_s
        if long_since_s is not None and now_s - long_since_s < _LONG_READ_S:
            return None
        silent_s = now_s - self._last_s
        if silent_s < self.limit_s():
            return None
        return f"no slo evaluation cycle completed for {silent_s:.0f} s"

    def limit_s(self) -> float:
        """Return how long a cycle may take, and how long an alert outlives the stall."""
        return max(NUM_INTERVALS * self._find_interval_s(), _LEAST_S)

    def is_stalled(self) -> bool | None:
        """Return whether the evaluation is stalled; None if only the next cycle can tell."""
        if self.why_not() is not None:
            return True
        is_recent = self._clock() - self._last_s < self.limit_s()
        return False if self._has_finished and is_recent else None


def watch(
    heartbeat: Heartbeat,
    book_path: Path,
    find_receivers: Callable[[], Sequence[Receiver]],
    dashboard_url: str | None,
    stop: threading.Event,
    has_file: bool,
) -> None:
    """Raise an alert while the evaluation is stalled, until stopped.

    It has its own database connection and does not read the store, so nothing that blocks the
    evaluation can block it.
    """
    while not stop.is_set():
        try:
            book = AlertBook(book_path)
            try:
                engine = AlertEngine(
                    book, dashboard_url, owns=lambda slo: slo == STALLED, has_file=has_file
                )
                while not stop.wait(_POLL_S):
                    look(engine, heartbeat, find_receivers(), time.time_ns())
            finally:
                book.close()
        except Exception:
            # For example on a full disk; /readyz reports the stall anyway.
            logger.exception("cannot watch the slo evaluation, retrying")
            stop.wait(5.0)


def look(
    engine: AlertEngine, heartbeat: Heartbeat, receivers: Sequence[Receiver], now_ns: int
) -> None:
    """Update the alert once."""
    key = (STALLED, Severity.PAGE.value)
    holds = heartbeat.is_stalled()
    if not holds and key not in engine.alerts:
        return
    labels = {"alertname": ALERT_NAME, "slo": STALLED, "severity": Severity.PAGE.value}
    reason = heartbeat.why_not() or ""
    # Cycles that always take a little too long are one alert, not one each.
    delays = Delays(keep_firing_ns=int(heartbeat.limit_s() * 1e9))
    condition = Condition(*key, holds, delays, labels, {}, lambda: _describe(reason))
    engine.observe([condition], receivers, now_ns)
    engine.repeat(receivers, now_ns)


def _describe(reason: str) -> dict[str, str]:
    return {
        "summary": "SLOs are not evaluated",
        "description": (
            f"{reason[:1].upper()}{reason[1:]}: the store does not answer, or the evaluation "
            "hangs. SLO alerts are paused until it recovers; see the collector's log."
        ),
        "silence": silence_command(STALLED),
    }
