"""Reads `slos.yaml`: SLOs in the form of OpenSLO v1, and one document on how to alert.

docs/slo.md describes every key. What OpenSLO leaves open, the indicator and the alert windows, is
in our own words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from evenkeel.alert_routing import InhibitRule, Maintenance
from evenkeel.errors import ConfigurationError
from evenkeel.slo import Severity, WindowRule, default_rules
from evenkeel.slo_budget_policy import read_budget_policy
from evenkeel.slo_file_objective import duration_s, read_indicator, read_objective, read_period
from evenkeel.slo_file_receiver import read_receivers
from evenkeel.slo_file_routing import (
    read_inhibitions,
    read_maintenance,
    read_routing,
    read_time_intervals,
)
from evenkeel.slo_file_rule import read_rule
from evenkeel.slo_model import Indicator, Slo, SloFile
from evenkeel.slo_receiver import Receiver
from evenkeel.slo_rules import Rule
from evenkeel.yaml_source import Section, Value, read_documents

OPENSLO_VERSION = "openslo/v1"
OUR_VERSION = "evenkeel/v1"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OWN_LABELS = ("alertname", "slo", "severity", "service")
_SHORTEST_WINDOW_S = Fraction(1)


def read_slo_file(path: Path) -> SloFile:
    """Return the SLOs and receivers of a file.

    Raises:
        ConfigurationError: On anything missing, unknown, repeated or out of range; the message
            names the value, the file and the line.
    """
    slo_sections: list[Section] = []
    slis: dict[str, Value] = {}
    rule_sections: list[Section] = []
    alerting: Section | None = None
    for document in read_documents(path):
        section = document.section()
        version, kind = section.required("apiVersion"), section.required("kind")
        match kind.choice("SLO", "SLI", "Service", "Alerting", "Rule"):
            case "SLO":
                version.choice(OPENSLO_VERSION)
                slo_sections.append(section)
            case "SLI":
                version.choice(OPENSLO_VERSION)
                name, slis_spec = _name_and_spec(section)
                slis[name] = slis_spec
            case "Rule":
                version.choice(OUR_VERSION)
                rule_sections.append(section)
            case "Service":
                # OpenSLO describes services apart; nothing of it is needed to evaluate.
                version.choice(OPENSLO_VERSION)
            case _:
                version.choice(OUR_VERSION)
                if alerting is not None:
                    raise kind.complaint("the file has a second document of kind Alerting")
                alerting = section
    if not slo_sections and not rule_sections:
        raise ConfigurationError(f"{path} has no document of kind SLO or Rule")
    settings = _read_alerting(alerting)
    known = _Known(settings.scale, slis, {})
    slos = []
    for section in slo_sections:
        slo = _read_slo(section, known)
        if slo.name in known.indicators:
            raise _repeated(section)
        slos.append(slo)
        known.indicators[slo.name] = slo.indicator
    names = set(known.indicators)
    rules: list[Rule] = []
    for section in rule_sections:
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
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """What an SLO may refer to: the file's scale, its SLIs, and the SLOs before it."""

    scale: Fraction
    slis: dict[str, Value]
    indicators: dict[str, Indicator]


def _repeated(section: Section) -> ConfigurationError:
    return section.value.complaint("an SLO or rule further up has this name; names are unique")


def _name_and_spec(section: Section) -> tuple[str, Value]:
    metadata = section.required("metadata").section()
    return metadata.required("name").text(), section.required("spec")


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


def _indicator_value(spec: Section, known: _Known) -> Value:
    """Return the indicator written in place, or the one of kind SLI that is referred to."""
    reference = spec.optional("indicatorRef")
    if reference is None:
        return spec.required("indicator")
    if reference.text() not in known.slis:
        raise reference.complaint(f"the file has no SLI {reference.text()!r}")
    return known.slis[reference.text()]


def _read_slo(section: Section, known: _Known) -> Slo:
    metadata_value, spec_value = section.required("metadata"), section.required("spec")
    name_value = metadata_value.section().required("name")
    name = name_value.text()
    if not _NAME.fullmatch(name):
        raise name_value.error("lower-case letters, digits and dashes, 63 at most")
    # From here on, messages say which SLO they are about.
    for value in (section.value, metadata_value, spec_value):
        value.subject = f"SLO {name!r}"
    metadata = metadata_value.section()
    metadata.required("name")
    title = metadata.optional("displayName")
    labels_value = metadata.optional("labels")
    labels = {} if labels_value is None else labels_value.section().texts()
    for label in _OWN_LABELS:
        if labels_value is not None and label in labels:
            raise labels_value.complaint(f"label {label!r} is set by evenkeel")
    metadata.close()
    section.close()

    spec = spec_value.section()
    spec.optional("description")
    service = spec.optional("service")
    if service is not None:
        labels["service"] = service.text()
    objective = read_objective(spec.required("objectives"), spec.optional("budgetingMethod"))
    indicator = read_indicator(_indicator_value(spec, known), objective.threshold, known.indicators)
    period = read_period(spec.required("timeWindow"))
    alerting_value, policy = spec.optional("alerting"), spec.optional("budgetPolicy")
    spec.close()
    slo = Slo(
        name=name,
        title=name if title is None else title.text(),
        indicator=indicator,
        target=objective.target,
        period_s=period.length_s,
        rules=default_rules(period.length_s),
        scale=known.scale,
        labels=labels,
        slicing=objective.slicing,
        calendar=period.calendar,
        budget_policy=() if policy is None else read_budget_policy(policy, _OWN_LABELS),
    )
    slo = slo if alerting_value is None else _with_alerting(slo, alerting_value.section())
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
