"""The collector's own metrics, served on `/metrics`."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from evenkeel_collector.log.quarantine import DAMAGED_SUFFIX, SEALED_SUFFIX, list_quarantined
from evenkeel_collector.log.write_ahead_log import WriteAheadLog

INSERT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
QUERY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
ACKNOWLEDGE_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class SelfMetrics:
    """The counters of one collector, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._count_intake()
        self._count_ports()
        self._count_storing()

    def _count_intake(self) -> None:
        """Declare the metrics of what senders sent."""
        self.spans_accepted = Counter(
            "evenkeel_collector_spans_accepted_total",
            "Spans acknowledged, that is, written to the log.",
            ["transport"],
            registry=self.registry,
        )
        self.points_accepted = Counter(
            "evenkeel_collector_points_accepted_total",
            "Metric points acknowledged, that is, written to the log.",
            ["transport"],
            registry=self.registry,
        )
        self.records_accepted = Counter(
            "evenkeel_collector_log_records_accepted_total",
            "Log records acknowledged, that is, written to the log.",
            ["transport"],
            registry=self.registry,
        )
        self.bodies_repeated = Counter(
            "evenkeel_collector_repeated_bodies_total",
            "Bodies acknowledged but not stored: the same bytes were accepted minutes before.",
            ["transport"],
            registry=self.registry,
        )
        self.requests_rejected = Counter(
            "evenkeel_collector_requests_rejected_total",
            "Export requests that were not acknowledged.",
            ["transport", "reason"],
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
            "Requests sampled for detail, by the reason for keeping or dropping it.",
            ["reason"],
            registry=self.registry,
        )
        self.scrapes = Counter(
            "evenkeel_collector_scrapes_total",
            "Scrapes of Prometheus endpoints.",
            ["target", "result"],
            registry=self.registry,
        )
        self.acknowledge_seconds = Histogram(
            "evenkeel_collector_acknowledge_seconds",
            "Time from the complete body of a request to its record on disk.",
            buckets=ACKNOWLEDGE_BUCKETS_S,
            registry=self.registry,
        )

    def _count_ports(self) -> None:
        """Declare the metrics of connections, queries and access."""
        self.connections = Gauge(
            "evenkeel_collector_connections",
            "Open connections of a port.",
            ["port"],
            registry=self.registry,
        )
        self.connections_closed = Counter(
            "evenkeel_collector_connections_closed_total",
            "Connections closed for keeping the port waiting (handshake, head, body, reader, "
            "idle), to make room, because the port was full (refused), or for not sending HTTP "
            "(malformed).",
            ["port", "reason"],
            registry=self.registry,
        )
        self.query_seconds = Histogram(
            "evenkeel_collector_query_seconds",
            "Time to answer a query on the query port, including the wait.",
            buckets=QUERY_BUCKETS_S,
            registry=self.registry,
        )
        self.queries_cancelled = Counter(
            "evenkeel_collector_queries_cancelled_total",
            "Queries cancelled because their client disconnected.",
            registry=self.registry,
        )
        self.queries_refused = Counter(
            "evenkeel_collector_queries_refused_total",
            "Queries refused because they could write, read outside the store, or lift a limit.",
            registry=self.registry,
        )
        self.access_files_rejected = Counter(
            "evenkeel_collector_access_files_rejected_total",
            "Invalid versions of the access file, which were not applied.",
            registry=self.registry,
        )
        self.price_files_rejected = Counter(
            "evenkeel_collector_price_files_rejected_total",
            "Invalid versions of the price file, which were not applied.",
            registry=self.registry,
        )

    def _count_storing(self) -> None:
        """Declare the metrics of the log's way into the store."""
        self.insert_seconds = Histogram(
            "evenkeel_collector_insert_seconds",
            "Time to insert one log segment into the store, views included.",
            buckets=INSERT_BUCKETS_S,
            registry=self.registry,
        )
        self.segments_stored = Counter(
            "evenkeel_collector_segments_stored_total",
            "Log segments inserted into the store.",
            registry=self.registry,
        )
        self.insert_failures = Counter(
            "evenkeel_collector_insert_failures_total",
            "Failed inserts that were retried or quarantined.",
            registry=self.registry,
        )
        self.calls_settled = Counter(
            "evenkeel_collector_client_requests_total",
            "Requests that clients trace: counted, views of a call that is counted already, or "
            "withdrawn because the server's record came later.",
            labelnames=["result"],
            registry=self.registry,
        )
        self.segments_quarantined = Counter(
            "evenkeel_collector_segments_quarantined_total",
            "Pieces of log segments that the store refused; kept in log/quarantine, not queryable.",
            registry=self.registry,
        )
        self.torn_bytes = Counter(
            "evenkeel_collector_torn_bytes_total",
            "Bytes truncated from log segments after a crash; they were never acknowledged.",
            registry=self.registry,
        )
        self.segments_damaged = Counter(
            "evenkeel_collector_segments_damaged_total",
            "Log segments that were damaged on disk or unreadable.",
            registry=self.registry,
        )
        self.damaged_bytes = Counter(
            "evenkeel_collector_damaged_bytes_total",
            "Bytes of log segments outside any intact record; kept in log/quarantine.",
            registry=self.registry,
        )

    def num_segments_stored(self) -> float:
        """Return the number of log segments stored since the start."""
        name = "evenkeel_collector_segments_stored_total"
        return self.registry.get_sample_value(name) or 0.0

    def watch_log(self, log: WriteAheadLog) -> None:
        """Export the log's size and age, read on each scrape of `/metrics`."""
        Gauge(
            "evenkeel_collector_log_bytes",
            "Bytes in the log that are not in the store yet.",
            registry=self.registry,
        ).set_function(log.num_bytes)
        Gauge(
            "evenkeel_collector_oldest_unstored_seconds",
            "Age of the oldest segment that is not in the store yet; 0 if all are.",
            registry=self.registry,
        ).set_function(lambda: _age_s(log.oldest_ns()))
        quarantine_files = Gauge(
            "evenkeel_collector_quarantine_files",
            "Files in log/quarantine: pieces that the store refused, and damaged remains.",
            ["kind"],
            registry=self.registry,
        )
        for kind, suffix in (("refused", SEALED_SUFFIX), ("damaged", DAMAGED_SUFFIX)):
            quarantine_files.labels(kind).set_function(
                partial(_num_quarantined, log.folder, suffix)
            )
        self.torn_bytes.inc(log.recovered.num_torn_bytes)
        self.segments_damaged.inc(log.recovered.num_damaged)
        self.damaged_bytes.inc(log.recovered.num_damaged_bytes)


def _num_quarantined(folder: Path, suffix: str) -> float:
    return len(list_quarantined(folder, suffix))


def _age_s(since_ns: int | None) -> float:
    return 0.0 if since_ns is None else max(0.0, (time.time_ns() - since_ns) / 1e9)
