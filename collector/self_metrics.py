"""What the collector counts about itself, shown on `/metrics`."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from collector.write_ahead_log import WriteAheadLog

INSERT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
QUERY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
ACKNOWLEDGE_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class SelfMetrics:
    """The counters of one collector, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.spans_accepted = Counter(
            "evenkeel_collector_spans_accepted_total",
            "Spans acknowledged: they are in the log.",
            ["transport"],
            registry=self.registry,
        )
        self.points_accepted = Counter(
            "evenkeel_collector_points_accepted_total",
            "Metric points acknowledged: they are in the log.",
            ["transport"],
            registry=self.registry,
        )
        self.redactions = Counter(
            "evenkeel_collector_redactions_total",
            "Replacements and removals in trace requests.",
            ["rule"],
            registry=self.registry,
        )
        self.details_sampled = Counter(
            "evenkeel_collector_details_sampled_total",
            "Requests whose detail was sampled, by why it was kept or dropped.",
            ["reason"],
            registry=self.registry,
        )
        self.scrapes = Counter(
            "evenkeel_collector_scrapes_total",
            "Prometheus endpoints read.",
            ["target", "result"],
            registry=self.registry,
        )
        self.requests_rejected = Counter(
            "evenkeel_collector_requests_rejected_total",
            "Export requests that were not acknowledged.",
            ["transport", "reason"],
            registry=self.registry,
        )
        self.acknowledge_seconds = Histogram(
            "evenkeel_collector_acknowledge_seconds",
            "From the whole body of a request to its record being on disk.",
            buckets=ACKNOWLEDGE_BUCKETS_S,
            registry=self.registry,
        )
        self.insert_seconds = Histogram(
            "evenkeel_collector_insert_seconds",
            "Time to insert one log segment into the store, views included.",
            buckets=INSERT_BUCKETS_S,
            registry=self.registry,
        )
        self.segments_stored = Counter(
            "evenkeel_collector_segments_stored_total",
            "Log segments that the store has.",
            registry=self.registry,
        )
        self.insert_failures = Counter(
            "evenkeel_collector_insert_failures_total",
            "Inserts that failed and were tried again, or set aside.",
            registry=self.registry,
        )
        self.segments_quarantined = Counter(
            "evenkeel_collector_segments_quarantined_total",
            "Pieces of log segments that the store refused: kept in log/quarantine, not queryable.",
            registry=self.registry,
        )
        self.torn_bytes = Counter(
            "evenkeel_collector_torn_bytes_total",
            "Bytes cut from the end of log segments after a crash: never acknowledged.",
            registry=self.registry,
        )
        self.query_seconds = Histogram(
            "evenkeel_collector_query_seconds",
            "Time to answer a query on the query port, waiting included.",
            buckets=QUERY_BUCKETS_S,
            registry=self.registry,
        )
        self.queries_cancelled = Counter(
            "evenkeel_collector_queries_cancelled_total",
            "Queries ended because their client had left.",
            registry=self.registry,
        )
        self.access_files_rejected = Counter(
            "evenkeel_collector_access_files_rejected_total",
            "Versions of the access file that were wrong, and not put in force.",
            registry=self.registry,
        )
        self.queries_refused = Counter(
            "evenkeel_collector_queries_refused_total",
            "Queries refused because they could write, leave the store, or lift a limit.",
            registry=self.registry,
        )

    def watch_log(self, log: WriteAheadLog) -> None:
        """Show the log's size and age, read when `/metrics` is asked for."""
        Gauge(
            "evenkeel_collector_log_bytes",
            "Bytes in the log that the store does not have yet.",
            registry=self.registry,
        ).set_function(log.num_bytes)
        Gauge(
            "evenkeel_collector_oldest_unstored_seconds",
            "Age of the oldest segment that the store does not have yet; 0 when it has all.",
            registry=self.registry,
        ).set_function(lambda: _age_s(log.oldest_ns()))
        self.torn_bytes.inc(log.num_torn_bytes)


def _age_s(since_ns: int | None) -> float:
    return 0.0 if since_ns is None else max(0.0, (time.time_ns() - since_ns) / 1e9)
