"""Reads `slos.yaml`: SLOs in OpenSLO v1 format, and one document that configures alerting.

docs/guide/slo.md describes every key. OpenSLO leaves the indicator and the alert
windows open; their keys are our own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.resources import files
from math import inf, nextafter
from pathlib import Path
from typing import TypeVar

from evenkeel.errors import ConfigurationError
from evenkeel.slo.budget_policy import read_budget_policy, read_labels
from evenkeel.slo.burn_rates import Severity, WindowRule, default_rules
from evenkeel.slo.file.anomalies import default_anomalies, read_anomalies
from evenkeel.slo.file.document import Documents, no_documents, sorted_documents, why_foreign
from evenkeel.slo.file.objective import (
    Objective,
    check_target,
    read_indicator,
    read_objective,
    read_period,
)
from evenkeel.slo.file.receiver import read_receivers
from evenkeel.slo.file.routing import (
    read_inhibition,
    read_maintenance,
    read_routing,
    read_time_intervals,
)
from evenkeel.slo.file.rule import read_rule
from evenkeel.slo.model import ForeignSlo, Indicator, Method, Metric, Slo, SloFile
from evenkeel.slo.receiver import Receiver
from evenkeel.slo.routing import InhibitRule, Maintenance
from evenkeel.slo.rules import Rule
from evenkeel.slo.yaml_source import Section, Value

# In an exported document, what OpenSLO has no place for: the alerting mapping, the exact target.
ALERTING_ANNOTATION = "evenkeel/alerting"
BUDGET_ANNOTATION = "evenkeel/budgetPolicy"
TARGET_ANNOTATION = "evenkeel/target"
# What a collector without a file of its own evaluates.
WITHOUT_FILE = Path(str(files("evenkeel.slo") / "without_file.yaml"))
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?", re.ASCII)
_SHORTEST_WINDOW_S = Fraction(1)
Read = TypeVar("Read")


def read_slo_file(path: Path) -> SloFile:
    """Return the SLOs and receivers of a file.

    Raises:
        ConfigurationError: On anything missing, unknown, repeated or out of range; the message
            names the value, the file and the line.
    """
    documents = sorted_documents(path)
    if not documents.slos and not documents.rules and documents.alerting is None:
        raise no_documents(path)
    settings = _read_alerting(documents.alerting)
    references = _References(settings.scale, documents, {})
    slos: list[Slo] = []
    foreign: list[ForeignSlo] = []
    names: set[str] = set()
    for section in documents.slos:
        read, others = _read_slos(section, references)
        for name in [slo.name for slo in read] + [other.name for other in others]:
            if name in names:
                raise _repeated(section)
            names.add(name)
        slos += read
        foreign += others
        references.indicators.update({slo.name: slo.indicator for slo in read})
    rules: list[Rule] = []
    for section in documents.rules:
        rule = read_rule(section)
        if rule.name in names:
            raise _repeated(section)
        rules.append(rule)
        names.add(rule.name)
    return SloFile(
        path,
        tuple(slos),
        settings.receivers,
        settings.interval_s,
        tuple(rules),
        settings.inhibitions,
        settings.maintenance,
        tuple(foreign),
        tuple(kept.plain() for kept in documents.kept),
        tuple(own.plain(is_exact=True) for own in documents.own),
        (*documents.notes, *(f"not evaluated: SLO {f.name!r}: {f.reason}" for f in foreign)),
        tuple(rule for rule in settings.anomalies if rule.name not in names),
    )


@dataclass(frozen=True, slots=True)
class _References:
    """The context an SLO may refer to: the file's scale, its documents, and the SLOs before it."""

    scale: Fraction
    documents: Documents
    indicators: dict[str, Indicator]


def _repeated(section: Section) -> ConfigurationError:
    return section.value.complaint("an earlier SLO or rule already has this name; names are unique")


@dataclass(frozen=True, slots=True)
class _Alerting:
    interval_s: float = 5.0
    scale: Fraction = Fraction(1)
    receivers: tuple[Receiver, ...] = ()
    inhibitions: tuple[InhibitRule, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    anomalies: tuple[Rule, ...] = ()


def _read_alerting(section: Section | None) -> _Alerting:
    if section is None:
        return _Alerting(anomalies=default_anomalies())
    with section, section.required("spec").section() as spec:
        interval_s = spec.read_or("interval", Fraction(5), _interval_s)
        scale = spec.read_or("scale", Fraction(1), _scale)
        receivers = spec.read_or("receivers", (), read_receivers)
        inhibitions = spec.read_or("inhibit", (), Value.each, read_inhibition)
        intervals = read_time_intervals(spec.optional("timeIntervals"))
        maintenance = spec.read_or("maintenance", (), Value.each, read_maintenance)
        receivers = spec.read_or("route", receivers, read_routing, receivers, intervals)
        anomalies = spec.read_or("anomalies", default_anomalies(), read_anomalies)
    return _Alerting(float(interval_s), scale, receivers, inhibitions, maintenance, anomalies)


def _interval_s(value: Value) -> Fraction:
    if not Fraction(1, 10) <= value.duration_s() <= 3600:
        raise value.error("between 100ms and 1h")
    return value.duration_s()


def _indicator_value(spec: Value, objective: Value, references: _References) -> Value:
    """Return the indicator: the objective's own, the SLO's, or the SLI that it references."""
    for holder in (objective, spec):
        reference, indicator = holder.at("indicatorRef"), holder.at("indicator")
        if reference is not None:
            return references.documents.slis[reference.text()]
        if indicator is not None:
            return indicator
        if holder.at("ratioMetrics") is not None:
            return holder
    return spec.section().required("indicator")


def _read_slos(section: Section, references: _References) -> tuple[list[Slo], list[ForeignSlo]]:
    """Return one SLO per objective, or the document if evenkeel does not have its metrics."""
    metadata_value, spec_value = section.required("metadata"), section.required("spec")
    name_value = metadata_value.section().required("name")
    name = name_value.text()
    if not _NAME.fullmatch(name):
        raise name_value.error("letters, digits, dashes, dots and underscores, 253 at most")
    # From here on, messages say which SLO they are about.
    for value in (section.value, metadata_value, spec_value):
        value.subject = f"SLO {name!r}"
    reason = why_foreign(spec_value, references.documents)
    if reason is not None:
        reason = reason.removeprefix(f"SLO {name!r}: ")
        replayed = _counted_elsewhere(name, spec_value, references.scale)
        return [], [ForeignSlo(name, reason, section.value.plain(), replayed)]
    with section, metadata_value.section() as metadata, spec_value.section() as spec:
        metadata.required("name")
        title = metadata.read_or("displayName", None, _unless_empty, Value.text) or name
        labels = metadata.read_or("labels", None, _unless_empty, read_labels) or {}
        annotations = metadata.read_or("annotations", None, _unless_empty, Value.by_key) or {}
        description, service = spec.optional("description"), spec.optional("service")
        for taken in _OF_OBJECTIVES:
            spec.optional(taken)
        policies, alerting = spec.optional("alertPolicies"), spec.optional("alerting")
        budget = spec.optional("budgetPolicy")
    alerting = _or_stored(alerting, annotations.pop(ALERTING_ANNOTATION, None), ALERTING_ANNOTATION)
    budget = _or_stored(budget, annotations.pop(BUDGET_ANNOTATION, None), BUDGET_ANNOTATION)
    exact = annotations.pop(TARGET_ANNOTATION, None)
    draft = replace(
        _draft(name, references.scale),
        title=title,
        labels=labels | ({} if service is None else {"service": service.text()}),
        budget_policy=() if budget is None else read_budget_policy(budget),
        kept=_kept(annotations, description, policies, references.documents.notes),
    )
    slos = []
    for slo, element, objective in _each_objective(draft, spec_value):
        indicator_value = _indicator_value(spec_value, element, references)
        indicator = read_indicator(indicator_value, objective.threshold, references.indicators)
        if objective.is_strict and indicator.threshold_s is not None:
            # Durations are floats: "below a limit" means up to the previous float.
            indicator = replace(indicator, threshold_s=nextafter(indicator.threshold_s, -inf))
        if objective.is_strict and indicator.most_turns is not None:
            indicator = replace(indicator, most_turns=indicator.most_turns - 1)
        if slo.name != name and objective.title is not None:
            slo = replace(slo, title=f"{draft.title}: {objective.title.text()}")
        if (unlikely := _unlikely_limit(indicator, objective.threshold)) is not None:
            references.documents.notes.append(unlikely)
        target = check_target(element, objective, indicator)
        if exact is not None:
            target = _exact(exact)
        slo = replace(slo, indicator=indicator, target=target)
        if indicator.budget is not None:
            # Any amount may be too much.
            slo = replace(slo, min_bad=0)
        slos.append(
            _checked(slo if alerting is None else _with_alerting(slo, alerting), spec_value)
        )
    return slos, []


# Limits in seconds that are probably meant in milliseconds.
_UNLIKELY_S = {
    Metric.TTFT: 100, Metric.STALL: 100, Metric.ITL: 10, Metric.TPOT: 10, Metric.E2E: 3600,
}  # fmt: skip


def _unlikely_limit(indicator: Indicator, threshold: Value | None) -> str | None:
    limit_s = indicator.threshold_s
    if threshold is None or limit_s is None or limit_s < _UNLIKELY_S.get(indicator.metric, inf):
        return None
    return str(
        threshold.complaint(
            f"value is {limit_s:g} seconds; for milliseconds write {limit_s / 1000:g}"
        )
    )


# Read once more for each objective.
_OF_OBJECTIVES = (
    "budgetingMethod", "indicator", "indicatorRef", "objectives", "timeWindows", "timeWindow",
)  # fmt: skip


def _unless_empty(value: Value, read: Callable[[Value], Read]) -> Read | None:
    return None if value.is_empty else read(value)


def _kept(
    annotations: Mapping[str, Value],
    description: Value | None,
    policies: Value | None,
    notes: list[str],
) -> dict[str, object]:
    """Return the parts that are written on export but otherwise unused."""
    kept: dict[str, object] = {}
    if annotations:
        kept["metadata.annotations"] = {key: value.plain() for key, value in annotations.items()}
    if description is not None:
        kept["spec.description"] = description.plain()
    if policies is not None:
        kept["spec.alertPolicies"] = policies.plain()
        notes.append(
            str(
                policies.complaint(
                    "alertPolicies is preserved but ignored: alerting defines the alerts"
                )
            )
        )
    return kept


def _draft(name: str, scale: Fraction) -> Slo:
    """Return an SLO without its objective."""
    nothing = Indicator(Metric.AVAILABILITY, None)
    return Slo(name, name, nothing, Fraction(0), Fraction(0), (), scale)


def _each_objective(draft: Slo, spec: Value) -> Iterator[tuple[Slo, Value, Objective]]:
    """Yield an SLO per objective, without its indicator, and the value it was read from."""
    with_objectives = spec.section()
    elements = list(with_objectives.required("objectives").items())
    if not elements:
        raise spec.complaint("objectives is empty, expected at least one")
    windows = with_objectives.optional("timeWindows")
    period = read_period(windows or with_objectives.required("timeWindow"))
    method = with_objectives.read_or("budgetingMethod", Method.OCCURRENCES, Value.choice, *Method)
    for number, element in enumerate(elements, 1):
        objective = read_objective(element, method)
        slo = replace(
            draft,
            name=draft.name if len(elements) == 1 else f"{draft.name}-{number}",
            target=objective.target or Fraction(0),
            period_s=period.length_s,
            rules=default_rules(period.length_s),
            slicing=objective.slicing,
            calendar=period.calendar,
        )
        yield slo, element, objective


def _or_stored(given: Value | None, stored: Value | None, name: str) -> Value | None:
    """Return the written value, or the one kept in an annotation."""
    if stored is None:
        return given
    if given is not None:
        raise given.complaint(f"give {given.name} or the annotation {name}")
    return next(iter(stored.embedded()), stored)


def _counted_elsewhere(name: str, spec: Value, scale: Fraction) -> tuple[Slo, ...]:
    """Return the objectives of an unevaluated SLO; none if they cannot be read."""
    try:
        return tuple(
            _checked(
                replace(
                    slo, title=slo.name, target=check_target(element, objective, slo.indicator)
                ),
                spec,
            )
            for slo, element, objective in _each_objective(_draft(name, scale), spec)
        )
    except ConfigurationError:
        return ()


def _exact(value: Value) -> Fraction:
    return value.number("a fraction such as 2/3", lambda n: 0 < n < 1)


def _checked(slo: Slo, spec_value: Value) -> Slo:
    shortest_s = min(window.short_s for window in slo.windows)
    if shortest_s < _SHORTEST_WINDOW_S:
        raise spec_value.complaint(
            f"with scale {slo.scale} the shortest window is {float(shortest_s):g} s, "
            f"less than a second"
        )
    if slo.slicing is not None and slo.slicing.length_s * slo.scale > shortest_s:
        raise spec_value.complaint(
            f"timeSliceWindow is longer than the shortest alert window, {float(shortest_s):g} s"
        )
    if slo.calendar is not None and slo.scale != 1:
        raise spec_value.complaint("a calendar period cannot be scaled")
    if slo.indicator.prompts is None and any(s.freezes_promotions for s in slo.budget_policy):
        raise spec_value.complaint(
            "freeze: prompts needs a prompt_name in select that is a value or a list, or none",
            "budgetPolicy",
        )
    return slo


def _with_alerting(slo: Slo, value: Value) -> Slo:
    whole = "a whole number of at least 1"
    confident = "a fraction from 0.5 to below 1, such as 0.95"
    with value.section() as section:
        rules = section.read_or("windows", slo.rules, Value.each, _read_rule)
        if not rules:
            raise value.complaint("windows is empty; omit it to use the defaults", "windows")
        return replace(
            slo,
            rules=rules,
            scale=section.read_or("scale", slo.scale, _scale),
            pending_s=section.read_or("for", Fraction(0), Value.duration_or_zero_s),
            keep_firing_s=section.read_or("keepFiringFor", Fraction(0), Value.duration_or_zero_s),
            min_bad=int(
                section.read_or(
                    "minBad", slo.min_bad, Value.number, whole, lambda n: n.denominator == 1 <= n
                )
            ),
            confidence=section.read_or(
                "confidence", None, Value.number, confident, lambda n: Fraction(1, 2) <= n < 1
            ),
            no_data_s=section.read_or("noData", None, _no_data),
        )


def _read_rule(value: Value) -> WindowRule:
    share = "a share of the budget such as 0.02"
    with value.section() as section:
        severity = section.read("severity", Value.choice, *Severity)
        budget = section.read("budget", Value.number, share, lambda n: 0 < n <= 1)
        long, short = section.required("long"), section.required("short")
    if short.duration_s() > long.duration_s():
        raise short.error(f"at most the long window, {long.text()}")
    return WindowRule(severity, budget, long.duration_s(), short.duration_s())


def _scale(value: Value) -> Fraction:
    return value.number("above 0 and at most 1, such as 1/60", lambda n: 0 < n <= 1)


def _no_data(value: Value) -> Fraction:
    return Fraction(0) if value.text() == "never" else value.duration_s()
