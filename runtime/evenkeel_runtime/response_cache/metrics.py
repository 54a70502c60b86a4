"""Response cache metrics on the server's `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from evenkeel_runtime.metrics.scraped import ScrapedMetrics
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.hit_class import SAME_WORDS
from evenkeel_runtime.response_cache.near_hit_rule import find_status


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
        yield self.counters(
            "near_hits_unused",
            "Near hits neither served nor verified, by the verdict on them",
            "verdict",
            counts.unused,
        )
        if counts.recall_ratio is not None:
            yield self.gauge(
                "recall_ratio",
                "Share of the equivalent answers found in the cache that were served or verified",
                counts.recall_ratio,
            )
        yield self.counter("stored", "Answers stored", counts.stored)
        yield self.counter("deleted", "Entries deleted", counts.deleted)
        reloads = {"applied": 0, "rejected": 0} | dict(counts.reloads)
        yield self.counters("file_reloads", "Changes of the cache's file", "outcome", reloads)
        yield self.gauge("enabled", "Whether the cache's file enables it", cache.policy.enabled)
        yield self.gauge("indexed", "Questions that can be compared", len(cache.index))
        yield from self._collect_control()
        yield from self._collect_classes()

    def _collect_control(self) -> Iterator[Metric]:
        controls = self._cache.controls
        # What is served, and what is served first.
        current = {
            (route, kind): control.served.get(kind) or min(items, key=lambda item: item.bound)
            for route, control in controls.items()
            for kind, items in control.evidence.items()
            if kind in control.served or (kind == SAME_WORDS and items[0].seen)
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
            "Upper bound on the number of wrong near hits served since the last reset",
            "route",
            {route: hits.bound for route, hits in wrong_hits.items()},
        )
        yield self.gauges(
            "wrong_hits_found",
            "Wrong near hits served since the last reset and found by replays; a replay that "
            "failed counts as one",
            "route",
            {route: hits.num_detected for route, hits in wrong_hits.items()},
        )
        yield self.gauges(
            "replay_ratio",
            "Share of served near hits that the model also answers",
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

    def _collect_classes(self) -> Iterator[Metric]:
        """Yield the evidence of each class that has any: up to 67 per route."""
        found = {
            (route, item.kind, f"{item.similarity:g}", f"{item.lead:g}"): (control, item)
            for route, control in self._cache.controls.items()
            for item in control.classes
            if item.seen
        }
        labels = ("route", "kind", "cosine", "lead")
        yield self.gauges(
            "class_verdicts",
            "Verdicts on the near hits of a class, labelled ones included",
            labels,
            {key: item.seen for key, (_, item) in found.items()},
        )
        yield self.gauges(
            "class_labelled_verdicts",
            "Of these verdicts, those from labelled pairs",
            labels,
            {key: item.labelled for key, (_, item) in found.items()},
        )
        yield self.gauges(
            "class_wrong_verdicts",
            "Of these verdicts, those in which the model's answer differed",
            labels,
            {key: item.wrong for key, (_, item) in found.items()},
        )
        yield self.gauges(
            "class_bound",
            "Upper bound on the rate of wrong near hits of a class",
            labels,
            {key: item.bound for key, (_, item) in found.items()},
        )
        yield self.gauges(
            "class_status",
            "1 for what happens to the near hits of a class: served, learning or verified",
            (*labels, "status"),
            {(*key, find_status(*pair).value): 1.0 for key, pair in found.items()},
        )
