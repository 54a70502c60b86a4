"""Decides which of the records of one model call is its request.

A call may be traced by its client, by wrappers around the client, by gateways and by the server.
Records of servers always count. Of the others, the innermost counts: one that has another record
below it, in the same trace, is a view of that call, and so is one whose answer's id is that of a
request a server recorded. Two clients' records that have one answer's id and overlap in time are
of one call too, even in two traces: the one that started last counts. A record that arrives too
late for its call's decision is a view of what was counted. Records of two tenants are never of one
call, even if their ids are the same, and no tenant's spans join another's records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

# A longer way from a record to the root is cut: such a chain is an error of the sender's.
MAX_DEPTH = 500
# More records with one id are not of one answer: their sender makes the id up.
MAX_OF_ANSWER = 8


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A request that a client traced, whose decision is pending.

    Attributes:
        tenant: '' if it has none.
        is_due: Whether it has waited long enough to be decided.
        start_ns, end_ns: None if unknown; then only its trace tells its call.
    """

    trace_id: str
    span_id: str
    request_id: str = ""
    tenant: str = ""
    is_due: bool = True
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def key(self) -> CallKey:
        """What identifies it."""
        return CallKey(self.trace_id, self.span_id, self.tenant)


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """What is known of the traces of held records; a tenant is '' if there is none.

    Attributes:
        parents: Trace, span, parent and tenant of each span that has a parent.
        served: Trace, span, request id and tenant of requests that servers recorded.
        counted: Trace, span and tenant of held records that were counted earlier.
    """

    parents: Iterable[tuple[str, str, str, str]] = ()
    served: Iterable[tuple[str, str, str, str]] = ()
    counted: Iterable[tuple[str, str, str]] = ()


class CallKey(NamedTuple):
    """Identifies a record: two tenants may use the same ids."""

    trace_id: str
    span_id: str
    tenant: str


class _Place(NamedTuple):
    """A record within its trace."""

    span_id: str
    tenant: str


@dataclass(slots=True)
class _TraceCalls:
    # By span: its parents, each with the tenant that says so.
    parents: dict[str, set[_Place]] = field(default_factory=lambda: defaultdict(set))
    held: set[_Place] = field(default_factory=set)
    served: set[_Place] = field(default_factory=set)
    counted: set[_Place] = field(default_factory=set)


def _agree(tenant: str, other: str) -> bool:
    return tenant == other or not tenant or not other


def decide(held: Sequence[HeldRecord], known: KnownCalls) -> dict[CallKey, bool]:
    """Return for each due record whether it is counted as a request.

    Views of a due record's answer are decided with it. The result does not depend on the order of
    anything.
    """
    traces: Mapping[str, _TraceCalls] = defaultdict(_TraceCalls)
    for record in held:
        traces[record.trace_id].held.add(_Place(record.span_id, record.tenant))
    served_ids: dict[str, set[str]] = defaultdict(set)
    for trace_id, span_id, request_id, tenant in known.served:
        served_ids[request_id].add(tenant)
        if trace_id in traces:
            traces[trace_id].served.add(_Place(span_id, tenant))
    served_ids.pop("", None)
    for trace_id, span_id, tenant in known.counted:
        if trace_id in traces:
            traces[trace_id].counted.add(_Place(span_id, tenant))
    for trace_id, span_id, parent_id, tenant in known.parents:
        if trace_id in traces:
            traces[trace_id].parents[span_id].add(_Place(parent_id, tenant))
    views = {trace_id: _views_in(trace) for trace_id, trace in traces.items()}
    decided = {
        record.key: _Place(record.span_id, record.tenant) not in views[record.trace_id]
        and not any(_agree(record.tenant, each) for each in served_ids.get(record.request_id, ()))
        for record in held
        if record.is_due
    }
    for outer, inner in _same_answers(held):
        # A record whose call others already stand for says nothing of the other's.
        if (outer.is_due or inner.is_due) and decided.get(inner.key, True):
            decided[outer.key] = False
    return decided


def _same_answers(held: Iterable[HeldRecord]) -> list[tuple[HeldRecord, HeldRecord]]:
    """Return pairs of records of one answer, the one that counts second."""
    by_id: dict[str, dict[CallKey, HeldRecord]] = defaultdict(dict)
    # A span that was sent again is one record: of its copies, one that is due stands for all.
    for record in sorted(held, key=lambda each: (each.is_due, -(each.start_ns or 0))):
        if record.request_id and record.start_ns is not None and record.end_ns is not None:
            by_id[record.request_id][record.key] = record
    pairs = []
    for records in by_id.values():
        if len(records) > MAX_OF_ANSWER:
            continue
        ordered = sorted(records.values(), key=lambda each: (each.start_ns or 0, each.key))
        for number, outer in enumerate(ordered):
            for inner in ordered[number + 1 :]:
                is_within = (inner.start_ns or 0) <= (outer.end_ns or 0)
                is_one_span = outer.key[:2] == inner.key[:2]
                if is_within and not is_one_span and _agree(outer.tenant, inner.tenant):
                    pairs.append((outer, inner))
    # The innermost is decided first.
    return pairs[::-1]


def _views_in(trace: _TraceCalls) -> set[_Place]:
    """Return the held records of a trace that are views of other records."""
    records = trace.held | trace.served | trace.counted
    by_span: dict[str, list[_Place]] = defaultdict(list)
    for record in records:
        by_span[record.span_id].append(record)
    above: dict[_Place, set[str]] = {}

    def above_for(span_id: str, tenant: str) -> set[str]:
        place = _Place(span_id, tenant)
        if place not in above:
            above[place] = _ancestors(place, trace.parents)
        return above[place]

    views = {
        record
        for record in trace.held
        for other in by_span[record.span_id]
        if _agree(record.tenant, other.tenant)
        # Of one span that came with and without its tenant, the one with it counts.
        and (
            other in trace.served or other in trace.counted or (other.tenant and not record.tenant)
        )
    }
    for inner in records:
        for span_id in above_for(*inner) & by_span.keys():
            for outer in by_span[span_id]:
                # What other tenants say of the spans between the two is nothing to them.
                tenant = inner.tenant or outer.tenant
                if (
                    not _agree(inner.tenant, outer.tenant)
                    or span_id not in above_for(inner.span_id, tenant)
                    # They are above each other: neither is within the other.
                    or inner.span_id in above_for(span_id, tenant)
                ):
                    continue
                if outer in trace.held and outer not in trace.counted:
                    views.add(outer)
                if outer in trace.counted and inner in trace.held:
                    views.add(inner)
    return views


def _ancestors(place: _Place, parents: Mapping[str, set[_Place]]) -> set[str]:
    """Return the spans above one, as this tenant and senders without a tenant say."""
    found: set[str] = set()
    waiting = [place.span_id]
    while waiting and len(found) < MAX_DEPTH:
        for parent in parents.get(waiting.pop(), ()):
            if parent.span_id not in found and _agree(place.tenant, parent.tenant):
                found.add(parent.span_id)
                waiting.append(parent.span_id)
    return found
