"""Older names of vLLM's metrics on the server's `/metrics`, for boards that still ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

# vLLM renamed them; the old name has the same values.
ALIASES: Mapping[str, str] = {"vllm:gpu_cache_usage_perc": "vllm:kv_cache_usage_perc"}


class MetricAliases(Collector):
    """A Prometheus collector of vLLM's gauges under their older names, read only on scrape.

    Args:
        registry: Where vLLM registers its gauges.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the aliases of the gauges that exist."""
        for alias, name in ALIASES.items():
            for metric in self._registry.restricted_registry([name]).collect():
                family = GaugeMetricFamily(alias, f"Older name of {name}")
                for sample in metric.samples:
                    if sample.name == name:
                        family.add_sample(alias, sample.labels, sample.value)
                yield family
