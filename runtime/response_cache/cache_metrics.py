"""Shows on the server's own `/metrics` what the cache did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.response_cache.cache import ResponseCache

_PREFIX = "evenkeel_cache_"


class CacheMetrics(Collector):
    """A Prometheus collector over the cache's counts; it reads them only when scraped."""

    def __init__(self, cache: ResponseCache) -> None:
        self._cache = cache

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of docs/cache.md."""
        counts = self._cache.counts
        yield _by("requests", "Requests by what the cache did", "outcome", counts.outcomes)
        yield _by("bypasses", "Requests that are none for the cache", "reason", counts.bypasses)
        yield _by("guard_refusals", "Near hits that a guard refused", "guard", counts.refused)
        yield _by("embeddings", "Questions to compare, by outcome", "outcome", counts.embeddings)
        yield _by("not_kept", "Answers that were not stored", "reason", counts.not_kept)
        errors = {"backend": 0, "corrupt_entry": 0, "internal": 0} | dict(counts.errors)
        yield _by("errors", "Failures of the cache; the model answered", "kind", errors)
        yield _by("replays", "Second looks at served answers", "outcome", counts.replays)
        yield _by("changes", "Changes of what is served", "reason", counts.changes)
        yield _by("saved_tokens", "Output tokens not made", "layer", counts.saved_tokens)
        yield _by("saved_seconds", "Seconds of generation spared", "layer", counts.saved_s)
        yield CounterMetricFamily(
            f"{_PREFIX}lookup_seconds", "Seconds of looking, embeddings included", counts.lookup_s
        )
        verdicts = CounterMetricFamily(
            f"{_PREFIX}verdicts",
            "Comparisons with the model's own answer",
            labels=["layer", "verdict"],
        )
        for (layer, verdict), count in sorted(counts.verdicts.items()):
            verdicts.add_metric([layer, verdict], count)
        yield verdicts
        yield CounterMetricFamily(f"{_PREFIX}stored", "Answers stored", counts.stored)
        yield CounterMetricFamily(f"{_PREFIX}deleted", "Entries deleted", counts.deleted)
        yield GaugeMetricFamily(
            f"{_PREFIX}indexed", "Questions that can be compared", len(self._cache.index)
        )
        yield from self._collect_control()

    def _collect_control(self) -> Iterator[Metric]:
        bound = GaugeMetricFamily(
            f"{_PREFIX}wrong_hit_bound",
            "What the rate of wrong near hits does not exceed",
            labels=["route", "similarity"],
        )
        threshold = GaugeMetricFamily(
            f"{_PREFIX}serve_threshold",
            "Cosine from which on near hits are served; absent while they are not",
            labels=["route"],
        )
        limit = GaugeMetricFamily(
            f"{_PREFIX}wrong_hit_limit", "Declared limit of that rate", labels=["route"]
        )
        for route, control in sorted(self._cache.controls.items()):
            limit.add_metric([route], control.limit)
            for rung in control.rungs:
                bound.add_metric([route, f"{rung.similarity:g}"], rung.bound)
            if control.threshold is not None:
                threshold.add_metric([route], control.threshold)
        yield from (bound, threshold, limit)


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}{name}", text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family
