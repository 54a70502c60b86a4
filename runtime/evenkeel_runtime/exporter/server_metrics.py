"""Counts finished requests for OpenTelemetry's GenAI server metrics."""

from __future__ import annotations

from evenkeel.conventions import (
    OTHER,
    SERVER_DURATION,
    SERVER_METRIC_BOUNDS_S,
    SERVER_TIME_PER_OUTPUT_TOKEN,
    SERVER_TIME_TO_FIRST_TOKEN,
)
from evenkeel.spans import Status
from evenkeel_runtime.wire.observation import Observation
from evenkeel_runtime.wire.snapshot import ServerHistogram

# A client chooses the model's name in a refused request: no more series than this per metric, and
# no longer names; all others are counted under OTHER.
MAX_SERIES = 32
MAX_NAME = 100

_Key = tuple[str, str, str, str]


class ServerMetrics:
    """The histograms, each by operation, model and error type."""

    def __init__(self) -> None:
        self._by_key: dict[_Key, ServerHistogram] = {}
        self._num_series = dict.fromkeys(SERVER_METRIC_BOUNDS_S, 0)

    def add(self, seen: Observation) -> None:
        """Count one complete request."""
        self._count(SERVER_DURATION, seen, seen.e2e_s, _error_type(seen))
        if seen.status is Status.OK:
            self._count(SERVER_TIME_TO_FIRST_TOKEN, seen, seen.ttft_s)
            self._count(SERVER_TIME_PER_OUTPUT_TOKEN, seen, seen.tpot_s)

    def read(self) -> list[ServerHistogram]:
        """Return the histograms; they go on being counted in."""
        return list(self._by_key.values())

    def _count(
        self, metric: str, seen: Observation, value: float | None, error_type: str = ""
    ) -> None:
        if value is None:
            return
        key = metric, seen.operation, _short(seen.model), _short(error_type)
        found = self._by_key.get(key)
        if found is None:
            if self._num_series[metric] >= MAX_SERIES:
                key = metric, OTHER, OTHER, OTHER if error_type else ""
            found = self._by_key.get(key)
        if found is None:
            self._num_series[metric] += 1
            found = self._by_key[key] = ServerHistogram(*key)
        found.add(value)


def _error_type(seen: Observation) -> str:
    """Return why a request failed; "" if it did not.

    A client that leaves is no failure of the server, but no successful request either.
    """
    if seen.status is Status.OK:
        return ""
    return seen.status.value if seen.status is Status.ABORTED else seen.error_type or OTHER


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else OTHER
