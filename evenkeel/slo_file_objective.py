"""Reads what an SLO of a file counts: its objective, its indicator, its period."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from evenkeel.durations import parse_duration_s
from evenkeel.errors import ConfigurationError
from evenkeel.slo_calendar import Calendar, CalendarUnit
from evenkeel.slo_model import (
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
from evenkeel.yaml_source import Value

OUR_SOURCE = "evenkeel"
_WRITTEN_METRICS = tuple(m for m in Metric if m not in (Metric.JOINT, Metric.COMPOSITE))


@dataclass(frozen=True, slots=True)
class Objective:
    """The first and only element of `objectives`; `threshold` is read with the indicator."""

    target: Fraction
    threshold: Value | None
    slicing: Slicing | None


@dataclass(frozen=True, slots=True)
class Period:
    """What the budget belongs to: a rolling length, or the periods of a calendar."""

    length_s: Fraction
    calendar: Calendar | None = None


def read_objective(objectives: Value, method_value: Value | None) -> Objective:
    """Return the objective.

    Raises:
        ConfigurationError: If it is not one, or its target is no fraction.
    """
    elements = list(objectives.items())
    if len(elements) != 1:
        raise objectives.complaint(f"objectives has {len(elements)} elements, expected one")
    section = elements[0].section()
    section.optional("displayName")
    target = _fraction(section.required("target"))
    op, threshold = section.optional("op"), section.optional("value")
    slice_target, window = (
        section.optional("timeSliceTarget"),
        section.optional("timeSliceWindow"),
    )
    section.close()
    if op is not None:
        op.choice("lte")
    method = Method.OCCURRENCES if method_value is None else Method(method_value.choice(*Method))
    if method is Method.OCCURRENCES:
        for value in (slice_target, window):
            if value is not None:
                raise value.complaint(f"{value.name} belongs to a budgetingMethod of time slices")
        return Objective(target, threshold, None)
    length_s = Fraction(60) if window is None else duration_s(window)
    if method is Method.RATIO_TIMESLICES:
        if slice_target is not None:
            raise slice_target.complaint("timeSliceTarget belongs to Timeslices: here ratios count")
        return Objective(target, threshold, Slicing(method, length_s))
    if slice_target is None:
        raise objectives.complaint("Timeslices needs objectives[0].timeSliceTarget")
    return Objective(target, threshold, Slicing(method, length_s, _fraction(slice_target)))


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
    if composite is not None:
        section.close()
        return Indicator(Metric.COMPOSITE, None, members=_read_members(composite, others))
    if limits is not None:
        metric, threshold_s, joint = Metric.JOINT, None, _read_limits(limits)
    else:
        metric = Metric(given[0].choice(*_WRITTEN_METRICS))
        threshold_s, joint = _read_threshold(metric, given[0], threshold), {}
    columns = EVAL_SELECTOR_COLUMNS if metric is Metric.EVAL_PASS else SELECTOR_COLUMNS
    select = read_select(section.optional("select"), columns)
    # Tokens of a request that failed were drafted and cached like any other.
    usual = Treatment.MEASURED if metric in TOKEN_RATIOS else Treatment.BAD
    error, aborted, shed = (_treatment(section.optional(k), usual) for k in _TREATED)
    section.close()
    return Indicator(metric, threshold_s, select, error, aborted, shed, joint)


_TREATED = ("error", "aborted", "shed")


def _treatment(value: Value | None, usual: Treatment) -> Treatment:
    return usual if value is None else Treatment(value.choice(*Treatment))


def _unwrapped(value: Value) -> Value:
    """Return our words out of OpenSLO's `spec.ratioMetric.total.metricSource.spec`."""
    section = value.section()
    spec = section.optional("spec")
    if spec is None and "ratioMetric" in section.names:
        spec = value
    if spec is None:
        return value
    ratio = spec.section().required("ratioMetric").section()
    source = ratio.required("total").section().required("metricSource").section()
    source.required("type").choice(OUR_SOURCE)
    return source.required("spec")


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


def read_select(value: Value | None, columns: tuple[str, ...]) -> dict[str, str]:
    """Return the columns that must have a value; none are wanted where there is no `select`."""
    if value is None:
        return {}
    section = value.section()
    select = {
        column: wanted.text()
        for column in columns
        if (wanted := section.optional(column)) is not None
    }
    section.close()
    return select


def _read_members(value: Value, others: Mapping[str, Indicator]) -> tuple[Member, ...]:
    members = []
    for element in value.items():
        section = element.section()
        name, weight_value = section.required("slo"), section.optional("weight")
        section.close()
        indicator = others.get(name.text())
        if indicator is None or indicator.members:
            raise name.error("the name of a plain SLO further up in the file")
        weight = Fraction(1) if weight_value is None else weight_value.number("a positive weight")
        if weight_value is not None and weight <= 0:
            raise weight_value.error("a positive weight")
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
    duration, is_rolling = section.required("duration"), section.required("isRolling")
    calendar_value = section.optional("calendar")
    section.close()
    if is_rolling.choice("true", "false") == "false":
        if calendar_value is None:
            raise is_rolling.complaint("a period that is not rolling needs calendar.timeZone")
        calendar = _read_calendar(duration, calendar_value)
        return Period(calendar.nominal_s, calendar)
    if calendar_value is not None:
        raise calendar_value.complaint("a rolling period has no calendar")
    period_s = duration_s(duration)
    if period_s > 400 * 86400:
        raise duration.error("at most 400d")
    return Period(period_s)


def _read_calendar(duration: Value, value: Value) -> Calendar:
    letters = {f"1{unit}": unit for unit in CalendarUnit}
    unit = letters[duration.choice(*letters)]
    section = value.section()
    zone = section.required("timeZone")
    # OpenSLO asks for a start; periods here begin with the day, week, month, quarter or year.
    section.optional("startTime")
    section.close()
    try:
        return Calendar(unit, ZoneInfo(zone.text()))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise zone.error("an IANA time zone such as Europe/Berlin") from None


def duration_s(value: Value) -> Fraction:
    """Return the seconds of a duration.

    Raises:
        ConfigurationError: If it is none.
    """
    try:
        return parse_duration_s(value.text())
    except ConfigurationError:
        raise value.error("a duration such as 30d, 1h, 5m, 90s or 250ms") from None
