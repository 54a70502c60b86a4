"""One definition, many SLOs: one for each value of its columns that requests had."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenkeel.slo.model import SELECTOR_COLUMNS, Group, Indicator, Member, Slo
from evenkeel.slo.query import filter_parameters

_HERE = Path(__file__).parent
Read = Callable[[Path, dict[str, Any]], Sequence[Mapping[str, Any]]]
# The label by which all alerts of a definition are found.
GROUP_LABEL = "slo_group"
# Values are what callers send: longer ones, and those with control characters, make no group.
LONGEST_VALUE = 128
_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Between the values of a known group; no group's values have it.
_SEPARATOR = "\x1f"
# What would make two names alike, or one look like a part of another.
_SEPARATORS = re.compile(r"[/,%]")
_HOUR_NS = 3600 * 10**9


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """Values of a grouping's columns, and the first and last hour or minute they were seen in."""

    values: tuple[str, ...]
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class SeenGroups:
    """Those asked for, the busiest first; `num_others` more were seen."""

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
    """Return the groups that an SLO's requests had, those that are known first.

    Args:
        slo: The definition.
        read: Answers a query.
        from_ns: Of requests that came from here on, to the hour or minute.
        to_ns: Up to here.
        known: Groups that go before busier ones.
        table: The rollup to ask, by hours or by minutes.

    Raises:
        StoreError: If the store is gone or refuses the query.
    """
    grouping = slo.indicator.grouping
    assert grouping is not None
    column = "hour" if table == "requests_1h" else "minute"
    width_ns = _HOUR_NS if column == "hour" else _HOUR_NS // 60
    parts = slo.indicator.parts
    # A composite's members select each for itself: what any of them selects is seen.
    indicator = parts[0].indicator if len(parts) == 1 else slo.indicator
    rows = read(
        _HERE / "slo_groups.sql",
        {
            "table": table,
            "time": column,
            "columns": list(grouping.columns),
            "from_s": from_ns // width_ns * width_ns // 10**9,
            "to_s": to_ns // 10**9,
            **{name: indicator.select.get(name, "") for name in SELECTOR_COLUMNS},
            **filter_parameters(indicator),
            "known": [_SEPARATOR.join(values) for values in known],
            "separator": _SEPARATOR,
            "longest": LONGEST_VALUE,
            "most": grouping.most,
        },
    )
    groups = tuple(
        SeenGroup(tuple(row["group_values"]), row["first_s"] * 10**9, row["last_s"] * 10**9)
        for row in rows
        if not any(_ODD.search(value) for value in row["group_values"])
    )
    return SeenGroups(groups, rows[0]["num_groups"] - len(rows) if rows else 0)


def group_slo(slo: Slo, group: SeenGroup) -> Slo:
    """Return the SLO of one group: the definition, for the requests with these values."""
    grouping = slo.indicator.grouping
    assert grouping is not None
    values = dict(zip(grouping.columns, group.values, strict=True))
    return replace(
        slo,
        name=f"{slo.name}/{','.join(_as_name(value) for value in group.values)}",
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


def _as_name(value: str) -> str:
    return _SEPARATORS.sub(lambda match: f"%{ord(match[0]):02X}", value)


def with_groups(slos: Iterable[Slo], read: Read, to_ns: int, period_ns: int = 0) -> list[Slo]:
    """Return SLOs with each grouped one replaced by those of its groups, the busiest first.

    Args:
        slos: As a file has them.
        read: Answers a query.
        to_ns: Now.
        period_ns: How far back groups are looked for; each SLO's own period where that is longer.

    Raises:
        StoreError: If the store is gone or refuses the query.
    """
    found: list[Slo] = []
    for slo in slos:
        if slo.indicator.grouping is None:
            found.append(slo)
            continue
        from_ns = to_ns - max(int(slo.scaled_period_s * 10**9), period_ns)
        seen = read_groups(slo, read, from_ns, to_ns)
        found += (group_slo(slo, group) for group in seen.groups)
    return found
