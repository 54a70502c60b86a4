"""Prometheus collectors of the server's own `/metrics`: they read their figures when scraped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

# The value of one label, or of each.
Labels = TypeVar("Labels", bound=str | tuple[str, ...])


class ScrapedMetrics(Collector):
    """A collector whose metrics begin with one prefix; subclasses yield them in `collect`.

    Args:
        prefix: Such as `evenkeel_cache_`.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registering does not collect."""
        return iter(())

    def counter(self, name: str, text: str, value: float) -> Metric:
        """Return a counter without labels."""
        return CounterMetricFamily(f"{self._prefix}{name}", text, value)

    def gauge(self, name: str, text: str, value: float) -> Metric:
        """Return a gauge without labels."""
        return GaugeMetricFamily(f"{self._prefix}{name}", text, value)

    def counters(
        self, name: str, text: str, labels: str | Sequence[str], values: Mapping[Labels, float]
    ) -> Metric:
        """Return a counter for each value; the keys are the values of the labels."""
        names = [labels] if isinstance(labels, str) else list(labels)
        return _fill(CounterMetricFamily(f"{self._prefix}{name}", text, labels=names), values)

    def gauges(
        self, name: str, text: str, labels: str | Sequence[str], values: Mapping[Labels, float]
    ) -> Metric:
        """Return a gauge for each value; the keys are the values of the labels."""
        names = [labels] if isinstance(labels, str) else list(labels)
        return _fill(GaugeMetricFamily(f"{self._prefix}{name}", text, labels=names), values)


def _fill(
    family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[Labels, float]
) -> Metric:
    for key, value in sorted(values.items()):
        family.add_metric([key] if isinstance(key, str) else list(key), value)
    return family
