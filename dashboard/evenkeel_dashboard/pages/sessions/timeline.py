"""Arranges a session in time: its steps in lanes, and above them what it waited for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel_dashboard.sessions.evictions import Eviction, find_evictions
from evenkeel_dashboard.sessions.ledger import SessionLedger, account, phases
from evenkeel_dashboard.sessions.work import Work, WorkKind, works_of

Row = Mapping[str, Any]

# Bars shorter than this part of what is shown are folded with their neighbours.
_FOLD_RATIO = 1 / 400
# Folded stretches of the critical path are wide enough to show the share of each cause.
_FOLDED_PATH = 8
_MOST_LANES = 5
_LANE_NAMES = {WorkKind.REQUEST: "turns", WorkKind.TOOL: "tools", WorkKind.AGENT: "agents"}


@dataclass(frozen=True, slots=True)
class Step:
    """One turn, tool call or run of an agent.

    Attributes:
        work: What it was, and when.
        row: The stored row it was read from.
        start_s: Seconds since the session began.
        is_critical: Whether the session waited for it.
    """

    work: Work
    row: Row
    start_s: float
    is_critical: bool

    @property
    def is_failed(self) -> bool:
        """Whether it did not end well."""
        return bool(self.row["status"] != "ok")

    @property
    def end_s(self) -> float:
        """Seconds since the session began."""
        return self.start_s + self.work.seconds


@dataclass(frozen=True, slots=True)
class Mark:
    """One bar: seconds since the session began, what it is, and how many steps are folded in it.

    `cause` is a cause of the ledger, or the kind of a step.
    """

    start_s: float
    end_s: float
    cause: str
    name: str
    num_steps: int = 1
    is_critical: bool = True
    is_failed: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """Bars that do not overlap, drawn in one row."""

    name: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class SessionTimeline:
    """A session's steps in order of their start, its ledger, and what was evicted meanwhile."""

    steps: tuple[Step, ...]
    ledger: SessionLedger | None
    evictions: tuple[Eviction, ...] = ()

    @property
    def end_s(self) -> float:
        """When the last step ended, in seconds since the session began."""
        return max((step.end_s for step in self.steps), default=0.0)


def read_timeline(rows: Iterable[Row]) -> SessionTimeline:
    """Return the timeline of the rows of `session_turns`."""
    read = list(rows)
    works = works_of(read)
    ledger = account(works)
    if ledger is None:
        return SessionTimeline((), None)
    on_path = {id(stretch.work) for stretch in ledger.path if stretch.work is not None}
    steps = [
        Step(work, row, (work.start_ns - ledger.start_ns) / 1e9, id(work) in on_path)
        for work, row in zip(works, read, strict=True)
    ]
    steps.sort(key=lambda step: (step.start_s, step.end_s))
    return SessionTimeline(tuple(steps), ledger, tuple(find_evictions(ledger.tree)))


def lanes(found: SessionTimeline, shown_s: tuple[float, float]) -> list[Lane]:
    """Return the critical path, then turns, tools and agents, each in as few rows as possible.

    Args:
        found: The session.
        shown_s: The period that is shown, in seconds since the session began.
    """
    fold_s = (shown_s[1] - shown_s[0]) * _FOLD_RATIO
    drawn = []
    if found.ledger is not None:
        path = _folded_path(_path_marks(found.ledger, shown_s), fold_s)
        drawn.append(Lane("critical path", path))
    for kind, name in _LANE_NAMES.items():
        of_kind = [s for s in found.steps if s.work.kind is kind and _is_shown(s, shown_s)]
        for number, row in enumerate(_rows_of(of_kind)):
            marks = [_mark(step) for step in row]
            drawn.append(Lane("" if number else name, _folded(marks, fold_s)))
    return drawn


def phase_seconds(work: Work) -> list[tuple[str, float]]:
    """Return a request's causes with their seconds; [] for others."""
    if work.kind is not WorkKind.REQUEST:
        return []
    return [(cause, (to_ns - from_ns) / 1e9) for cause, from_ns, to_ns in phases(work)]


def _is_shown(step: Step, shown_s: tuple[float, float]) -> bool:
    return step.end_s >= shown_s[0] and step.start_s <= shown_s[1]


def _rows_of(steps: Sequence[Step]) -> list[list[Step]]:
    """Return steps in rows without overlaps; of more at once than there is room for, drawn over."""
    rows: list[list[Step]] = []
    for step in steps:
        row = next((row for row in rows if row[-1].end_s <= step.start_s), None)
        if row is not None:
            row.append(step)
        elif len(rows) < _MOST_LANES:
            rows.append([step])
        else:
            min(rows, key=lambda each: each[-1].end_s).append(step)
    return rows


def _mark(step: Step) -> Mark:
    return Mark(
        step.start_s, step.end_s, step.work.kind.value, step.work.name,
        is_critical=step.is_critical, is_failed=step.is_failed,
    )  # fmt: skip


def _path_marks(ledger: SessionLedger, shown_s: tuple[float, float]) -> list[Mark]:
    found = []
    for stretch in ledger.path:
        start_s, end_s = ((ns - ledger.start_ns) / 1e9 for ns in (stretch.start_ns, stretch.end_ns))
        if end_s >= shown_s[0] and start_s <= shown_s[1]:
            name = "" if stretch.work is None else stretch.work.name
            found.append(Mark(start_s, end_s, stretch.cause, name))
    return found


def _groups(marks: Sequence[Mark], fold_s: float, longest_s: float) -> list[list[Mark]]:
    """Return marks, those too short to be told apart together with their neighbours."""
    found: list[list[Mark]] = []
    for mark in marks:
        group = found[-1] if found else None
        if (
            group is not None
            and mark.end_s - mark.start_s < fold_s
            and group[-1].end_s - group[-1].start_s < fold_s
            and group[0].is_critical == mark.is_critical
            and mark.end_s - group[0].start_s < longest_s
        ):
            group.append(mark)
        else:
            found.append([mark])
    return found


def _folded(marks: Sequence[Mark], fold_s: float) -> tuple[Mark, ...]:
    """Return bars, one for each group."""
    groups = _groups(marks, fold_s, 2 * fold_s)
    return tuple(group[0] if len(group) == 1 else _joined(group) for group in groups)


def _joined(group: Sequence[Mark]) -> Mark:
    longest = max(group, key=lambda mark: mark.end_s - mark.start_s)
    return Mark(
        group[0].start_s, max(mark.end_s for mark in group), longest.cause, longest.name,
        len(group), longest.is_critical, any(mark.is_failed for mark in group),
    )  # fmt: skip


def _folded_path(marks: Sequence[Mark], fold_s: float) -> tuple[Mark, ...]:
    """Return bars; a group becomes one bar per cause, as long as all of that cause together."""
    found: list[Mark] = []
    for group in _groups(marks, fold_s, _FOLDED_PATH * fold_s):
        if len(group) == 1:
            found += group
            continue
        of_cause: dict[str, list[Mark]] = {}
        for mark in group:
            of_cause.setdefault(mark.cause, []).append(mark)
        at_s = group[0].start_s
        for cause in sorted(of_cause):
            lasts_s = sum(mark.end_s - mark.start_s for mark in of_cause[cause])
            found.append(Mark(at_s, at_s + lasts_s, cause, "", len(of_cause[cause])))
            at_s += lasts_s
    return tuple(found)
