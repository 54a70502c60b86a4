"""Telemetry delivery metrics on the server's `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from evenkeel_runtime.metrics.scraped import ScrapedMetrics
from evenkeel_runtime.request.recorder import RecorderCounts


class TelemetryMetrics(ScrapedMetrics):
    """The metrics of docs/guide/runtime.md."""

    def __init__(self, read_counts: Callable[[], RecorderCounts]) -> None:
        super().__init__("evenkeel_runtime_")
        self._read_counts = read_counts

    def collect(self) -> Iterator[Metric]:
        """Return the counters of the recorder and its exporter."""
        counts = self._read_counts()
        yield self.counters("requests", "Requests recorded", "status", counts.requests_by_status)
        yield self.gauge("spans_queued", "Spans queued for the collector", counts.spans_queued)
        yield self.counter(
            "spans_exported", "Spans accepted by the collector", counts.spans_exported
        )
        dropped = {"queue_full": 0, "refused": 0, "exporter_lost": 0}
        yield self.counters(
            "spans_dropped",
            "Spans lost: queue full, rejected by the collector, or lost with the exporter process",
            "reason",
            dropped | counts.spans_dropped_by_reason,
        )
        yield self.counter("export_errors", "Failed attempts to send a batch", counts.export_errors)
        yield self.counters(
            "malformed_headers",
            "Unreadable caller headers that were ignored",
            "header",
            counts.malformed_headers,
        )
        yield self.counter(
            "internal_errors", "Errors in the telemetry itself", counts.internal_errors
        )
        yield self.counter(
            "exporter_restarts", "Exporter process restarts", counts.exporter_restarts
        )
