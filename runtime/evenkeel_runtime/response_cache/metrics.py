"""Response cache metrics on the server's `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from evenkeel_runtime.metrics.scraped import ScrapedMetrics
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.hit_class import KNOWN_WORDS


class CacheMetrics(ScrapedMetrics):
    """The metrics of docs/guide/cache.md."""

    def __init__(self, cache: ResponseCache) -> None:
        super().__init__("evenkeel_cache_")
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        """Return the cache's counters and the state of its serve control."""
        cache, counts = self._cache, self._cache.counts
        yield self.counters("requests", "Requests by cache outcome", "outcome", counts.outcomes)
        yield self.counters(
            "bypasses", "Requests that bypassed the cache, by reason", "reason", counts.bypasses
        )
        yield self.counters(
            "guard_refusals", "Near hits rejected by a guard", "guard", counts.refused
        )
        yield self.counters(
            "embeddings", "Questions to compare, by outcome", "outcome", counts.embeddings
        )
        yield self.counters("not_kept", "Answers that were not stored", "reason", counts.not_kept)
        errors = {"backend": 0, "corrupt_entry": 0, "internal": 0} | dict(counts.errors)
        yield self.counters("errors", "Cache failures; the model answered instead", "kind", errors)
        yield self.counters("replays", "Replays of served answers", "outcome", counts.replays)
        yield self.counters("changes", "Changes to what is served", "reason", counts.changes)
        yield self.counters("saved_tokens", "Output tokens saved", "layer", counts.saved_tokens)
        yield self.counters(
            "saved_seconds", "Generation time saved, in seconds", "layer", counts.saved_s
        )
        yield self.counter(
            "verified_tokens",
            "Tokens of near answers that the model accepted as drafts",
            counts.verified_tokens,
        )
        yield self.counter(
            "lookup_seconds", "Lookup time in seconds, embeddings included", counts.lookup_s
        )
        yield self.counters(
            "verdicts",
            "Comparisons with the model's own answer",
            ("layer", "verdict"),
            counts.verdicts,
        )
        yield self.counter("stored", "Answers stored", counts.stored)
        yield self.counter("deleted", "Entries deleted", counts.deleted)
        reloads = {"applied": 0, "rejected": 0} | dict(counts.reloads)
        yield self.counters("file_reloads", "Changes of the cache's file", "outcome", reloads)
        yield self.gauge("enabled", "Whether the cache's file enables it", cache.policy.enabled)
        yield self.gauge("indexed", "Questions that can be compared", len(cache.index))
        yield from self._collect_control()

    def _collect_control(self) -> Iterator[Metric]:
        controls = self._cache.controls
        # What is served, and what is served first: all classes would be 60 series per route.
        current = {
            (route, kind): control.served.get(kind) or min(items, key=lambda item: item.bound)
            for route, control in controls.items()
            for kind, items in control.evidence.items()
            if kind in control.served or (kind == KNOWN_WORDS and items[0].seen)
        }
        yield self.gauges(
            "wrong_hit_bound",
            "Upper bound on the rate of wrong near hits, by kind",
            ("route", "kind"),
            {labels: item.bound for labels, item in current.items()},
        )
        yield self.gauges(
            "served_kinds",
            "Whether near hits of a kind are served",
            ("route", "kind"),
            {labels: float(item.is_served) for labels, item in current.items()},
        )
        wrong_hits = {route: control.wrong_hits for route, control in controls.items()}
        yield self.gauges(
            "wrong_hits_bound",
            "Upper bound on the wrong ones of the near hits served since the last reset",
            "route",
            {route: hits.bound for route, hits in wrong_hits.items()},
        )
        yield self.gauges(
            "replay_ratio",
            "Share of served near hits that the model answers as well",
            "route",
            {route: hits.replay_ratio for route, hits in wrong_hits.items()},
        )
        yield self.gauges(
            "serve_threshold",
            "Minimum cosine at which near hits are served; absent while none are",
            "route",
            {
                route: control.threshold
                for route, control in controls.items()
                if control.threshold is not None
            },
        )
        limits = {route: control.limit for route, control in controls.items()}
        yield self.gauges("wrong_hit_limit", "Declared limit of that rate", "route", limits)
