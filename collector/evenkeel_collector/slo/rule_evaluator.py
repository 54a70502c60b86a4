"""Evaluates the rules of a file: reads their measurements and returns alert conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from evenkeel.durations import format_duration
from evenkeel.engines.engine_map import MetricSource
from evenkeel.engines.metric_query import equivalents
from evenkeel.errors import StoreError, first_line
from evenkeel.slo.groups import GROUP_LABEL, LONGEST_VALUE, is_odd
from evenkeel.slo.matchers import silence_command
from evenkeel.slo.model import DURATIONS, SELECTOR_COLUMNS, Indicator, Metric, Slo
from evenkeel.slo.query import MAX_REQUEST_NS
from evenkeel.slo.rules import (
    CACHE_MEASURES,
    Anomaly,
    Gauge,
    GaugeSource,
    Rule,
    RuleResult,
    Threshold,
    judge_rule,
    judge_series,
)
from evenkeel.slo.spikes import Spike
from evenkeel_collector.alerts.state import Condition
from evenkeel_collector.slo.evidence import collect, gather, window_link
from evenkeel_collector.slo.many_alerts import ActiveAlerts, alerts_of, delays_of, ended, name_of
from evenkeel_collector.slo.spike_watch import EVERY_NS, SpikeWatch
from evenkeel_collector.slo.store import SloStore

_HERE = Path(__file__).parent
ALERT_NAME = "RequestRule"
_SECOND_NS = 10**9
_METRICS = {metric.value: metric for metric in DURATIONS}
_ENDINGS = ("error_ratio", "aborted_ratio", "abandoned_ratio")
# So many series of a gauge get an alert of their own in a cycle, besides those that have one.
_MOST_SERIES = 200
# After a start, exporters that tried in vain send again this late; until then no series is gone.
_REJOIN_NS = 60 * _SECOND_NS
# What is usual for a series is what it was for so long before the window.
_USUAL_S = 86400


class RuleEvaluator:
    """Evaluates each rule twice a minute.

    Args:
        store: Where measurements are read.
        record_failure: Called for each rule that could not be judged.
        dashboard_url: What notifications link to, or None.
    """

    def __init__(
        self,
        store: SloStore,
        record_failure: Callable[[Exception], None],
        dashboard_url: str | None = None,
    ) -> None:
        self._store = store
        self._dashboard_url = dashboard_url
        self._record_failure = record_failure
        self._next_ns: dict[str, int] = {}
        self._began_ns: int | None = None
        self._failures: dict[str, str] = {}
        self._spikes = SpikeWatch(store, record_failure, dashboard_url)

    def conditions(
        self, rules: Sequence[Rule], active: ActiveAlerts, now_ns: int
    ) -> list[Condition]:
        """Return the conditions of the rules that are due; a rule that fails keeps its alerts.

        Args:
            rules: The rules in force.
            active: The labels of pending and firing alerts, by name.
            now_ns: The current time.
        """
        if self._began_ns is None:
            self._began_ns = now_ns
        conditions = self._spikes.conditions(rules, active, now_ns)
        for rule in rules:
            if isinstance(rule.test, Spike) or now_ns < self._next_ns.get(rule.name, 0):
                continue
            self._next_ns[rule.name] = now_ns + min(EVERY_NS, int(rule.window_s * _SECOND_NS) // 5)
            try:
                conditions += self._judge(rule, active, now_ns)
            except Exception as error:
                # Unexpected data or a wrong rule must not stop the other rules.
                self._record_failure(StoreError(f"rule {rule.name!r}: {error}"))
                self._failures[rule.name] = first_line(error, max_chars=500)
            else:
                self._failures.pop(rule.name, None)
        names = {rule.name for rule in rules}
        self._failures = {name: why for name, why in self._failures.items() if name in names}
        return conditions

    @property
    def failures(self) -> Mapping[str, str]:
        """Why rules could not be judged at the last attempt, by name."""
        return {**self._failures, **self._spikes.failures}

    @property
    def num_cohorts(self) -> int:
        """How many cohorts the rules on spikes compare with their past."""
        return self._spikes.num_cohorts

    @property
    def is_loading(self) -> bool:
        """Whether the past of cohorts is still being read."""
        return self._spikes.is_loading

    def _judge(self, rule: Rule, active: ActiveAlerts, now_ns: int) -> list[Condition]:
        from_ns = now_ns - int(rule.window_s * _SECOND_NS)
        rows = self._store.read(*_query(rule, from_ns, now_ns))
        if isinstance(rule.test, Gauge) and rule.has_many_alerts:
            return self._each_series(rule, rule.test, rows, active, now_ns)
        return [self._condition(rule, rule.name, judge_rule(rule, rows), now_ns)]

    def _each_series(
        self,
        rule: Rule,
        test: Gauge,
        rows: Sequence[Mapping[str, Any]],
        active: ActiveAlerts,
        now_ns: int,
    ) -> list[Condition]:
        conditions: list[Condition] = []
        for row in rows:
            if row["value"] is None:
                continue
            own = {"instance": row["instance"] or row["service"], **row["rest"]}
            # Whoever sends metrics names the series.
            if is_odd(own.values()) or any(len(value) > LONGEST_VALUE for value in own.values()):
                continue
            name = name_of(rule, own.values())
            finding = judge_series(test, row)
            if name in active or (finding.holds and len(conditions) < _MOST_SERIES):
                own[GROUP_LABEL] = rule.name
                conditions.append(
                    replace(
                        self._condition(rule, name, finding, now_ns, own),
                        gather=partial(_gather_usual, rule, row, now_ns),
                    )
                )
        assert self._began_ns is not None
        if now_ns - self._began_ns < int(rule.window_s * _SECOND_NS) + _REJOIN_NS:
            return conditions
        there = {condition.slo for condition in conditions}
        gone = alerts_of(rule, active) - there
        return conditions + [ended(rule, name, active[name]) for name in gone]

    def _condition(
        self,
        rule: Rule,
        name: str,
        finding: RuleResult,
        now_ns: int,
        own_labels: Mapping[str, str] = MappingProxyType({}),
    ) -> Condition:
        return Condition(
            slo=name,
            severity=rule.severity.value,
            holds=finding.holds,
            delays=delays_of(rule),
            labels={
                **rule.select,
                **own_labels,
                **rule.labels,
                "alertname": ALERT_NAME,
                "slo": name,
                "severity": rule.severity.value,
            },
            figures={},
            describe=partial(self._describe, rule, name, finding, now_ns),
            gather=self._gathering(rule, finding, now_ns),
        )

    def _gathering(
        self, rule: Rule, finding: RuleResult, now_ns: int
    ) -> Callable[[SloStore], dict[str, str]] | None:
        slo = judged_by(rule, finding)
        if slo is None:
            return None
        from_ns = now_ns - int(rule.window_s * _SECOND_NS)
        return partial(gather, slo, from_ns, now_ns, self._dashboard_url)

    def _describe(self, rule: Rule, name: str, finding: RuleResult, now_ns: int) -> dict[str, str]:
        annotations = {
            "summary": f"{rule.title}: {finding.text}",
            "description": f"Over the last {format_duration(rule.window_s)}: {finding.text}.",
            "silence": silence_command(name),
        }
        if rule.helps:
            annotations["what_helps"] = rule.helps
        slo = judged_by(rule, finding)
        if slo is not None and self._dashboard_url is not None:
            from_ns = now_ns - int(rule.window_s * _SECOND_NS)
            annotations["dashboard"] = window_link(self._dashboard_url, slo, from_ns, now_ns)
        return annotations


def _gather_usual(
    rule: Rule, series: Mapping[str, Any], now_ns: int, store: SloStore
) -> dict[str, str]:
    """Return between which values a series was before the window; else why it is not known."""
    return collect(_usual(rule, series, now_ns, store))


def _usual(
    rule: Rule, series: Mapping[str, Any], now_ns: int, store: SloStore
) -> Iterator[tuple[str, str]]:
    to_ns = now_ns - int(rule.window_s * _SECOND_NS)
    names = ("service", "instance", "rest")
    before = format_duration(Fraction(_USUAL_S))
    text = f"unknown: no readings in the {before} before"
    for row in store.read(*_query(rule, to_ns - _USUAL_S * _SECOND_NS, to_ns)):
        if all(row[name] == series[name] for name in names) and row["value"] is not None:
            low, high = (f"{each:.4g}" for each in row["usual"])
            bounds = low if low == high else f"{low} to {high}"
            text = f"{bounds} in nine of ten readings of the {before} before"
    yield "usual", text


def _query(rule: Rule, from_ns: int, to_ns: int) -> tuple[Path, dict[str, Any]]:
    """Return the query for a rule, and its parameters."""
    select = {column: rule.select.get(column, "") for column in SELECTOR_COLUMNS}
    span = {"from_ns": from_ns, "to_ns": to_ns}
    match rule.test:
        case Gauge() as gauge:
            return _HERE / "engine_gauge.sql", {
                **_gauge_parameters(gauge),
                "model": select["model"],
                **span,
            }
        case Threshold(measure=measure) if measure in CACHE_MEASURES:
            return _HERE / "cache_measures.sql", select | span
        case _:
            width_ns = int(rule.bucket_s * _SECOND_NS)
            bounds = {"width_ns": width_ns, "max_request_ns": MAX_REQUEST_NS}
            return _HERE / "rule_measures.sql", {**select, **span, **bounds}


def _gauge_parameters(gauge: Gauge) -> dict[str, Any]:
    """Return what the gauges of a rule are read from, in every engine.

    A gauge with labels is read under its own name only: other engines have other labels.
    """
    is_live_only = gauge.while_zero is not None

    def sources(gauge_source: GaugeSource | None) -> list[MetricSource]:
        if gauge_source is None:
            return []
        if gauge_source.where:
            return [MetricSource(metric=gauge_source.metric)]
        return equivalents(gauge_source.metric, is_live_only=is_live_only)

    sides = {"metric": gauge.of, "per": gauge.per, "idle": gauge.while_zero}
    found = {name: sources(side) for name, side in sides.items()}
    every = [source for each in found.values() for source in each]
    labelled = {source.metric: label for source in every for label in source.where}
    labels: dict[str, Any] = {}
    for name, side in sides.items():
        prefix = "" if name == "metric" else f"{name}_"
        where = side.where if side is not None else {}
        labels |= {f"{prefix}labels": list(where), f"{prefix}wanted": list(where.values())}
    return {
        **labels,
        **{f"{name}_keys": [source.exact_key for source in each] for name, each in found.items()},
        "names": sorted({source.metric for source in every}),
        "labelled": list(labelled) or [""],
        "label_names": list(labelled.values()) or [""],
        "keys": [source.exact_key for source in every],
        "scales": [source.scale for source in every],
    }


def judged_by(rule: Rule, finding: RuleResult) -> Slo | None:
    """Return an SLO whose bad requests are those the rule is about, or None.

    A duration's quantile is judged by the rule's threshold, or by the new level of an anomaly.
    """
    test = rule.test
    if not isinstance(test, Threshold | Anomaly):
        return None
    metric = _METRICS.get(test.measure.partition("_p")[0])
    indicator = None
    if metric is not None:
        limit = test.value if isinstance(test, Threshold) else finding.value
        indicator = Indicator(metric, limit, rule.select)
    elif test.measure in _ENDINGS:
        indicator = Indicator(Metric.AVAILABILITY, None, rule.select)
    if indicator is None:
        return None
    return Slo(rule.name, rule.title, indicator, Fraction(99, 100), rule.window_s, ())
