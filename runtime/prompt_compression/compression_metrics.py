"""Shows on the server's own `/metrics` what prompt compression did."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.prompt_compression.compressor import CompressionCounts


class CompressionMetrics(Collector):
    """A Prometheus collector over the compressor's counts."""

    def __init__(self, counts: CompressionCounts) -> None:
        self._counts = counts

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of docs/compression.md."""
        requests = CounterMetricFamily(
            "evenkeel_compression_requests", "Long histories by verdict", labels=["verdict"]
        )
        for verdict, count in sorted(self._counts.verdicts.items()):
            requests.add_metric([verdict], count)
        yield requests
        yield CounterMetricFamily(
            "evenkeel_compression_saved_tokens",
            "Tokens of histories that were not sent",
            self._counts.saved_tokens,
        )
