"""Reads an SLO's objective, indicator and period from a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from evenkeel.slo.calendar import Calendar, CalendarUnit
from evenkeel.slo.file.select import read_grouping, read_selection, read_statuses
from evenkeel.slo.model import (
    DURATIONS,
    EVAL_SELECTOR_COLUMNS,
    SELECTOR_COLUMNS,
    SESSION_SELECTOR_COLUMNS,
    SESSIONS,
    SILENCE_S,
    TOKEN_RATIOS,
    Indicator,
    Member,
    Method,
    Metric,
    Slicing,
    Treatment,
)
from evenkeel.slo.yaml_source import Section, Value

OUR_SOURCE = "evenkeel"
OPERATORS = ("lte", "lt", "gte", "gt")
_WRITTEN_METRICS = tuple(m for m in Metric if m not in (Metric.JOINT, Metric.COMPOSITE))


@dataclass(frozen=True, slots=True)
class Objective:
    """An element of `objectives`; `threshold` is read with the indicator.

    `target` is None if none is written. `is_strict`: only values below the threshold are good, not
    those equal to it.
    """

    target: Fraction | None
    threshold: Value | None
    slicing: Slicing | None
    is_strict: bool
    title: Value | None


@dataclass(frozen=True, slots=True)
class Period:
    """The period a budget covers: a rolling length, or calendar periods."""

    length_s: Fraction
    calendar: Calendar | None = None


def read_objective(element: Value, method: Method) -> Objective:
    """Return one element of `objectives`.

    Raises:
        ConfigurationError: If its target is not a fraction, or its time slices do not fit the
            budgeting method.
    """
    with element.section() as section:
        for name in ("indicator", "indicatorRef", "ratioMetrics"):
            section.optional(name)
        title = section.optional("displayName")
        target, threshold = _read_target(section), section.optional("value")
        op = section.read_or("op", "lte", Value.choice, *OPERATORS)
        slice_target, length = (
            section.optional(name) for name in ("timeSliceTarget", "timeSliceWindow")
        )
    slicing = None
    if method is Method.OCCURRENCES:
        for value in (slice_target, length):
            if value is not None:
                raise value.complaint(f"{value.name} requires a budgetingMethod of time slices")
    else:
        if method is Method.RATIO_TIMESLICES and slice_target is not None:
            raise slice_target.complaint("timeSliceTarget requires Timeslices; this counts ratios")
        if method is Method.TIMESLICES and slice_target is None:
            raise element.complaint(f"Timeslices needs {element.name}.timeSliceTarget")
        slicing = Slicing(
            method,
            Fraction(60) if length is None else length.duration_s(),
            None if slice_target is None else _fraction(slice_target),
        )
    return Objective(target, threshold, slicing, op == "lt", title)


def check_target(element: Value, objective: Objective, indicator: Indicator) -> Fraction:
    """Return the target of an objective; 0 for a budget in money, which has none.

    Raises:
        ConfigurationError: If it has none but needs one, or the other way round.
    """
    if indicator.metric is not Metric.COST:
        return (
            element.section().read("target", _fraction)
            if objective.target is None
            else (objective.target)
        )
    if objective.target is not None:
        raise element.complaint("cost takes no target: value is what a period may cost")
    if objective.slicing is not None:
        raise element.complaint("cost has no time slices: use the budgetingMethod Occurrences")
    return Fraction(0)


def _read_target(section: Section) -> Fraction | None:
    percent = section.optional("targetPercent")
    if percent is None:
        return section.read_or("target", None, _fraction)
    target = percent.number("a percentage such as 99.5", lambda n: 1 <= n < 100) / 100
    if section.read_or("target", target, _fraction) != target:
        raise percent.complaint("target and targetPercent differ; give one")
    return target


def _fraction(value: Value) -> Fraction:
    return value.number("a fraction such as 0.995", lambda n: 0 < n < 1)


def read_indicator(
    value: Value, threshold: Value | None, others: Mapping[str, Indicator]
) -> Indicator:
    """Return the indicator.

    Args:
        value: The indicator, in our format or as an OpenSLO ratio metric of type `evenkeel`.
        threshold: The objective's value, or None.
        others: The indicators of earlier SLOs, which a composite may name.

    Raises:
        ConfigurationError: On an unknown metric, or a threshold that is missing or not allowed.
    """
    value = _unwrapped(value)
    with value.section() as section:
        composite, limits, single = (
            section.optional(name) for name in ("composite", "all", "metric")
        )
        given = [each for each in (composite, limits, single) if each is not None]
        if len(given) != 1:
            raise value.complaint("give one of metric, all and composite")
        if threshold is not None and single is None:
            raise threshold.complaint("value applies to a single metric, not to all or composite")
        group_by, most = section.optional("groupBy"), section.optional("maxGroups")
        if composite is not None:
            members = _read_members(composite, others)
            selected = [column for member in members for column in member.indicator.select]
            grouping = read_grouping(group_by, most, selected)
            for member in members:
                _check_groups(value, replace(member.indicator, grouping=grouping))
            return Indicator(Metric.COMPOSITE, None, members=members, grouping=grouping)
        metric = Metric.JOINT if single is None else single.choice(*_WRITTEN_METRICS)
        columns = _columns_of(metric)
        select, filters = read_selection(section.optional("select"), columns)
        budget = _read_budget(metric, single, threshold, section)
        # A failed request's tokens were drafted and cached like any other.
        usual = Treatment.MEASURED if metric in TOKEN_RATIOS else Treatment.BAD
        indicator = Indicator(
            metric,
            None
            if single is None or budget is not None
            else _read_threshold(metric, single, threshold),
            select,
            section.read_or("error", usual, Value.choice, *Treatment),
            section.read_or("aborted", usual, Value.choice, *Treatment),
            section.read_or("shed", usual, Value.choice, *Treatment),
            {} if limits is None else _read_limits(limits),
            filters=filters,
            statuses=read_statuses(section.optional("httpStatus")),
            grouping=read_grouping(group_by, most, tuple(select)),
            most_turns=_read_turns(metric, single, threshold),
            silence_s=section.read_or("silence", SILENCE_S, Value.duration_s),
            budget=budget,
        )
    _check_answers(value, indicator)
    _check_groups(value, indicator)
    return indicator


def _check_answers(value: Value, indicator: Indicator) -> None:
    """Refuse what only metrics of single answers, or only metrics of sessions, may have."""
    metric = indicator.metric
    if metric is Metric.FEEDBACK and indicator.statuses:
        raise value.complaint("feedback has no httpStatus: it counts scores of answers")
    if metric is Metric.EVAL_PASS and (
        indicator.filters or indicator.statuses or indicator.grouping
    ):
        raise value.complaint(
            "eval_pass selects single values; its answers have no httpStatus and no groups"
        )
    if metric not in SESSIONS and indicator.silence_s != SILENCE_S:
        raise value.complaint("silence is how long sessions must be silent to be over", "silence")
    if metric in SESSIONS and indicator.statuses:
        raise value.complaint(f"{metric} has no httpStatus: a session has many answers")


def _check_groups(value: Value, indicator: Indicator) -> None:
    grouping, metric = indicator.grouping, indicator.metric
    columns = [name for name in SELECTOR_COLUMNS if name in _columns_of(metric)]
    if grouping and set(grouping.columns) - set(columns):
        names = ", ".join(columns)
        raise value.complaint(f"{metric} can be grouped by {names}, not by other columns")


def _columns_of(metric: Metric) -> tuple[str, ...]:
    if metric is Metric.EVAL_PASS:
        return EVAL_SELECTOR_COLUMNS
    return SESSION_SELECTOR_COLUMNS if metric in SESSIONS else SELECTOR_COLUMNS


def _unwrapped(value: Value) -> Value:
    """Return our keys from OpenSLO's `spec.ratioMetric.total.metricSource.spec`."""
    spec = value.at("spec") or value
    for kind in ("ratioMetric", "ratioMetrics", "thresholdMetric"):
        metric = spec.at(kind)
        if metric is None:
            continue
        part = metric.at("total") or metric.at("good") or metric.at("bad") or metric
        query = part.at("query")
        if query is not None:
            # v1alpha has only text: our keys on one line.
            return next(iter(query.embedded()), query)
        source = part.at("metricSource") or part
        return source.at("spec") or source.section().required("spec")
    return value


def _read_threshold(metric: Metric, at: Value, threshold: Value | None) -> float | None:
    if metric is Metric.SESSION_TURNS:
        return None
    if metric not in (*DURATIONS, Metric.SESSION_E2E):
        if threshold is not None:
            raise threshold.complaint(f"{metric} takes no value: it is already a ratio")
        return None
    if threshold is None:
        raise at.complaint(f"{metric} needs objectives[0].value, in seconds")
    return _seconds(threshold)


def _read_turns(metric: Metric, at: Value | None, threshold: Value | None) -> int | None:
    if metric is not Metric.SESSION_TURNS or at is None:
        return None
    if threshold is None:
        raise at.complaint(f"{metric} needs objectives[0].value, the most turns that are good")
    return _whole(threshold)


def _read_budget(
    metric: Metric, at: Value | None, threshold: Value | None, section: Section
) -> float | None:
    """Return what the requests of a period may cost; None if the metric is another."""
    if metric is not Metric.COST or at is None:
        return None
    for name in ("error", "aborted", "shed", "httpStatus"):
        treatment = section.optional(name)
        if treatment is not None:
            raise treatment.complaint(f"cost takes no {name}: every request with a cost counts")
    if threshold is None:
        raise at.complaint("cost needs objectives[0].value, what a period may cost")
    return float(threshold.number("an amount such as 100", lambda n: 0 < n <= 10**12))


def _seconds(value: Value) -> float:
    return float(value.number("seconds such as 0.5", lambda n: n > 0))


def _read_limits(value: Value) -> dict[Metric, float]:
    with value.section() as section:
        read = {metric: section.read_or(metric.value, None, _seconds) for metric in DURATIONS}
    limits = {metric: limit for metric, limit in read.items() if limit is not None}
    if not limits:
        raise value.complaint(f"all is empty; name some of {', '.join(DURATIONS)}")
    return limits


def _read_members(value: Value, others: Mapping[str, Indicator]) -> tuple[Member, ...]:
    members = value.each(lambda element: _read_member(element, others))
    if len(members) < 2:
        raise value.complaint("a composite has at least two members")
    return members


def _read_member(element: Value, others: Mapping[str, Indicator]) -> Member:
    with element.section() as section:
        written, threshold = section.optional("indicator"), section.optional("value")
        weight = section.read_or(
            "weight",
            Fraction(1),
            Value.number,
            "a weight from 0.000001 to 1000000",
            lambda n: Fraction(1, 10**6) <= n <= 10**6,
        )
        if written is None:
            name = section.required("slo")
            found = others.get(name.text())
            if found is None or found.members or found.budget or threshold is not None:
                raise name.error("the name of a plain SLO earlier in the file")
            return Member(replace(found, grouping=None), weight)
        indicator = read_indicator(written, threshold, {})
        if indicator.budget is not None:
            raise written.complaint("a composite counts requests, not money")
        if indicator.grouping is not None:
            raise written.complaint("groupBy goes on the composite, not on a member")
        return Member(indicator, weight)


def read_period(value: Value) -> Period:
    """Return the rolling or calendar period.

    Raises:
        ConfigurationError: If there is not exactly one, or its zone does not exist.
    """
    elements = list(value.items())
    if len(elements) != 1:
        raise value.complaint(f"timeWindow has {len(elements)} elements, expected one")
    with elements[0].section() as section:
        calendar_value, rolling = section.optional("calendar"), section.optional("isRolling")
        unit, number = section.optional("unit"), section.read_or("count", 1, _whole)
        at = section.required("duration") if unit is None else unit
    is_rolling = calendar_value is None if rolling is None else rolling.flag()
    if rolling is not None and not is_rolling and calendar_value is None:
        raise rolling.complaint("a period that is not rolling needs calendar.timeZone")
    if is_rolling and calendar_value is not None:
        raise calendar_value.complaint("a rolling period has no calendar")
    if unit is None:
        match = _LENGTH.fullmatch(at.text())
        number, letter = (int(match[1]), match[2]) if match else (0, "")
    else:
        letter = _V1ALPHA_UNITS.get(unit.text().capitalize(), "")
        if not letter:
            raise unit.error(" or ".join(_V1ALPHA_UNITS))
    if calendar_value is not None:
        calendar = _read_calendar(at, number, letter, calendar_value)
        period = Period(calendar.nominal_s, calendar)
    elif number and letter not in _SECONDS:
        # Months and longer roll by their nominal length.
        period = Period(Calendar(CalendarUnit(letter), ZoneInfo("UTC"), number).nominal_s)
    else:
        period = Period(Fraction(_SECONDS[letter] * number) if number else at.duration_s())
    if period.length_s > 400 * 86400:
        raise at.error("at most 400d")
    return period


# v1alpha's unit names as OpenSLO v1's letters; both Day and day are in use.
_V1ALPHA_UNITS = {
    "Second": "s", "Minute": "m", "Hour": "h", "Day": "d", "Week": "w", "Month": "M",
    "Quarter": "Q", "Year": "Y",
}  # fmt: skip
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
_LENGTH = re.compile(r"(\d{1,4})([dwMQYm])", re.ASCII)


def _whole(value: Value) -> int:
    return int(value.number("a whole number such as 30", lambda n: n.denominator == 1 <= n))


def _read_calendar(at: Value, number: int, letter: str, value: Value) -> Calendar:
    # No budget covers a calendar minute: as in OpenSLO's own example, m means month here.
    letter = "M" if letter == "m" else letter
    if not number or letter not in tuple(CalendarUnit):
        raise at.error(
            "a calendar period such as " + ", ".join(f"1{unit}" for unit in CalendarUnit)
        )
    with value.section() as section:
        zone = section.read("timeZone", Value.zone)
        start = section.read_or("startTime", None, _start)
    if start is None and number > 1:
        raise at.complaint(f"{at.name} is {at.text()}: several units need calendar.startTime")
    return Calendar(CalendarUnit(letter), zone, number, start)


def _start(value: Value) -> datetime:
    try:
        start = datetime.fromisoformat(value.text())
    except ValueError:
        start = None
    if start is None or start.tzinfo is not None or not 1970 <= start.year <= 2200:
        raise value.error("a local time such as 2026-01-01 00:00:00, without a zone")
    return start
