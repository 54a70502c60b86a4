"""Which requests an SLO is about beyond single values, and how HTTP statuses count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import re2

LEAST_STATUS, MOST_STATUS = 100, 599


class SelectOperator(StrEnum):
    """How a column is compared, in the words of `select`."""

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
        """The RE2 that the store searches the value for; of a list, its values as alternatives."""
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
        """Whether what the pattern finds is left out."""
        return self.test in (SelectOperator.NOT, SelectOperator.NOT_MATCHES)

    def check(self) -> None:
        """Refuse what the store would refuse: a pattern too large, or with a quotation left open.

        Raises:
            ValueError: If it would; says why.
        """
        options = re2.Options()
        options.log_errors = False
        try:
            re2.compile(self.pattern, options)
        except re2.error as error:
            reason = error.args[0] if error.args else error
            reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
            raise ValueError(f"{self.column}: no pattern that the store takes: {reason}") from error

    def __str__(self) -> str:
        """Return it for people, such as `tenant=acme|globex`."""
        operators = dict(zip(SelectOperator, ("=", "!=", "=~", "!~"), strict=True))
        return f"{self.column}{operators[self.test]}{'|'.join(self.values)}"


def selection_text(select: Mapping[str, str], filters: Iterable[Filter]) -> str:
    """Return a selection for people; '' where it selects everything."""
    values = [f"{name}={value}" for name, value in select.items()]
    return ", ".join([*values, *map(str, filters)])


@dataclass(frozen=True, slots=True)
class StatusRange:
    """HTTP statuses from `first` to `last` and how requests that were answered so count.

    `treatment` is one of slo_model.Treatment's values.
    """

    first: int
    last: int
    treatment: str

    def __str__(self) -> str:
        """Return it for people, such as `500-599 bad`."""
        return f"{self.codes} {self.treatment}"

    @property
    def codes(self) -> str:
        """The statuses as a file writes them."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def disjoint_ranges(ranges: Iterable[StatusRange]) -> tuple[StatusRange, ...]:
    """Return ranges of which none overlap: where several have a status, the shortest decides.

    Raises:
        ValueError: If two of one length have a status in common and differ; says which.
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
