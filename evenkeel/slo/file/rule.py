"""Reads the documents of kind Rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.file.select import read_grouping, read_select
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
from evenkeel.slo.spike_measures import SPIKE_MEASURES, SpikeKind
from evenkeel.slo.spikes import Spike
from evenkeel.slo.yaml_source import Section, Value

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def read_rule(section: Section) -> Rule:
    """Return the rule of one document; `apiVersion` and `kind` are already consumed.

    Raises:
        ConfigurationError: On anything missing, unknown or out of range.
    """
    with section, section.required("metadata").section() as metadata:
        spec_value, name = section.required("spec"), metadata.read("name", _read_name)
        title = metadata.read_or("displayName", name, Value.text)
        labels = metadata.read_or("labels", {}, Value.text_by_key)
    section.value.subject = spec_value.subject = f"rule {name!r}"
    with spec_value.section() as spec:
        severity = spec.read_or("severity", Severity.TICKET, Value.choice, *Severity)
        given = [each for kind in _TESTS if (each := spec.optional(kind)) is not None]
        select, pending = (
            spec.optional("select"),
            spec.read_or("for", Fraction(0), Value.duration_or_zero_s),
        )
        keep = spec.read_or("keepFiringFor", Fraction(0), Value.duration_or_zero_s)
        helps = spec.read_or("helps", "", Value.text)
        spec.optional("description")
    if len(given) != 1:
        raise spec_value.complaint("give one of threshold, anomaly, spike, absence and gauge")
    selected = read_select(select, SELECTOR_COLUMNS)
    if select is not None and given[0].name == "gauge" and set(selected) - {"model"}:
        raise select.complaint("a gauge belongs to an engine: select takes only model; use where")
    with given[0].section() as section:
        test = _TESTS[given[0].name](section)
    if isinstance(test, Spike):
        twice = [column for column in test.by if column in selected]
        if twice:
            raise given[0].complaint(f"groupBy has {twice[0]}, which select has already", "groupBy")
        helps = helps or test.about.helps
    return Rule(name, title, severity, test, selected, labels, pending, keep, helps)


def _read_name(value: Value) -> str:
    if not _NAME.fullmatch(value.text()):
        raise value.error("lower-case letters, digits and dashes, 63 at most")
    return value.text()


def _read_absence(section: Section) -> Absence:
    return Absence(section.read("after", Value.duration_s))


def _read_threshold(section: Section) -> Threshold:
    measure = section.read("measure", Value.choice, *MEASURES, *CACHE_MEASURES)
    return Threshold(
        measure,
        section.read("op", Value.choice, "gt", "lt"),
        float(section.read("value", _read_limit, measure)),
        section.read("over", Value.duration_s),
        int(section.read_or("minRequests", 20, Value.number, "a whole number")),
    )


def _read_limit(value: Value, measure: str) -> Fraction:
    if measure.endswith("_ratio") or measure == "cache_wrong_upper":
        return value.number("a ratio such as 0.05", lambda n: 0 <= n <= 1)
    return value.number("a number")


def _read_gauge(section: Section) -> Gauge:
    return Gauge(
        _read_source(section),
        section.read_or("per", None, _read_other),
        section.read("op", Value.choice, "gt", "lt"),
        float(section.read("value", Value.number, "a number")),
        section.read("over", Value.duration_s),
        section.read_or("whileZero", None, _read_other),
        section.read_or("eachSeries", False, Value.flag),
    )


def _read_other(value: Value) -> GaugeSource:
    with value.section() as section:
        return _read_source(section)


def _read_source(section: Section) -> GaugeSource:
    return GaugeSource(
        section.read("metric", Value.text), section.read_or("where", {}, Value.text_by_key)
    )


def _read_anomaly(section: Section) -> Anomaly:
    over = section.required("over")
    over_s = over.duration_s()
    if not 1200 <= over_s <= 43200:
        raise over.error("20m to 12h: change points are searched for minute by minute")
    return Anomaly(
        section.read("measure", Value.choice, *MEASURES),
        over_s,
        section.read_or("recent", over_s / 2, Value.duration_s),
        float(section.read("minEffect", Value.number, "a ratio such as 0.2", lambda n: n > 0)),
        section.read_or("direction", "up", Value.choice, "up", "down", "any"),
    )


def _read_spike(section: Section) -> Spike:
    measure = section.read("measure", Value.choice, *SPIKE_MEASURES)
    is_tokens = SPIKE_MEASURES[measure].kind is SpikeKind.TOKENS
    by, most = section.optional("groupBy"), section.optional("maxGroups")
    default = Spike(measure, Fraction(300), min_effect=0.5 if is_tokens else 0.05)
    columns = default.by if by is None else _read_columns(by)
    num = default.most if most is None else int(most.number("1 to 1000", _is_number_of_cohorts))
    over = section.required("over")
    if not 10 <= over.duration_s() <= 3600:
        raise over.error("10s to 1h")
    quantile, above = section.optional("quantile"), section.optional("above")
    if quantile is not None and not is_tokens:
        raise quantile.complaint("quantile is for tokens; this is a share of requests")
    if above is not None and measure != "repeated_share":
        raise above.complaint("above is for repeated_share: which answers count as repetitive")
    return Spike(
        measure,
        over.duration_s(),
        columns,
        float(section.read_or("minEffect", default.min_effect, _read_effect, is_tokens)),
        int(section.read_or("minRequests", default.min_requests, _read_requests)),
        default.quantile if quantile is None else float(quantile.choice("0.5", "0.9")),
        default.above if above is None else float(above.number("0.05 to 1", _is_above)),
        num,
    )


def _read_effect(value: Value, is_tokens: bool) -> Fraction:
    if is_tokens:
        return value.number("a relative increase from 0.1 to 100", lambda n: 0.1 <= n <= 100)
    return value.number("an increase of the share from 0.005 to 0.9", lambda n: 0.005 <= n <= 0.9)


def _read_requests(value: Value) -> Fraction:
    return value.number(
        "a whole number from 10 to 1000000", lambda n: n.denominator == 1 and 10 <= n <= 1_000_000
    )


def _read_columns(value: Value) -> tuple[str, ...]:
    grouping = read_grouping(value, None, ())
    return () if grouping is None else grouping.columns


def _is_number_of_cohorts(number: Fraction) -> bool:
    return number.denominator == 1 and 1 <= number <= 1000


def _is_above(number: Fraction) -> bool:
    return 0.05 <= number <= 1


_TESTS: dict[str, Callable[[Section], Test]] = {
    "threshold": _read_threshold,
    "anomaly": _read_anomaly,
    "spike": _read_spike,
    "absence": _read_absence,
    "gauge": _read_gauge,
}
