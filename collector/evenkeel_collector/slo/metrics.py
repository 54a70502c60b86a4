"""Metrics of SLO evaluation and alert delivery, shown on `/metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Summary

from evenkeel.slo.burn_rates import Counts
from evenkeel.slo.model import Slo
from evenkeel.slo.series import SloStatus

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class SloMetrics:
    """The counters of one collector; safe to use from several threads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.evaluation_s = Summary(
            "evenkeel_slo_evaluation_seconds",
            "Duration of one evaluation of all SLOs.",
            registry=registry,
        )
        self.failures = Counter(
            "evenkeel_slo_evaluation_failures",
            "SLO evaluations that failed: requests not readable, alert or verdict not written.",
            registry=registry,
        )
        self.rejected_files = Counter(
            "evenkeel_slo_file_rejections",
            "Changed SLO files that were invalid; the previous one stayed in force.",
            registry=registry,
        )
        self.deliveries = Counter(
            "evenkeel_alert_deliveries",
            "Delivery attempts by result: delivered, failed (retried), dead, withdrawn, error.",
            ["outcome"],
            registry=registry,
        )
        self._sli = Gauge(
            "evenkeel_slo_sli_ratio",
            "Ratio of good to valid requests over the period; absent without data.",
            ["slo"],
            registry=registry,
        )
        self._budget_left = Gauge(
            "evenkeel_slo_budget_left_ratio",
            "Error budget left in the period; absent without data.",
            ["slo"],
            registry=registry,
        )

        self._events = Counter(
            "evenkeel_slo_events",
            "Valid events of an SLO since the collector began tracking it, weighted.",
            ["slo"],
            registry=registry,
        )
        self._bad_events = Counter(
            "evenkeel_slo_bad_events",
            "Bad events of an SLO since the collector began tracking it, weighted.",
            ["slo"],
            registry=registry,
        )
        self._cohorts = Gauge(
            "evenkeel_anomaly_cohorts",
            "Cohorts whose requests are compared with their own past.",
            registry=registry,
        )
        self._shown: dict[str, Counts] = {}
        self._groups_left_out = Gauge(
            "evenkeel_slo_groups_left_out",
            "Groups of a grouped SLO that are not evaluated because there are more than maxGroups.",
            ["slo"],
            registry=registry,
        )

    def show_cohorts(self, num: int) -> None:
        """Set the number of cohorts that are compared with their past."""
        self._cohorts.set(num)

    def show_groups_left_out(self, left_out: Mapping[str, int]) -> None:
        """Set the number of groups per definition that are not evaluated."""
        self._groups_left_out.clear()
        for name, num in left_out.items():
            self._groups_left_out.labels(name).set(num)

    def show_events(self, counted: Mapping[str, Counts], slos: Iterable[Slo]) -> None:
        """Advance the counters to the newest counts, also after an SLO's tracking restarted.

        Series of SLOs no longer in `slos` are removed.
        """
        for name in self._shown.keys() - {slo.name for slo in slos}:
            self._events.remove(name)
            self._bad_events.remove(name)
            del self._shown[name]
        for name, counts in counted.items():
            before = self._shown.get(name, Counts(0.0, 0.0))
            if counts.total < before.total or counts.bad < before.bad:
                before = Counts(0.0, 0.0)
            self._events.labels(name).inc(counts.total - before.total)
            self._bad_events.labels(name).inc(counts.bad - before.bad)
            self._shown[name] = counts

    def show(self, verdicts: Mapping[str, SloStatus]) -> None:
        """Set the gauges to the newest verdicts; an SLO without data has no gauge (not 0)."""
        self._sli.clear()
        self._budget_left.clear()
        for name, verdict in verdicts.items():
            if verdict.sli is not None and verdict.budget_left_ratio is not None:
                self._sli.labels(name).set(verdict.sli)
                self._budget_left.labels(name).set(verdict.budget_left_ratio)
