"""Alerts of a rule that has several: one for each cohort, or each series of a gauge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from evenkeel.slo.groups import group_name
from evenkeel.slo.rules import Rule
from evenkeel_collector.alerts.state import Condition, Delays
from evenkeel_collector.slo.failure import failure_key

_SECOND_NS = 10**9
# The labels of pending and firing alerts, by name.
ActiveAlerts = Mapping[str, Mapping[str, str]]


def delays_of(rule: Rule) -> Delays:
    """Return when a rule's alerts fire and resolve."""
    return Delays(int(rule.pending_s * _SECOND_NS), int(rule.keep_firing_s * _SECOND_NS))


def name_of(rule: Rule, values: Iterable[str]) -> str:
    """Return the name of one of a rule's alerts; that of no cohort is the rule's own failure."""
    name = group_name(rule.name, values).rstrip(",")
    return f"{name}," if name == failure_key(rule.name) else name


def alerts_of(rule: Rule, active: ActiveAlerts) -> Set[str]:
    """Return the names of a rule's active alerts."""
    names = {name for name in active if name.partition("/")[0] == rule.name}
    return names - {rule.name, failure_key(rule.name)}


def ended(rule: Rule, name: str, labels: Mapping[str, str]) -> Condition:
    """Return the condition of an alert whose cohort or series is gone."""
    return Condition(name, rule.severity.value, False, delays_of(rule), labels, {}, dict)
