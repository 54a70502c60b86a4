"""Writes SLOs as OpenSLO v1 documents; `read_slo_file` reads them again.

OpenSLO leaves a metric's source to its vendor: ours is of type `evenkeel`, and its spec holds the
keys of our indicator. Alert windows have no place in OpenSLO and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import yaml

from evenkeel.errors import ConfigurationError
from evenkeel.slo_calendar import Calendar
from evenkeel.slo_model import Indicator, Method, Metric, Slo

_START = "2026-01-01 00:00:00"


def openslo_documents(slos: Sequence[Slo]) -> str:
    """Return one YAML document an SLO.

    Raises:
        ConfigurationError: If an SLO is a composite, which OpenSLO v1 does not know.
    """
    documents = [_document(slo) for slo in slos]
    return str(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True))


def _document(slo: Slo) -> dict[str, Any]:
    if slo.indicator.members:
        raise ConfigurationError(f"SLO {slo.name!r} is a composite, which OpenSLO v1 does not know")
    labels = {name: value for name, value in slo.labels.items() if name != "service"}
    # One each: YAML would write the second as a reference to the first.
    good, total = (
        {"metricSource": {"type": "evenkeel", "spec": _indicator(slo.indicator)}} for _ in range(2)
    )
    objective: dict[str, Any] = {"target": float(slo.target)}
    if slo.indicator.threshold_s is not None:
        objective |= {"op": "lte", "value": slo.indicator.threshold_s}
    method = Method.OCCURRENCES
    if slo.slicing is not None:
        method = slo.slicing.method
        objective["timeSliceWindow"] = _duration(slo.slicing.length_s)
        if slo.slicing.target is not None:
            objective["timeSliceTarget"] = float(slo.slicing.target)
    return {
        "apiVersion": "openslo/v1",
        "kind": "SLO",
        "metadata": {
            "name": slo.name,
            "displayName": slo.title,
            **({"labels": labels} if labels else {}),
        },
        "spec": {
            **({"service": slo.labels["service"]} if "service" in slo.labels else {}),
            "indicator": {
                "metadata": {"name": slo.name},
                "spec": {"ratioMetric": {"counter": True, "good": good, "total": total}},
            },
            "timeWindow": [_window(slo.period_s, slo.calendar)],
            "budgetingMethod": method.value,
            "objectives": [objective],
        },
    }


def _indicator(indicator: Indicator) -> dict[str, Any]:
    what: dict[str, Any] = {"metric": indicator.metric.value}
    if indicator.metric is Metric.JOINT:
        what = {"all": {metric.value: limit for metric, limit in indicator.limits.items()}}
    return {
        **what,
        **({"select": dict(indicator.select)} if indicator.select else {}),
        "error": indicator.error.value,
        "aborted": indicator.aborted.value,
        "shed": indicator.shed.value,
    }


def _window(period_s: Fraction, calendar: Calendar | None) -> dict[str, Any]:
    if calendar is None:
        return {"duration": _duration(period_s), "isRolling": True}
    return {
        "duration": f"1{calendar.unit}",
        "isRolling": False,
        "calendar": {"startTime": _START, "timeZone": calendar.zone.key},
    }


def _duration(seconds: Fraction) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{float(seconds):g}s"
