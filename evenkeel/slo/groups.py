"""Expands a grouped definition into SLOs: one per combination of values seen in requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenkeel.slo.model import Group, Indicator, Member, Slo
from evenkeel.slo.query import selection_parameters

_HERE = Path(__file__).parent
Read = Callable[[Path, dict[str, Any]], Sequence[Mapping[str, Any]]]
# The label that finds all alerts of a definition.
GROUP_LABEL = "slo_group"
# Callers send the values: longer ones, and those with control characters, form no group.
LONGEST_VALUE = 128
_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Separates the values of a known group; no value contains it.
_SEPARATOR = "\x1f"
# Characters that could make two names equal, or one look like part of another.
_SEPARATORS = re.compile(r"[/,%]")
_HOUR_NS = 3600 * 10**9


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """Values of a grouping's columns, and the first and last hour or minute they were seen."""

    values: tuple[str, ...]
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class SeenGroups:
    """The requested groups, busiest first; `num_others` more were seen."""

    groups: tuple[SeenGroup, ...]
    num_others: int = 0


def read_groups(
    slo: Slo,
    read: Read,
    from_ns: int,
    to_ns: int,
    known: Iterable[tuple[str, ...]] = (),
    table: str = "requests_1h",
) -> SeenGroups:
    """Return the groups seen in an SLO's requests, known groups first.

    Args:
        slo: The definition.
        read: Runs a query.
        from_ns: Start of the range, to the hour or minute.
        to_ns: End of the range.
        known: Groups that come before busier ones.
        table: The rollup to query, hourly or per minute.

    Raises:
        StoreError: If the store is gone or refuses the query.
    """
    grouping = slo.indicator.grouping
    assert grouping is not None
    column = "hour" if table == "requests_1h" else "minute"
    width_ns = _HOUR_NS if column == "hour" else _HOUR_NS // 60
    parts = slo.indicator.parts
    # Each member of a composite has its own selector: a request seen by any of them counts.
    indicator = parts[0].indicator if len(parts) == 1 else slo.indicator
    rows = read(
        _HERE / "slo_groups.sql",
        {
            "table": table,
            "time": column,
            "columns": list(grouping.columns),
            "from_s": from_ns // width_ns * width_ns // 10**9,
            "to_s": to_ns // 10**9,
            **selection_parameters(indicator),
            "known": [_SEPARATOR.join(values) for values in known],
            "separator": _SEPARATOR,
            "longest": LONGEST_VALUE,
            "most": grouping.most,
        },
    )
    groups = tuple(
        SeenGroup(tuple(row["group_values"]), row["first_s"] * 10**9, row["last_s"] * 10**9)
        for row in rows
        if not is_odd(row["group_values"])
    )
    return SeenGroups(groups, rows[0]["num_groups"] - len(rows) if rows else 0)


def group_slo(slo: Slo, group: SeenGroup) -> Slo:
    """Return the SLO of one group: the definition, restricted to requests with these values."""
    grouping = slo.indicator.grouping
    assert grouping is not None
    values = dict(zip(grouping.columns, group.values, strict=True))
    return replace(
        slo,
        name=group_name(slo.name, group.values),
        title=f"{slo.title}, {', '.join(group.values)}",
        indicator=_of_group(slo.indicator, values),
        labels={**slo.labels, GROUP_LABEL: slo.name},
        group=Group(slo.name, values, group.first_ns),
    )


def _of_group(indicator: Indicator, values: Mapping[str, str]) -> Indicator:
    members = tuple(
        Member(_of_group(member.indicator, values), member.weight) for member in indicator.members
    )
    select = {**indicator.select, **values}
    return replace(indicator, select=select, members=members, grouping=None)


def group_name(definition: str, values: Iterable[str]) -> str:
    """Return the name of a group's alerts: the definition's, and the values."""
    return f"{definition}/{','.join(_as_name(value) for value in values)}"


def is_odd(values: Iterable[str]) -> bool:
    """Return whether a value has control characters, so that its group is not evaluated."""
    return any(_ODD.search(value) for value in values)


def _as_name(value: str) -> str:
    return _SEPARATORS.sub(lambda match: f"%{ord(match[0]):02X}", value)


def with_groups(slos: Iterable[Slo], read: Read, to_ns: int, period_ns: int = 0) -> list[Slo]:
    """Return SLOs with each grouped one replaced by its groups' SLOs, busiest first.

    Args:
        slos: The SLOs of a file.
        read: Runs a query.
        to_ns: Now.
        period_ns: How far back to look for groups; an SLO's own longest period if that is longer.

    Raises:
        StoreError: If the store is gone or refuses the query.
    """
    found: list[Slo] = []
    for slo in slos:
        if slo.indicator.grouping is None:
            found.append(slo)
            continue
        from_ns = to_ns - max(int(slo.longest_period_s * 10**9), period_ns)
        seen = read_groups(slo, read, from_ns, to_ns)
        found += (group_slo(slo, group) for group in seen.groups)
    return found
