"""Prompt compression metrics on the server's `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from evenkeel_runtime.compression.compressor import CompressionCounts
from evenkeel_runtime.metrics.scraped import ScrapedMetrics


class CompressionMetrics(ScrapedMetrics):
    """The metrics of docs/guide/compression.md."""

    def __init__(self, counts: CompressionCounts) -> None:
        super().__init__("evenkeel_compression_")
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """Return the compressor's counters."""
        verdicts, saved = self._counts.verdicts, self._counts.saved_tokens
        yield self.counters("requests", "Long histories by verdict", "verdict", verdicts)
        yield self.counter("saved_tokens", "Tokens of histories that were not sent", saved)
