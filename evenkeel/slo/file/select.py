"""Reads an indicator's `select` and `httpStatus`: which requests count, and how."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evenkeel.errors import ConfigurationError
from evenkeel.slo.matchers import Matcher, Operator
from evenkeel.slo.model import SELECTOR_COLUMNS, Grouping, Treatment
from evenkeel.slo.selection import (
    LEAST_STATUS,
    MOST_STATUS,
    Filter,
    SelectOperator,
    StatusRange,
    disjoint_ranges,
)
from evenkeel.slo.yaml_source import Value

USUAL_GROUPS, MOST_GROUPS = 500, 2_000
_SHORT_COLUMNS = {"prompt": "prompt_name"}
MOST_VALUES, MOST_FILTERS, LONGEST_VALUE = 1_000, 20, 1_000
_CODES = re.compile(r"([1-5])xx|(\d{3})(?:-(\d{3}))?", re.ASCII | re.IGNORECASE)


def read_select(value: Value | None, columns: Sequence[str]) -> dict[str, str]:
    """Return the columns that must have one value; empty without `select`."""
    select, filters = read_selection(value, columns)
    if filters:
        assert value is not None
        raise value.complaint(
            f"{filters[0].column}: lists, not, matches and notMatches are for SLOs over requests;"
            " here a column has one value"
        )
    return select


def read_selection(
    value: Value | None, columns: Sequence[str]
) -> tuple[dict[str, str], tuple[Filter, ...]]:
    """Return the columns that must have one value, and further conditions.

    Raises:
        ConfigurationError: On an unknown column or condition, or an invalid RE2 pattern.
    """
    if value is None:
        return {}, ()
    select: dict[str, str] = {}
    filters: list[Filter] = []
    with value.section() as section:
        for column in columns:
            wanted = section.optional(column)
            if wanted is None:
                continue
            if wanted.is_section:
                filters += _read_conditions(wanted, column)
                continue
            values = _read_values(wanted)
            if len(values) == 1:
                select[column] = values[0]
            else:
                filters.append(_checked(Filter(column, SelectOperator.IN, values), wanted))
    if len(filters) > MOST_FILTERS:
        raise value.complaint(f"at most {MOST_FILTERS} conditions")
    return select, tuple(filters)


def _read_conditions(value: Value, column: str) -> list[Filter]:
    filters = []
    with value.section() as section:
        for test in SelectOperator:
            wanted = section.optional(test.value)
            if wanted is None:
                continue
            if test in (SelectOperator.IN, SelectOperator.NOT):
                values = _read_values(wanted)
            else:
                values = (_read_pattern(wanted, column),)
            filters.append(_checked(Filter(column, test, values), wanted))
    if not filters:
        raise value.complaint(f"{column} is empty; give {', '.join(SelectOperator)}")
    return filters


def _checked(given: Filter, value: Value) -> Filter:
    try:
        given.check()
    except ValueError as error:
        raise value.complaint(str(error)) from None
    return given


def _read_values(value: Value) -> tuple[str, ...]:
    if not value.is_list:
        return (value.text(),)
    values = tuple(dict.fromkeys(value.texts()))
    if not values or len(values) > MOST_VALUES or max(map(len, values)) > LONGEST_VALUE:
        raise value.complaint(
            f"{value.name} is a list of 1 to {MOST_VALUES} values, {LONGEST_VALUE} characters each"
        )
    return values


def _read_pattern(value: Value, column: str) -> str:
    text = value.text()
    try:
        Matcher(column, Operator.MATCHES, text)
    except ConfigurationError as error:
        raise value.complaint(str(error)) from None
    return text


def read_grouping(
    value: Value | None, most_value: Value | None, selected: Sequence[str]
) -> Grouping | None:
    """Return the columns to group SLOs by and the maximum number of groups; None without `groupBy`.

    Raises:
        ConfigurationError: On a column that is unknown, repeated, or selected.
    """
    if value is None:
        if most_value is not None:
            raise most_value.complaint("maxGroups requires groupBy")
        return None
    columns: list[str] = []
    for element in value.listed():
        name = element.choice(*SELECTOR_COLUMNS, *_SHORT_COLUMNS)
        column = _SHORT_COLUMNS.get(name, name)
        if column in columns or column in selected:
            twice = "selects" if column in selected else "has"
            raise element.complaint(f"groupBy has {name}, which it {twice} already")
        columns.append(column)
    if not columns:
        raise value.complaint(f"groupBy is empty; name some of {', '.join(SELECTOR_COLUMNS)}")
    if most_value is None:
        return Grouping(tuple(columns), USUAL_GROUPS)
    most = most_value.number(
        f"1 to {MOST_GROUPS}", lambda n: n.denominator == 1 <= n <= MOST_GROUPS
    )
    return Grouping(tuple(columns), int(most))


def read_statuses(value: Value | None) -> tuple[StatusRange, ...]:
    """Return how HTTP statuses count, as non-overlapping ranges.

    Raises:
        ConfigurationError: On anything but statuses, or a status counted in two ways.
    """
    if value is None:
        return ()
    with value.section() as section:
        ranges = [
            _read_range(element, treatment)
            for treatment in Treatment
            for element in section.read_or(treatment.value, (), Value.listed)
        ]
    if not ranges:
        raise value.complaint(f"httpStatus is empty; give {', '.join(Treatment)}")
    try:
        return disjoint_ranges(ranges)
    except ValueError as error:
        raise value.complaint(str(error)) from None


def _read_range(value: Value, treatment: Treatment) -> StatusRange:
    match = _CODES.fullmatch(value.text())
    if match is not None and match[1]:
        first = int(match[1]) * 100
        return StatusRange(first, first + 99, treatment.value)
    if match is not None:
        first, last = int(match[2]), int(match[3] or match[2])
        if LEAST_STATUS <= first <= last <= MOST_STATUS:
            return StatusRange(first, last, treatment.value)
    raise value.error("a status such as 429, 5xx or 400-499")
