"""Reads the documents of kind Rule."""

from __future__ import annotations

import re
from fractions import Fraction

from evenkeel.slo.arithmetic import Severity
from evenkeel.slo.file_objective import duration_s
from evenkeel.slo.file_select import read_select
from evenkeel.slo.model import SELECTOR_COLUMNS
from evenkeel.slo.rules import (
    CACHE_MEASURES,
    MEASURES,
    Absence,
    Anomaly,
    Gauge,
    GaugeSource,
    Rule,
    Test,
    Threshold,
)
from evenkeel.slo.yaml_source import Section, Value

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def read_rule(section: Section) -> Rule:
    """Return the rule of one document; `apiVersion` and `kind` are taken already.

    Raises:
        ConfigurationError: On anything missing, unknown or out of range.
    """
    metadata, spec_value = section.required("metadata").section(), section.required("spec")
    name_value, title = metadata.required("name"), metadata.optional("displayName")
    labels = metadata.optional("labels")
    section.close()
    metadata.close()
    name = name_value.text()
    if not _NAME.fullmatch(name):
        raise name_value.error("lower-case letters, digits and dashes, 63 at most")
    section.value.subject = spec_value.subject = f"rule {name!r}"
    spec = spec_value.section()
    severity = spec.optional("severity")
    tests = [spec.optional(kind) for kind in ("threshold", "anomaly", "absence", "gauge")]
    given = [test for test in tests if test is not None]
    select = spec.optional("select")
    pending, keep = spec.optional("for"), spec.optional("keepFiringFor")
    spec.optional("description")
    spec.close()
    if len(given) != 1:
        raise spec_value.complaint("give one of threshold, anomaly, absence and gauge")
    selected = read_select(select, SELECTOR_COLUMNS)
    if select is not None and given[0].name == "gauge" and set(selected) - {"model"}:
        raise select.complaint("a gauge is an engine's: select takes model alone, see where")
    return Rule(
        name=name,
        title=name if title is None else title.text(),
        severity=Severity.TICKET if severity is None else Severity(severity.choice(*Severity)),
        test=_read_test(given[0]),
        select=selected,
        labels={} if labels is None else labels.section().texts(),
        pending_s=duration_s(pending) if pending else Fraction(0),
        keep_firing_s=duration_s(keep) if keep else Fraction(0),
    )


def _read_test(value: Value) -> Test:
    section = value.section()
    test: Test
    if value.name == "absence":
        test = Absence(duration_s(section.required("after")))
    elif value.name == "threshold":
        least = section.optional("minRequests")
        test = Threshold(
            section.required("measure").choice(*MEASURES, *CACHE_MEASURES),
            section.required("op").choice("gt", "lt"),
            float(section.required("value").number("a number")),
            duration_s(section.required("over")),
            20 if least is None else int(least.number("a whole number")),
        )
    elif value.name == "gauge":
        per = section.optional("per")
        divisor = None if per is None else per.section()
        test = Gauge(
            _read_source(section),
            None if divisor is None else _read_source(divisor),
            section.required("op").choice("gt", "lt"),
            float(section.required("value").number("a number")),
            duration_s(section.required("over")),
        )
        if divisor is not None:
            divisor.close()
    else:
        direction = section.optional("direction")
        over = section.required("over")
        over_s = duration_s(over)
        if not 1200 <= over_s <= 43200:
            raise over.error("20m to 12h: change points are searched in its minutes")
        recent = section.optional("recent")
        effect = section.required("minEffect")
        if effect.number("a ratio such as 0.2") <= 0:
            raise effect.error("a ratio such as 0.2")
        test = Anomaly(
            section.required("measure").choice(*MEASURES),
            over_s,
            over_s / 2 if recent is None else duration_s(recent),
            float(effect.number("a ratio such as 0.2")),
            "up" if direction is None else direction.choice("up", "down", "any"),
        )
    section.close()
    return test


def _read_source(section: Section) -> GaugeSource:
    metric, where = section.required("metric"), section.optional("where")
    return GaugeSource(metric.text(), {} if where is None else where.section().texts())
