"""Requests in the engine, and those that have stalled, on the server's `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evenkeel_runtime.wire.in_flight import IN_FLIGHT_GAUGES, InFlight, gauge_values


class InFlightMetrics(Collector):
    """A Prometheus collector that reads the running requests on each scrape.

    Args:
        read: Returns the requests in the engine.
    """

    def __init__(self, read: Callable[[], InFlight]) -> None:
        self._read = read

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the gauges of docs/metrics.md."""
        reading = self._read()
        for gauge in IN_FLIGHT_GAUGES:
            family = GaugeMetricFamily(gauge.name, gauge.meaning, labels=gauge.labels)
            for labels, value in gauge_values(gauge, reading):
                family.add_metric([labels[name] for name in gauge.labels], value)
            yield family
