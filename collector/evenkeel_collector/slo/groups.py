"""Tracks the groups of grouped SLOs as requests come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from evenkeel.errors import StoreError
from evenkeel.slo.groups import SeenGroups, group_slo, read_groups
from evenkeel.slo.model import Grouping, Slo
from evenkeel_collector.slo.store import SloStore

logger = logging.getLogger(__name__)

_SECOND_NS = 10**9
# New groups are looked up in the last minutes; groups that left, in whole periods.
_LOOK_EVERY_NS = 10 * _SECOND_NS
_LOOK_BACK_NS = 900 * _SECOND_NS
_LONG_LOOK_EVERY_NS = 300 * _SECOND_NS


@dataclass(slots=True)
class _Definition:
    """A grouped SLO of the file and the SLOs of its groups, by group value."""

    slo: Slo
    grouping: Grouping
    groups: dict[tuple[str, ...], Slo] = field(default_factory=dict)
    num_left_out: int = 0
    next_look_ns: int = 0
    next_long_ns: int = 0
    is_known: bool = False


class Groups:
    """The groups of each grouped SLO; a group leaves after a whole period without requests.

    Existing groups keep their slot: if there are more than the definition allows, the busiest are
    taken first, and others only as slots become free.

    Args:
        store: Where requests are stored.
        record_failure: Called for each SLO whose groups could not be read; known groups stay.
    """

    def __init__(self, store: SloStore, record_failure: Callable[[Exception], None]) -> None:
        self._store = store
        self._record_failure = record_failure
        self._definitions: dict[str, _Definition] = {}
        self._found: tuple[Slo, ...] = ()

    @property
    def unknown(self) -> frozenset[str]:
        """Definitions whose groups were never read: which of their alerts ended is unknown."""
        return frozenset(name for name, d in self._definitions.items() if not d.is_known)

    @property
    def left_out(self) -> Mapping[str, int]:
        """The number of groups per definition that are not evaluated."""
        return {name: each.num_left_out for name, each in self._definitions.items()}

    def expand(self, slos: Sequence[Slo], now_ns: int) -> tuple[Slo, ...]:
        """Return the SLOs with each grouped one replaced by those of its groups.

        The same object is returned while nothing has changed.
        """
        kept, self._definitions = self._definitions, {}
        found: list[Slo] = []
        for slo in slos:
            grouping = slo.indicator.grouping
            if grouping is None:
                found.append(slo)
                continue
            definition = kept.get(slo.name)
            if definition is None or definition.slo != slo:
                definition = _Definition(slo, grouping)
            self._definitions[slo.name] = definition
            self._look(definition, now_ns)
            found += definition.groups.values()
        if tuple(found) != self._found:
            self._found = tuple(found)
        return self._found

    def _look(self, definition: _Definition, now_ns: int) -> None:
        if now_ns < definition.next_look_ns:
            return
        definition.next_look_ns = now_ns + _LOOK_EVERY_NS
        is_long = now_ns >= definition.next_long_ns
        back_ns = int(definition.slo.longest_period_s * _SECOND_NS) if is_long else _LOOK_BACK_NS
        table = "requests_1h" if is_long else "requests_1m"
        try:
            seen = read_groups(
                definition.slo,
                self._store.read,
                now_ns - back_ns,
                now_ns,
                list(definition.groups),
                table,
            )
        except Exception as error:
            self._record_failure(StoreError(f"groups of SLO {definition.slo.name!r}: {error}"))
            return
        if is_long:
            definition.next_long_ns = now_ns + _LONG_LOOK_EVERY_NS
            definition.is_known = True
            present = {group.values for group in seen.groups}
            definition.groups = {v: slo for v, slo in definition.groups.items() if v in present}
        _take(definition, seen, is_long)


def _take(definition: _Definition, seen: SeenGroups, is_long: bool) -> None:
    """Add new groups while there are free slots."""
    num_refused = 0
    for group in seen.groups:
        if group.values in definition.groups:
            continue
        if len(definition.groups) < definition.grouping.most:
            definition.groups[group.values] = group_slo(definition.slo, group)
        else:
            num_refused += 1
    num_left_out = seen.num_others + num_refused
    if num_left_out and not definition.num_left_out:
        logger.warning(
            "an slo has more groups than maxGroups, the rest are not evaluated: slo=%s groups=%d"
            " left_out=%d",
            definition.slo.name,
            len(definition.groups),
            num_left_out,
        )
    # The last minutes alone do not show how many there are.
    definition.num_left_out = (
        num_left_out if is_long else max(definition.num_left_out, num_left_out)
    )
