"""Request filters beyond single values, and how HTTP statuses count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import re2

from evenkeel.slo.matchers import pattern_reason

LEAST_STATUS, MOST_STATUS = 100, 599
# Only the page Explore filters by these columns.
EXPLORED = ("route", "engine")


class SelectOperator(StrEnum):
    """A comparison operator for columns, as named in `select`."""

    IN = "in"
    NOT = "not"
    MATCHES = "matches"
    NOT_MATCHES = "notMatches"


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on a column; a request without a value has ''.

    Attributes:
        column: The column.
        test: How it is compared.
        values: Values, or one RE2 that the whole value must match.
    """

    column: str
    test: SelectOperator
    values: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """The RE2 pattern that the store searches for; for a list, its values as alternatives."""
        values = self.values
        if self.is_list:
            values = tuple(re2.escape(value) for value in values)
        return rf"(?s)\A(?:{'|'.join(values)})\z"

    @property
    def is_list(self) -> bool:
        """Whether it has values rather than a pattern."""
        return self.test in (SelectOperator.IN, SelectOperator.NOT)

    @property
    def is_excluding(self) -> bool:
        """Whether matches are excluded."""
        return self.test in (SelectOperator.NOT, SelectOperator.NOT_MATCHES)

    def check(self) -> None:
        """Reject what the store would reject: a pattern too large, or with an open quotation.

        Raises:
            ValueError: If the store would reject it; says why.
        """
        options = re2.Options()
        options.log_errors = False
        try:
            re2.compile(self.pattern, options)
        except re2.error as error:
            reason = pattern_reason(error)
            raise ValueError(f"{self.column}: not a pattern the store accepts: {reason}") from error

    def __str__(self) -> str:
        """Return a readable form, such as `tenant=acme|globex`."""
        operators = dict(zip(SelectOperator, ("=", "!=", "=~", "!~"), strict=True))
        return f"{self.column}{operators[self.test]}{'|'.join(self.values)}"


def selection_text(select: Mapping[str, str], filters: Iterable[Filter]) -> str:
    """Return a selection as readable text; '' if it selects everything."""
    values = [f"{name}={value}" for name, value in select.items()]
    return ", ".join([*values, *map(str, filters)])


def page_filters(select: Mapping[str, str]) -> dict[str, str]:
    """Return a selection of single values as the parameters of the dashboard's pages.

    They filter by a prompt's version, `name@version`, and Explore also by route and engine; what
    they cannot filter by is left out.
    """
    filters = {name: select[name] for name in ("model", "tenant", "slo_class") if name in select}
    if {"prompt_name", "prompt_version"} <= select.keys():
        filters["prompt"] = f"{select['prompt_name']}@{select['prompt_version']}"
    return filters | {name: select[name] for name in EXPLORED if name in select}


@dataclass(frozen=True, slots=True)
class StatusRange:
    """HTTP statuses from `first` to `last`, and how requests with these statuses count.

    `treatment` is one of slo_model.Treatment's values.
    """

    first: int
    last: int
    treatment: str

    def __str__(self) -> str:
        """Return a readable form, such as `500-599 bad`."""
        return f"{self.codes} {self.treatment}"

    @property
    def codes(self) -> str:
        """The statuses as written in a file."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def disjoint_ranges(ranges: Iterable[StatusRange]) -> tuple[StatusRange, ...]:
    """Return non-overlapping ranges: if several contain a status, the shortest one decides.

    Raises:
        ValueError: If two ranges of equal length overlap and differ; names them.
    """
    of_status: dict[int, StatusRange] = {}
    for each in ranges:
        for status in range(each.first, each.last + 1):
            other = of_status.setdefault(status, each)
            longer = (each.last - each.first) - (other.last - other.first)
            if longer == 0 and other.treatment != each.treatment:
                raise ValueError(f"{each.codes} is both {other.treatment} and {each.treatment}")
            if longer < 0:
                of_status[status] = each
    found: list[StatusRange] = []
    for status, each in sorted(of_status.items()):
        last = found[-1] if found else None
        if last and last.last == status - 1 and last.treatment == each.treatment:
            found[-1] = StatusRange(last.first, status, last.treatment)
        else:
            found.append(StatusRange(status, status, each.treatment))
    return tuple(found)
