"""Watches the requests in the engine for stalls, while they last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from time import monotonic_ns
from typing import TYPE_CHECKING

from evenkeel_runtime.wire.in_flight import (
    FIRST_TOKEN,
    NEXT_TOKEN,
    InFlight,
    ModelInFlight,
    SharedInFlight,
)
from evenkeel_runtime.wire.observation import REPLAY

if TYPE_CHECKING:
    from evenkeel_runtime.request.trace import EngineRun, EngineTimes

_READ_INTERVAL_S = 1.0
# A slow model's tokens are far apart: a stall is also this many of the request's own mean gaps.
_GAPS = 10
# Adapters are named by clients' requests.
_MAX_MODELS = 64
OTHER_MODELS = "other"


class InFlightWatch:
    """Reads the running requests about once per second, in a thread of its own.

    It does so even while the server's event loop is blocked.

    Args:
        memory: Where the exporter finds the readings.
        find_runs: Returns the running requests; called in the thread.
        find_times: Returns the engine's times by sequence, of each running request with an id.
        stall_after_s: How long without a token is a stall.
        record_error: Records an error of the watch itself.
    """

    def __init__(
        self,
        memory: SharedInFlight,
        find_runs: Callable[[], Iterable[EngineRun]],
        find_times: Callable[[str], list[list[EngineTimes]]],
        stall_after_s: float,
        record_error: Callable[[Exception], None],
    ) -> None:
        self._memory = memory
        self._find_runs = find_runs
        self._find_times = find_times
        self._limit_ns = round(stall_after_s * 1e9)
        self._record_error = record_error
        self._models: set[str] = set()
        # Scrapes read as well, in another thread.
        self._lock = threading.Lock()
        self._should_stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="evenkeel-in-flight", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._should_stop.set()
        if self._thread.is_alive():
            self._thread.join(_READ_INTERVAL_S)

    def _watch(self) -> None:
        while not self._should_stop.wait(_READ_INTERVAL_S):
            try:
                reading = self.read()
                if reading.models:
                    self._memory.write(reading)
            except Exception as error:
                self._record_error(error)

    def read(self, now_ns: int | None = None) -> InFlight:
        """Return the requests in the engine now."""
        now_ns = monotonic_ns() if now_ns is None else now_ns
        with self._lock:
            found = {model: ModelInFlight() for model in self._models}
            for run in self._find_runs():
                # A replay that waits until the engine is idle has not stalled.
                is_replay = run.response_cache == REPLAY
                if run.end_ns is None and not run.is_at_gate and not is_replay:
                    of_model = found.setdefault(self._name(run.model), ModelInFlight())
                    self._add(of_model, run, now_ns)
        return InFlight(now_ns, found)

    def _name(self, model: str) -> str:
        if model not in self._models and len(self._models) >= _MAX_MODELS:
            return OTHER_MODELS
        self._models.add(model)
        return model

    def _add(self, of_model: ModelInFlight, run: EngineRun, now_ns: int) -> None:
        times, num_gaps = run.emission_ns, max(0, len(run.emission_ns) - 1)
        first_ns, last_ns = (times[0], times[-1]) if times else (None, None)
        since_ns = last_ns or run.submitted_ns or now_ns
        if now_ns - since_ns > self._limit_ns:
            # The engine's own times: a client that does not read delays only ours, and an answer
            # that is not streamed has no others.
            # Clients choose ids: of several requests with one, the slowest may be this one.
            found = self._find_times(run.request_id)
            for seen in min(found, key=_last_token_s, default=()):
                if seen.last_token_ts > 0:
                    first_ns, last_ns = (
                        int(seen.first_token_ts * 1e9),
                        int(seen.last_token_ts * 1e9),
                    )
                    since_ns = max(since_ns, min(last_ns, now_ns))
                    num_gaps = max(num_gaps, seen.num_generation_tokens - 1)
        waits_for = FIRST_TOKEN if last_ns is None else NEXT_TOKEN
        waited_ns = max(0, now_ns - since_ns)
        limit_ns = self._limit_ns
        if first_ns is not None and last_ns is not None and num_gaps:
            limit_ns = max(limit_ns, _GAPS * (last_ns - first_ns) // num_gaps)
        of_model.num_running += 1
        of_model.num_stalled[waits_for] += waited_ns > limit_ns
        of_model.longest_s[waits_for] = max(of_model.longest_s[waits_for], waited_ns / 1e9)


def _last_token_s(times: list[EngineTimes]) -> float:
    return max(each.last_token_ts for each in times)
