"""Reads what an SLO of a file counts: its objective, its indicator, its period."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from evenkeel.durations import parse_duration_s
from evenkeel.errors import ConfigurationError
from evenkeel.slo.calendar import Calendar, CalendarUnit
from evenkeel.slo.file_select import read_grouping, read_selection, read_statuses
from evenkeel.slo.model import (
    DURATIONS,
    EVAL_SELECTOR_COLUMNS,
    SELECTOR_COLUMNS,
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

    `is_strict`: only what is below the threshold is good, not what equals it.
    """

    target: Fraction
    threshold: Value | None
    slicing: Slicing | None
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class Period:
    """What the budget belongs to: a rolling length, or the periods of a calendar."""

    length_s: Fraction
    calendar: Calendar | None = None


def read_objective(element: Value, method_value: Value | None) -> Objective:
    """Return one element of `objectives`.

    Raises:
        ConfigurationError: If its target is no fraction, or what it says of time slices does not
            fit the budgeting method.
    """
    section = element.section()
    for name in ("displayName", "indicator", "indicatorRef", "ratioMetrics"):
        section.optional(name)
    target = _read_target(section)
    op, threshold = section.optional("op"), section.optional("value")
    slice_target, window = (
        section.optional("timeSliceTarget"),
        section.optional("timeSliceWindow"),
    )
    section.close()
    if op is not None:
        op.choice(*OPERATORS)
    is_strict = op is not None and op.text() == "lt"
    method = Method.OCCURRENCES if method_value is None else Method(method_value.choice(*Method))
    if method is Method.OCCURRENCES:
        for value in (slice_target, window):
            if value is not None:
                raise value.complaint(f"{value.name} belongs to a budgetingMethod of time slices")
        return Objective(target, threshold, None, is_strict)
    length_s = Fraction(60) if window is None else duration_s(window)
    if method is Method.RATIO_TIMESLICES:
        if slice_target is not None:
            raise slice_target.complaint("timeSliceTarget belongs to Timeslices: here ratios count")
        return Objective(target, threshold, Slicing(method, length_s), is_strict)
    if slice_target is None:
        raise element.complaint(f"Timeslices needs {element.name}.timeSliceTarget")
    slicing = Slicing(method, length_s, _fraction(slice_target))
    return Objective(target, threshold, slicing, is_strict)


def _read_target(section: Section) -> Fraction:
    percent = section.optional("targetPercent")
    if percent is None:
        return _fraction(section.required("target"))
    number = percent.number("a percentage such as 99.5")
    if not 0 < number < 100:
        raise percent.error("a percentage such as 99.5")
    target = section.optional("target")
    if target is not None and _fraction(target) != number / 100:
        raise percent.complaint("target and targetPercent differ; give one")
    return number / 100


def _fraction(value: Value) -> Fraction:
    fraction = value.number("a fraction such as 0.995")
    if not 0 < fraction < 1:
        raise value.error("a fraction such as 0.995")
    return fraction


def read_indicator(
    value: Value, threshold: Value | None, others: Mapping[str, Indicator]
) -> Indicator:
    """Return the indicator.

    Args:
        value: The indicator, in our words or as an OpenSLO ratio metric of type `evenkeel`.
        threshold: The objective's value, or None.
        others: The indicators of the SLOs before it, which a composite may name.

    Raises:
        ConfigurationError: On an unknown metric, a threshold too many or too few.
    """
    section = _unwrapped(value).section()
    composite, limits, metric_value = (
        section.optional(key) for key in ("composite", "all", "metric")
    )
    given = [v for v in (composite, limits, metric_value) if v is not None]
    if len(given) != 1:
        raise section.value.complaint("give one of metric, all and composite")
    if threshold is not None and (composite is not None or limits is not None):
        raise threshold.complaint("value belongs to a single metric, not to all or composite")
    group_by, most = section.optional("groupBy"), section.optional("maxGroups")
    if composite is not None:
        section.close()
        members = _read_members(composite, others)
        grouping = read_grouping(group_by, most, ())
        return Indicator(Metric.COMPOSITE, None, members=members, grouping=grouping)
    if limits is not None:
        metric, threshold_s, joint = Metric.JOINT, None, _read_limits(limits)
    else:
        metric = Metric(given[0].choice(*_WRITTEN_METRICS))
        threshold_s, joint = _read_threshold(metric, given[0], threshold), {}
    columns = EVAL_SELECTOR_COLUMNS if metric is Metric.EVAL_PASS else SELECTOR_COLUMNS
    select, filters = read_selection(section.optional("select"), columns)
    statuses_value = section.optional("httpStatus")
    # Tokens of a request that failed were drafted and cached like any other.
    usual = Treatment.MEASURED if metric in TOKEN_RATIOS else Treatment.BAD
    error, aborted, shed = (_treatment(section.optional(k), usual) for k in _TREATED)
    section.close()
    if metric is Metric.EVAL_PASS and (filters or statuses_value or group_by):
        raise section.value.complaint(
            "eval_pass selects single values; its answers have no httpStatus and no groups"
        )
    return Indicator(
        metric, threshold_s, select, error, aborted, shed, joint,
        filters=filters,
        statuses=read_statuses(statuses_value),
        grouping=read_grouping(group_by, most, tuple(select)),
    )  # fmt: skip


_TREATED = ("error", "aborted", "shed")


def _treatment(value: Value | None, usual: Treatment) -> Treatment:
    return usual if value is None else Treatment(value.choice(*Treatment))


def _unwrapped(value: Value) -> Value:
    """Return our words out of OpenSLO's `spec.ratioMetric.total.metricSource.spec`."""
    spec = value.at("spec") or value
    for kind in ("ratioMetric", "ratioMetrics", "thresholdMetric"):
        metric = spec.at(kind)
        if metric is None:
            continue
        part = metric.at("total") or metric.at("good") or metric.at("bad") or metric
        query = part.at("query")
        if query is not None:
            # v1alpha has text alone: our words in a line.
            return next(iter(query.embedded()), query)
        source = part.at("metricSource") or part
        return source.at("spec") or source.section().required("spec")
    return value


def _read_threshold(metric: Metric, at: Value, threshold: Value | None) -> float | None:
    if metric not in DURATIONS:
        if threshold is not None:
            raise threshold.complaint(f"{metric} takes no value: it is a share already")
        return None
    if threshold is None:
        raise at.complaint(f"{metric} needs objectives[0].value, in seconds")
    return _seconds(threshold)


def _seconds(value: Value) -> float:
    seconds = value.number("seconds such as 0.5")
    if seconds <= 0:
        raise value.error("seconds such as 0.5")
    return float(seconds)


def _read_limits(value: Value) -> dict[Metric, float]:
    section = value.section()
    limits = {
        metric: _seconds(limit)
        for metric in DURATIONS
        if (limit := section.optional(metric.value)) is not None
    }
    section.close()
    if not limits:
        raise value.complaint(f"all is empty; name some of {', '.join(DURATIONS)}")
    return limits


def _read_members(value: Value, others: Mapping[str, Indicator]) -> tuple[Member, ...]:
    members = []
    for element in value.items():
        section = element.section()
        written, weight_value = section.optional("indicator"), section.optional("weight")
        threshold = section.optional("value")
        if written is None:
            name = section.required("slo")
            found = others.get(name.text())
            if found is None or found.members or threshold is not None:
                raise name.error("the name of a plain SLO further up in the file")
            indicator = replace(found, grouping=None)
        else:
            indicator = read_indicator(written, threshold, {})
            if indicator.grouping is not None:
                raise written.complaint("groupBy belongs to the composite, not to a member")
        section.close()
        expected = "a weight from 0.000001 to 1000000"
        weight = Fraction(1) if weight_value is None else weight_value.number(expected)
        if weight_value is not None and not Fraction(1, 10**6) <= weight <= 10**6:
            raise weight_value.error(expected)
        members.append(Member(indicator, weight))
    if len(members) < 2:
        raise value.complaint("a composite has at least two members")
    return tuple(members)


def read_period(value: Value) -> Period:
    """Return the rolling or calendar period.

    Raises:
        ConfigurationError: If there is not one, or its zone does not exist.
    """
    elements = list(value.items())
    if len(elements) != 1:
        raise value.complaint(f"timeWindow has {len(elements)} elements, expected one")
    section = elements[0].section()
    calendar_value, rolling = section.optional("calendar"), section.optional("isRolling")
    unit, count = section.optional("unit"), section.optional("count")
    duration = section.required("duration") if unit is None else None
    section.close()
    is_rolling = calendar_value is None
    if rolling is not None:
        is_rolling = rolling.choice("true", "false") == "true"
        if not is_rolling and calendar_value is None:
            raise rolling.complaint("a period that is not rolling needs calendar.timeZone")
    at, (number, letter) = _length(duration, unit, count)
    if is_rolling:
        if calendar_value is not None:
            raise calendar_value.complaint("a rolling period has no calendar")
        # Months and longer roll by their nominal length.
        is_calendar_unit = letter in (CalendarUnit.MONTH, CalendarUnit.QUARTER, CalendarUnit.YEAR)
        nominal = Calendar(CalendarUnit(letter), ZoneInfo("UTC")) if is_calendar_unit else None
        period_s = duration_s(at) if nominal is None and unit is None else Fraction(0)
        if nominal is not None:
            period_s = nominal.nominal_s * number
        elif unit is not None:
            period_s = Fraction(_V1ALPHA_SECONDS[letter] * number)
        if period_s > 400 * 86400:
            raise at.error("at most 400d")
        return Period(period_s)
    assert calendar_value is not None
    calendar = _read_calendar(at, number, letter, calendar_value)
    if calendar.nominal_s > 400 * 86400:
        raise at.error("at most 400d")
    return Period(calendar.nominal_s, calendar)


# What v1alpha writes in words, as OpenSLO v1's letters.
_V1ALPHA_UNITS = {
    "Second": "s", "Minute": "m", "Hour": "h", "Day": "d", "Week": "w", "Month": "M",
    "Quarter": "Q", "Year": "Y",
}  # fmt: skip
_V1ALPHA_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
_LENGTH = re.compile(r"(\d{1,4})([dwMQYm])", re.ASCII)


def _length(
    duration: Value | None, unit: Value | None, count: Value | None
) -> tuple[Value, tuple[int, str]]:
    """Return the value that says the length, how many units it has, and the unit's letter."""
    if duration is not None:
        match = _LENGTH.fullmatch(duration.text())
        return duration, (int(match[1]), match[2]) if match and int(match[1]) else (0, "")
    assert unit is not None
    number = Fraction(1) if count is None else count.number("a whole number such as 30")
    if number.denominator != 1 or number < 1:
        assert count is not None
        raise count.error("a whole number such as 30")
    # Two spellings are found, Day and day.
    letter = _V1ALPHA_UNITS.get(unit.text().capitalize())
    if letter is None:
        raise unit.error(" or ".join(_V1ALPHA_UNITS))
    return unit, (int(number), letter)


def _read_calendar(at: Value, number: int, letter: str, value: Value) -> Calendar:
    # No budget lasts a calendar minute: as in OpenSLO's own example, m means a month here.
    letter = "M" if letter == "m" else letter
    if not number or letter not in tuple(CalendarUnit):
        raise at.error(
            "a calendar period such as " + ", ".join(f"1{unit}" for unit in CalendarUnit)
        )
    section = value.section()
    zone, start_value = section.required("timeZone"), section.optional("startTime")
    section.close()
    start = None if start_value is None else _start(start_value)
    if start is None and number > 1:
        raise at.complaint(f"{at.name} is {at.text()}: several units need calendar.startTime")
    try:
        return Calendar(CalendarUnit(letter), ZoneInfo(zone.text()), number, start)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise zone.error("an IANA time zone such as Europe/Berlin") from None


def _start(value: Value) -> datetime:
    try:
        start = datetime.fromisoformat(value.text())
    except ValueError:
        start = None
    if start is None or start.tzinfo is not None or not 1970 <= start.year <= 2200:
        raise value.error("a local time such as 2026-01-01 00:00:00, without a zone")
    return start


def duration_s(value: Value) -> Fraction:
    """Return the seconds of a duration.

    Raises:
        ConfigurationError: If it is none.
    """
    try:
        return parse_duration_s(value.text())
    except ConfigurationError:
        raise value.error("a duration such as 30d, 1h, 5m, 90s or 250ms") from None
