"""Decides which of the records of one model call is its request.

A call may be traced by its client, by wrappers around the client, by gateways and by the server.
Records of servers always count. Of the others, the innermost counts: one that has another record
below it, in the same trace, is a view of that call, and so is one whose answer's id is that of a
request a server recorded. A record that arrives too late for its call's decision is a view of
what was counted. Records of two tenants are never of one call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# A longer way from a record to the root is cut: such a chain is an error of the sender's.
MAX_DEPTH = 500


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A request that a client traced, whose decision is pending.

    Attributes:
        tenant: '' if it has none.
        is_due: Whether it has waited long enough to be decided.
    """

    trace_id: str
    span_id: str
    request_id: str = ""
    tenant: str = ""
    is_due: bool = True


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

    The result does not depend on the order of anything.
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
    return {
        (record.trace_id, record.span_id): record.span_id not in views[record.trace_id]
        and not any(_agree(record.tenant, each) for each in served_ids.get(record.request_id, ()))
        for record in held
        if record.is_due
    }


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
