"""Chooses the time that a waterfall's axis covers: the calls, not what follows much later.

An answer may be judged seconds after it was given, and feedback on it may come after minutes. On an
axis over everything, the call itself would be a sliver.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.pages.request.span_kinds import SpanKind
from evenkeel_dashboard.pages.request.trace_tree import Node

# An axis that is at most this much longer shows everything.
_ROOM = 1.25


@dataclass(frozen=True, slots=True)
class Axis:
    """The period that the bars are drawn over, in Unix nanoseconds."""

    begin_ns: int
    end_ns: int

    @property
    def whole_ns(self) -> int:
        """Its length, at least 1."""
        return max(1, self.end_ns - self.begin_ns)

    def left(self, start_ns: int) -> float:
        """Return where a bar begins, as a part of the axis from 0 to 1."""
        return min(1.0, (start_ns - self.begin_ns) / self.whole_ns)

    def width(self, start_ns: int, end_ns: int) -> float:
        """Return how long a bar is, as a part of the axis; it ends with the axis."""
        return min((end_ns - start_ns) / self.whole_ns, 1.0 - self.left(start_ns))

    def is_beyond(self, start_ns: int) -> bool:
        """Return whether a span began after the axis ends."""
        return start_ns > self.end_ns

    def beyond_words(self, start_ns: int, end_ns: int) -> str:
        """Return what of a bar lies beyond the axis: +4.2 s if all of it does, ▸ if its end does.

        "" if nothing does.
        """
        if self.is_beyond(start_ns):
            return f"{formats.signed_seconds((start_ns - self.end_ns) / 1e9)} ▸"
        return "▸" if end_ns > self.end_ns else ""


def axis_of(nodes: Sequence[Node], counted: Collection[str]) -> Axis:
    """Return the axis of a trace.

    It ends before spans that judge the answer, and before the first pause after the last request
    that is longer than everything up to then.

    Args:
        nodes: The spans of the trace.
        counted: Span ids of its requests.
    """
    if not nodes:
        return Axis(0, 0)
    begin_ns = min(node.start_ns for node in nodes)
    last_ns = max(node.end_ns for node in nodes)
    work = [node for node in nodes if node.kind is not SpanKind.EVALUATION] or list(nodes)
    requests_ns = max((node.end_ns for node in work if node.id in counted), default=last_ns)
    end_ns = begin_ns
    for node in sorted(work, key=lambda each: each.start_ns):
        if node.start_ns > requests_ns and node.start_ns - end_ns > end_ns - begin_ns:
            break
        end_ns = max(end_ns, node.end_ns)
    if last_ns - begin_ns <= _ROOM * (end_ns - begin_ns):
        end_ns = last_ns
    return Axis(begin_ns, end_ns)


def remark(nodes: Sequence[Node], axis: Axis) -> str:
    """Return how many spans began after the axis ends; "" if none did."""
    num = sum(axis.is_beyond(node.start_ns) for node in nodes)
    if not num:
        return ""
    spans = "1 span began" if num == 1 else f"{formats.count(num)} spans began"
    return f"{spans} after the call had ended: ▸ at the right edge says how long after."
