"""Decides which of the records of one model call is its request.

A call may be traced by its client, by wrappers around the client, by gateways and by the server.
Records of servers always count. Of the others, the innermost counts: one that has another record
below it, in the same trace, is a view of that call, and so is one whose answer's id is that of a
request a server recorded. Two clients' records that have one answer's id and overlap in time are
of one call too, even in two traces: the one that started last counts. A record that arrives too
late for its call's decision is a view of what was counted. Records of two tenants are never of one
call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """What is known of the traces of held records.

    Attributes:
        parents: Trace, span and parent of each span that has one.
        served: Trace, span, request id and tenant of requests that servers recorded.
        counted: Trace and span of held records that were counted earlier.
    """

    parents: Iterable[tuple[str, str, str]] = ()
    served: Iterable[tuple[str, str, str, str]] = ()
    counted: Iterable[tuple[str, str]] = ()


@dataclass(slots=True)
class _TraceCalls:
    parents: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    held: set[str] = field(default_factory=set)
    served: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    # Those that have one, by span.
    tenants: dict[str, str] = field(default_factory=dict)

    def may_be_one_call(self, span_id: str, other: str) -> bool:
        """Whether the records' tenants allow it."""
        return _agree(self.tenants.get(span_id, ""), self.tenants.get(other, ""))


def _agree(tenant: str, other: str) -> bool:
    return tenant == other or not tenant or not other


def decide(held: Sequence[HeldRecord], known: KnownCalls) -> dict[tuple[str, str], bool]:
    """Return for each due record, by trace and span, whether it is counted as a request.

    Views of a due record's answer are decided with it. The result does not depend on the order of
    anything.
    """
    traces: Mapping[str, _TraceCalls] = defaultdict(_TraceCalls)
    for record in held:
        traces[record.trace_id].held.add(record.span_id)
        if record.tenant:
            traces[record.trace_id].tenants[record.span_id] = record.tenant
    served_ids: dict[str, set[str]] = defaultdict(set)
    for trace_id, span_id, request_id, tenant in known.served:
        served_ids[request_id].add(tenant)
        if trace_id in traces:
            traces[trace_id].served.add(span_id)
            if tenant:
                traces[trace_id].tenants.setdefault(span_id, tenant)
    served_ids.pop("", None)
    for trace_id, span_id in known.counted:
        if trace_id in traces:
            traces[trace_id].counted.add(span_id)
    for trace_id, span_id, parent_id in known.parents:
        if trace_id in traces:
            traces[trace_id].parents[span_id].add(parent_id)
    views = {trace_id: _views_in(trace) for trace_id, trace in traces.items()}
    decided = {
        (record.trace_id, record.span_id): record.span_id not in views[record.trace_id]
        and not any(_agree(record.tenant, each) for each in served_ids.get(record.request_id, ()))
        for record in held
        if record.is_due
    }
    for outer, inner in _same_answers(held):
        keys = (outer.trace_id, outer.span_id), (inner.trace_id, inner.span_id)
        # A record whose call others already stand for says nothing of the other's.
        if (outer.is_due or inner.is_due) and decided.get(keys[1], True):
            decided[keys[0]] = False
    return decided


def _same_answers(held: Iterable[HeldRecord]) -> list[tuple[HeldRecord, HeldRecord]]:
    """Return pairs of records of one answer, the one that counts second."""
    by_id: dict[str, set[HeldRecord]] = defaultdict(set)
    for record in held:
        if record.request_id and record.start_ns is not None and record.end_ns is not None:
            by_id[record.request_id].add(record)
    pairs = []
    for records in by_id.values():
        if len(records) > MAX_OF_ANSWER:
            continue
        ordered = sorted(records, key=lambda each: (each.start_ns, each.trace_id, each.span_id))
        for number, outer in enumerate(ordered):
            for inner in ordered[number + 1 :]:
                is_within = (inner.start_ns or 0) <= (outer.end_ns or 0)
                if is_within and _agree(outer.tenant, inner.tenant):
                    pairs.append((outer, inner))
    # The innermost is decided first.
    return pairs[::-1]


def _views_in(trace: _TraceCalls) -> set[str]:
    """Return the held records of a trace that are views of other records."""
    records = trace.held | trace.served | trace.counted
    above = {span_id: _ancestors(span_id, trace.parents) for span_id in records}
    views = trace.held & (trace.served | trace.counted)
    for inner in records:
        for outer in above[inner] & records:
            if inner in above[outer]:
                # They are above each other: neither is within the other.
                continue
            if not trace.may_be_one_call(inner, outer):
                continue
            if outer in trace.held and outer not in trace.counted:
                views.add(outer)
            if outer in trace.counted and inner in trace.held:
                views.add(inner)
    return views


def _ancestors(span_id: str, parents: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [span_id]
    while waiting and len(found) < MAX_DEPTH:
        for parent in parents.get(waiting.pop(), ()):
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return found
