"""Shows on the server's own `/metrics` what became of the telemetry."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.recorder import RecorderCounts

_PREFIX = "evenkeel_runtime_"


class TelemetryMetrics(Collector):
    """A Prometheus collector over the recorder's counts; it reads them only when scraped."""

    def __init__(self, read_counts: Callable[[], RecorderCounts]) -> None:
        self._read_counts = read_counts

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of docs/runtime.md."""
        counts = self._read_counts()
        yield _by_label("requests", "Requests recorded", "status", counts.requests_by_status)
        yield GaugeMetricFamily(
            f"{_PREFIX}spans_queued", "Spans that wait for the collector", counts.spans_queued
        )
        yield _total("spans_exported", "Spans that the collector took", counts.spans_exported)
        dropped = {"queue_full": 0, "refused": 0, "exporter_lost": 0}
        yield _by_label(
            "spans_dropped",
            "Spans lost: queue full, refused by the collector, lost with the exporter process",
            "reason",
            dropped | counts.spans_dropped_by_reason,
        )
        yield _total("export_errors", "Failed attempts to send a batch", counts.export_errors)
        yield _by_label(
            "malformed_headers",
            "Headers of callers that could not be read and were ignored",
            "header",
            counts.malformed_headers,
        )
        yield _total("internal_errors", "Errors of the telemetry itself", counts.internal_errors)
        yield _total(
            "exporter_restarts", "Exporter processes that were replaced", counts.exporter_restarts
        )


def _total(name: str, help_text: str, value: int) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}{name}", help_text, value)


def _by_label(name: str, help_text: str, label: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}{name}", help_text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family
