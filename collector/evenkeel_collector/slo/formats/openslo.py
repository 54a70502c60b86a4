"""Writes SLO files as OpenSLO v1 documents; `read_slo_file` reads them back unchanged.

OpenSLO leaves a metric's source to the vendor: ours has type `evenkeel`, and its spec contains the
keys of our indicator. Annotations hold what OpenSLO has no place for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from math import nextafter
from typing import Any

import yaml

from evenkeel.slo.budget_policy import BudgetStep
from evenkeel.slo.calendar import Calendar, CalendarUnit
from evenkeel.slo.file.document import DOCUMENTS_ANNOTATION
from evenkeel.slo.file.slo_file import ALERTING_ANNOTATION, BUDGET_ANNOTATION, TARGET_ANNOTATION
from evenkeel.slo.model import SILENCE_S, Indicator, Method, Metric, Slo, SloFile

# Start of our calendar periods: weeks start on a Monday.
_START = "2026-01-01 00:00:00"
_WEEK_START = "2026-01-05 00:00:00"


def openslo_file(file: SloFile) -> str:
    """Return the full content of an SLO file, including what is not evaluated."""
    documents: list[Mapping[str, Any]] = []
    if file.own:
        own = yaml.safe_dump_all(file.own, sort_keys=False, allow_unicode=True)
        documents.append(
            {
                "apiVersion": "openslo/v1",
                "kind": "Service",
                "metadata": {"name": "evenkeel", "annotations": {DOCUMENTS_ANNOTATION: own}},
                "spec": {"description": "Receivers, intervals and rules of evenkeel."},
            }
        )
    documents += file.kept
    documents += (slo_document(slo) for slo in file.slos)
    documents += (foreign.document for foreign in file.foreign)
    return dump_documents(documents)


def openslo_documents(slos: Sequence[Slo]) -> str:
    """Return one YAML document per SLO."""
    return dump_documents([slo_document(slo) for slo in slos])


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        # YAML anchors across documents are hard to read, and some parsers reject them.
        return True


def dump_documents(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return YAML documents with keys in their given order, without anchors."""
    return str(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True))


def slo_document(slo: Slo) -> dict[str, Any]:
    """Return an SLO as an OpenSLO v1 document."""
    labels = {name: value for name, value in slo.labels.items() if name != "service"}
    source = {"metricSource": {"type": "evenkeel", "spec": _indicator(slo.indicator)}}
    # Below 1, which is not a valid target; an annotation holds what a float cannot.
    objective: dict[str, Any] = {"target": min(float(slo.target), nextafter(1.0, 0.0))}
    if slo.indicator.threshold is not None:
        objective |= {"op": "lte", "value": slo.indicator.threshold}
    if slo.indicator.budget is not None:
        objective = {"op": "lte", "value": slo.indicator.budget}
    method = Method.OCCURRENCES
    if slo.slicing is not None:
        method = slo.slicing.method
        objective["timeSliceWindow"] = _duration(slo.slicing.length_s)
        if slo.slicing.target is not None:
            objective["timeSliceTarget"] = exact_number(slo.slicing.target)
    written = slo.kept.get("metadata.annotations")
    annotations = dict(written) if isinstance(written, Mapping) else {}
    annotations[ALERTING_ANNOTATION] = json.dumps(_alerting(slo))
    if slo.budget_policy:
        annotations[BUDGET_ANNOTATION] = json.dumps([_step(step) for step in slo.budget_policy])
    if "target" in objective and Fraction(repr(objective["target"])) != slo.target:
        annotations[TARGET_ANNOTATION] = str(slo.target)
    spec = {
        "description": slo.kept.get("spec.description"),
        "service": slo.labels.get("service"),
        "indicator": {
            "metadata": {"name": slo.name},
            "spec": {"ratioMetric": {"counter": True, "good": source, "total": source}},
        },
        "timeWindow": [_window(slo.period_s, slo.calendar)],
        "budgetingMethod": method.value,
        "objectives": [objective],
        "alertPolicies": slo.kept.get("spec.alertPolicies"),
    }
    return {
        "apiVersion": "openslo/v1",
        "kind": "SLO",
        "metadata": {
            "name": slo.name,
            "displayName": slo.title,
            **({"labels": labels} if labels else {}),
            "annotations": annotations,
        },
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


def _alerting(slo: Slo) -> dict[str, Any]:
    alerting: dict[str, Any] = {
        "windows": [
            {
                "severity": rule.severity.value,
                "budget": exact_number(rule.budget_ratio),
                "long": _duration(rule.long_s),
                "short": _duration(rule.short_s),
            }
            for rule in slo.rules
        ],
        **({"minBad": slo.min_bad} if slo.min_bad else {}),
        "scale": exact_number(slo.scale),
    }
    if slo.pending_s:
        alerting["for"] = _duration(slo.pending_s)
    if slo.keep_firing_s:
        alerting["keepFiringFor"] = _duration(slo.keep_firing_s)
    if slo.confidence is not None:
        alerting["confidence"] = exact_number(slo.confidence)
    if slo.no_data_s is not None:
        alerting["noData"] = _duration(slo.no_data_s) if slo.no_data_s else "never"
    return alerting


def _step(step: BudgetStep) -> dict[str, Any]:
    return {
        "spent": exact_number(step.spent_ratio),
        **({"alert": step.severity.value} if step.severity else {}),
        **({"labels": dict(step.labels)} if step.labels else {}),
        **({"freeze": "prompts"} if step.freezes_promotions else {}),
    }


def _indicator(indicator: Indicator) -> dict[str, Any]:
    what: dict[str, Any] = {"metric": indicator.metric.value}
    if indicator.metric is Metric.JOINT:
        what = {"all": {metric.value: limit for metric, limit in indicator.limits.items()}}
    if indicator.members:
        return {
            "composite": [
                {
                    "indicator": _indicator(member.indicator),
                    **(
                        {}
                        if member.indicator.threshold is None
                        else {"value": member.indicator.threshold}
                    ),
                    "weight": exact_number(member.weight),
                }
                for member in indicator.members
            ],
            **_grouping(indicator),
        }
    if indicator.budget is not None:
        return {**what, **_selection(indicator), **_grouping(indicator)}
    return {
        **what,
        **_selection(indicator),
        **_grouping(indicator),
        "error": indicator.error.value,
        "aborted": indicator.aborted.value,
        "shed": indicator.shed.value,
        **({} if indicator.silence_s == SILENCE_S else {"silence": _duration(indicator.silence_s)}),
    }


def _grouping(indicator: Indicator) -> dict[str, Any]:
    if indicator.grouping is None:
        return {}
    return {"groupBy": list(indicator.grouping.columns), "maxGroups": indicator.grouping.most}


def _selection(indicator: Indicator) -> dict[str, Any]:
    select: dict[str, Any] = dict(indicator.select)
    for each in indicator.filters:
        conditions = select.setdefault(each.column, {})
        conditions[each.test.value] = list(each.values) if each.is_list else each.values[0]
    statuses: dict[str, list[str]] = {}
    for group in indicator.statuses:
        statuses.setdefault(group.treatment, []).append(group.codes)
    return {
        **({"select": select} if select else {}),
        **({"httpStatus": statuses} if statuses else {}),
    }


def _window(period_s: Fraction, calendar: Calendar | None) -> dict[str, Any]:
    if calendar is None:
        return {"duration": _duration(period_s), "isRolling": True}
    start: str = _WEEK_START if calendar.unit is CalendarUnit.WEEK else _START
    if calendar.start is not None:
        start = calendar.start.isoformat(" ")
    return {
        "duration": f"{calendar.count}{calendar.unit}",
        "isRolling": False,
        "calendar": {"startTime": start, "timeZone": calendar.zone.key},
    }


def _duration(seconds: Fraction) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{exact_number(seconds)}s"


def exact_number(number: Fraction) -> str:
    """Format a number as a decimal if it is one exactly, else as a ratio such as 1/60."""
    with localcontext() as context:
        context.prec = 40
        decimal = Decimal(number.numerator) / Decimal(number.denominator)
        text = format(decimal.normalize(), "f")
    return text if Fraction(text) == number and len(text) < 18 else str(number)
