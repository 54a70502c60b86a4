"""Reads `slos.yaml`: SLOs in the form of OpenSLO v1, and one document on how to alert.

docs/guide/slo.md describes every key. What OpenSLO leaves open, the indicator and the alert
windows, is in our own words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, nextafter
from pathlib import Path

from evenkeel.errors import ConfigurationError
from evenkeel.slo.arithmetic import Severity, WindowRule, default_rules
from evenkeel.slo.budget_policy import read_budget_policy
from evenkeel.slo.file_document import Documents, no_documents, sorted_documents, why_foreign
from evenkeel.slo.file_objective import duration_s, read_indicator, read_objective, read_period
from evenkeel.slo.file_receiver import read_receivers
from evenkeel.slo.file_routing import (
    read_inhibitions,
    read_maintenance,
    read_routing,
    read_time_intervals,
)
from evenkeel.slo.file_rule import read_rule
from evenkeel.slo.model import ForeignSlo, Indicator, Metric, Slo, SloFile
from evenkeel.slo.receiver import Receiver
from evenkeel.slo.routing import InhibitRule, Maintenance
from evenkeel.slo.rules import Rule
from evenkeel.slo.yaml_source import Section, Value

# What OpenSLO has no place for, in an exported document: the alerting mapping, the exact target.
ALERTING_ANNOTATION = "evenkeel/alerting"
BUDGET_ANNOTATION = "evenkeel/budgetPolicy"
TARGET_ANNOTATION = "evenkeel/target"
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?", re.ASCII)
_OWN_LABELS = ("alertname", "slo", "severity", "service")
_SHORTEST_WINDOW_S = Fraction(1)


def read_slo_file(path: Path) -> SloFile:
    """Return the SLOs and receivers of a file.

    Raises:
        ConfigurationError: On anything missing, unknown, repeated or out of range; the message
            names the value, the file and the line.
    """
    documents = sorted_documents(path)
    if not documents.slos and not documents.rules:
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
    )


@dataclass(frozen=True, slots=True)
class _References:
    """What an SLO may refer to: the file's scale, its documents, and the SLOs before it."""

    scale: Fraction
    documents: Documents
    indicators: dict[str, Indicator]


def _repeated(section: Section) -> ConfigurationError:
    return section.value.complaint("an SLO or rule further up has this name; names are unique")


@dataclass(frozen=True, slots=True)
class _Alerting:
    interval_s: float = 5.0
    scale: Fraction = Fraction(1)
    receivers: tuple[Receiver, ...] = ()
    inhibitions: tuple[InhibitRule, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()


def _read_alerting(section: Section | None) -> _Alerting:
    if section is None:
        return _Alerting()
    spec = section.required("spec").section()
    section.close()
    interval = spec.optional("interval")
    interval_s = Fraction(5) if interval is None else duration_s(interval)
    if interval is not None and not Fraction(1, 10) <= interval_s <= 3600:
        raise interval.error("between 100ms and 1h")
    scale = _scale(spec.optional("scale"))
    listed = spec.optional("receivers")
    receivers = () if listed is None else tuple(read_receivers(listed))
    inhibited = spec.optional("inhibit")
    inhibitions = () if inhibited is None else tuple(read_inhibitions(inhibited))
    intervals = read_time_intervals(spec.optional("timeIntervals"))
    kept, root = spec.optional("maintenance"), spec.optional("route")
    maintenance = () if kept is None else tuple(read_maintenance(kept))
    if root is not None:
        receivers = read_routing(root, receivers, intervals)
    spec.close()
    return _Alerting(float(interval_s), scale or Fraction(1), receivers, inhibitions, maintenance)


def _indicator_value(spec: Value, objective: Value, references: _References) -> Value:
    """Return the indicator: the objective's own, the SLO's, or the SLI that one refers to."""
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
    """Return one SLO per objective, or the document if its metrics are not ours."""
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
    draft, annotations = _read_metadata(metadata_value, name)
    section.close()

    spec = spec_value.section()
    description, service = spec.optional("description"), spec.optional("service")
    method = spec.optional("budgetingMethod")
    for taken in ("indicator", "indicatorRef"):
        spec.optional(taken)
    objectives = list(spec.required("objectives").items())
    if not objectives:
        raise spec_value.complaint("objectives is empty, expected at least one")
    window = spec.optional("timeWindows") or spec.required("timeWindow")
    policies, alerting = spec.optional("alertPolicies"), spec.optional("alerting")
    budget = spec.optional("budgetPolicy")
    spec.close()
    alerting = _or_stored(alerting, annotations.pop(ALERTING_ANNOTATION, None), ALERTING_ANNOTATION)
    budget = _or_stored(budget, annotations.pop(BUDGET_ANNOTATION, None), BUDGET_ANNOTATION)
    exact = annotations.pop(TARGET_ANNOTATION, None)
    kept: dict[str, object] = {}
    if annotations:
        kept["metadata.annotations"] = {key: value.plain() for key, value in annotations.items()}
    if description is not None:
        kept["spec.description"] = description.plain()
    if policies is not None:
        kept["spec.alertPolicies"] = policies.plain()
        references.documents.notes.append(
            str(policies.complaint("alertPolicies is kept, not used: alerting says when it alerts"))
        )
    labels = dict(draft.labels) | ({} if service is None else {"service": service.text()})
    period = read_period(window)
    slos = []
    for number, element in enumerate(objectives, 1):
        objective = read_objective(element, method)
        indicator_value = _indicator_value(spec_value, element, references)
        indicator = read_indicator(indicator_value, objective.threshold, references.indicators)
        if objective.is_strict and indicator.threshold_s is not None:
            # Durations are floats: below a limit is up to the float before it.
            indicator = replace(indicator, threshold_s=nextafter(indicator.threshold_s, -inf))
        shown = element.at("displayName")
        is_one = len(objectives) == 1
        slo = Slo(
            name=name if is_one else f"{name}-{number}",
            title=draft.title if is_one or shown is None else f"{draft.title}: {shown.text()}",
            indicator=indicator,
            target=objective.target if exact is None else _exact(exact),
            period_s=period.length_s,
            rules=default_rules(period.length_s),
            scale=references.scale,
            labels=labels,
            slicing=objective.slicing,
            calendar=period.calendar,
            budget_policy=() if budget is None else read_budget_policy(budget, _OWN_LABELS),
            kept=kept,
        )
        if alerting is not None:
            slo = _with_alerting(slo, alerting.section())
        slos.append(_checked(slo, spec_value))
    return slos, []


def _or_stored(given: Value | None, stored: Value | None, name: str) -> Value | None:
    """Return what is written, or what an annotation holds of it."""
    if stored is None:
        return given
    if given is not None:
        raise given.complaint(f"give {given.name} or the annotation {name}")
    return next(iter(stored.embedded()), stored)


def _counted_elsewhere(name: str, spec: Value, scale: Fraction) -> tuple[Slo, ...]:
    """Return the objectives of an SLO that is not evaluated; none if they cannot be read."""
    objectives, window = spec.at("objectives"), spec.at("timeWindow") or spec.at("timeWindows")
    if objectives is None or window is None:
        return ()
    slos = []
    try:
        period = read_period(window)
        elements = list(objectives.items())
        for number, element in enumerate(elements, 1):
            objective = read_objective(element, spec.at("budgetingMethod"))
            of_name = name if len(elements) == 1 else f"{name}-{number}"
            slo = Slo(
                of_name,
                of_name,
                Indicator(Metric.AVAILABILITY, None),
                objective.target,
                period.length_s,
                default_rules(period.length_s),
                scale,
                slicing=objective.slicing,
                calendar=period.calendar,
            )
            slos.append(_checked(slo, spec))
    except ConfigurationError:
        return ()
    return tuple(slos)


@dataclass(frozen=True, slots=True)
class _Metadata:
    title: str
    labels: dict[str, str]


def _read_metadata(value: Value, name: str) -> tuple[_Metadata, dict[str, Value]]:
    section = value.section()
    section.required("name")
    title, labels = section.optional("displayName"), section.optional("labels")
    annotations = section.optional("annotations")
    section.close()
    return (
        _Metadata(
            name if title is None or title.is_empty else title.text(),
            {} if labels is None or labels.is_empty else _labels(labels),
        ),
        {} if annotations is None or annotations.is_empty else annotations.section().values(),
    )


def _labels(value: Value) -> dict[str, str]:
    labels = {
        key: ",".join(e.text() for e in label.items()) if label.is_list else label.text()
        for key, label in value.section().values().items()
    }
    for label in _OWN_LABELS:
        if label in labels:
            raise value.complaint(f"label {label!r} is set by evenkeel")
    return labels


def _exact(value: Value) -> Fraction:
    target = value.number("a fraction such as 2/3")
    if not 0 < target < 1:
        raise value.error("a fraction such as 2/3")
    return target


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
        raise (spec_value.at("budgetPolicy") or spec_value).complaint(
            "freeze: prompts needs a prompt_name in select that is a value or a list, or none"
        )
    return slo


def _with_alerting(slo: Slo, section: Section) -> Slo:
    pending, keep = section.optional("for"), section.optional("keepFiringFor")
    scale, listed = section.optional("scale"), section.optional("windows")
    min_bad, confidence = section.optional("minBad"), section.optional("confidence")
    no_data = section.optional("noData")
    section.close()
    rules = slo.rules if listed is None else tuple(_read_rule(e) for e in listed.items())
    if listed is not None and not rules:
        raise listed.complaint("windows is empty; leave it out for the default ones")
    return replace(
        slo,
        rules=rules,
        scale=_scale(scale) or slo.scale,
        pending_s=Fraction(0) if pending is None else duration_s(pending),
        keep_firing_s=Fraction(0) if keep is None else duration_s(keep),
        min_bad=1 if min_bad is None else _whole(min_bad),
        confidence=None if confidence is None else _confidence(confidence),
        no_data_s=None if no_data is None else _no_data(no_data),
    )


def _read_rule(value: Value) -> WindowRule:
    section = value.section()
    severity = Severity(section.required("severity").choice(*Severity))
    budget_value, long, short = (section.required(key) for key in ("budget", "long", "short"))
    section.close()
    budget = budget_value.number("a share of the budget such as 0.02")
    if not 0 < budget <= 1:
        raise budget_value.error("a share of the budget such as 0.02")
    long_s, short_s = duration_s(long), duration_s(short)
    if short_s > long_s:
        raise short.error(f"at most the long window, {long.text()}")
    return WindowRule(severity, budget, long_s, short_s)


def _scale(value: Value | None) -> Fraction | None:
    if value is None:
        return None
    scale = value.number("a fraction such as 1/60")
    if not 0 < scale <= 1:
        raise value.error("above 0 and at most 1, such as 1/60")
    return scale


def _whole(value: Value) -> int:
    number = value.number("a whole number of at least 1")
    if number.denominator != 1 or number < 1:
        raise value.error("a whole number of at least 1")
    return int(number)


def _confidence(value: Value) -> Fraction:
    confidence = value.number("a fraction such as 0.95")
    if not Fraction(1, 2) <= confidence < 1:
        raise value.error("a fraction from 0.5 to below 1, such as 0.95")
    return confidence


def _no_data(value: Value) -> Fraction:
    return Fraction(0) if value.text() == "never" else duration_s(value)
