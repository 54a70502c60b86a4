"""Builds the tree of a trace's spans by their parents, whatever was received of it.

Spans come from many senders: parents may be missing, ids may repeat, parents may form a circle, and
clocks may differ. Every span is in the tree exactly once, and `Trace.remarks` says what was done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.pages.request.span_kinds import CLAMPED, ERROR, SpanKind, first_of, kind_of

Row = Mapping[str, Any]

_SERVER = "Server"
# A clock difference below this is within the precision of clocks, and is not corrected.
_LEAST_MOVE_NS = 1_000


@dataclass(slots=True)
class Node:
    """One span in its trace.

    Attributes:
        id: Its span id, as received.
        parent_id: Its parent's; "" for a root.
        role: OpenTelemetry's kind of span: Server, Client, Internal, …
        start_ns: Start in Unix nanoseconds, with `moved_ns` added.
        moved_ns: How far it was moved to lie within its parent, because their clocks differ.
        error: What went wrong; "" if nothing did.
        is_clamped: Whether its times were not believable, so that the collector replaced them.
        is_orphan: Whether it names a parent that was not received.
        children: Its children, by start.
    """

    id: str
    parent_id: str
    name: str
    kind: SpanKind
    role: str
    service: str
    start_ns: int
    duration_ns: int
    error: str
    is_clamped: bool
    attributes: Mapping[str, str]
    moved_ns: int = 0
    is_orphan: bool = False
    children: list[Node] = field(default_factory=list)

    @property
    def end_ns(self) -> int:
        """End in Unix nanoseconds."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of a trace as trees.

    Attributes:
        roots: Spans without a parent that was received, by start.
        num_shown: Spans in the trees.
        num_received: Spans that the store has of the trace; more are not shown.
        remarks: What was missing, repeated or corrected, one sentence each.
    """

    roots: Sequence[Node]
    num_shown: int
    num_received: int
    remarks: Sequence[str]

    @property
    def start_ns(self) -> int:
        """Start of the earliest span."""
        return min((node.start_ns for node in self.nodes()), default=0)

    @property
    def end_ns(self) -> int:
        """End of the latest span."""
        return max((node.end_ns for node in self.nodes()), default=0)

    def nodes(self) -> list[Node]:
        """Return all spans, parents before their children."""
        found: list[Node] = []
        waiting = list(reversed(self.roots))
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting += reversed(node.children)
        return found


def build_trace(rows: Sequence[Row]) -> Trace:
    """Return the tree of the rows of `request_spans.sql`; without rows, an empty one."""
    # Most spans of a trace have one of a few sets of attributes.
    read = cache(_read_attributes)
    nodes = [_node(row, read(row["attributes"])) for row in rows]
    nodes.sort(key=lambda node: (node.start_ns, node.id))
    nodes, num_repeated, num_shared = _once_each(nodes)
    roots, num_circles = _join(nodes)
    moves = _correct_clocks(roots)
    for node in nodes:
        node.children.sort(key=lambda child: (child.start_ns, child.id))
    num_received = int(rows[0].get("num_spans", len(rows))) if rows else 0
    remarks = [
        _cut_words(num_received, len(rows)),
        _root_words(roots),
        _words(
            num_repeated,
            "was received again and is shown once",
            "were received again and are shown once",
        ),
        _words(num_shared, "has the id of another span", "have the id of another span"),
        _words(
            num_circles,
            "was its own ancestor: its parent is ignored",
            "were their own ancestors: their parents are ignored",
        ),
        _words(
            sum(node.is_clamped for node in nodes),
            "had times that cannot be right, and starts when it was received",
            "had times that cannot be right, and start when they were received",
        ),
        _clock_words(moves),
    ]  # fmt: skip
    return Trace(roots, len(nodes), num_received, [remark for remark in remarks if remark])


def _read_attributes(text: str) -> Mapping[str, str]:
    found: dict[str, str] = json.loads(text)
    return found


def _node(row: Row, attributes: Mapping[str, str]) -> Node:
    failed = row["status_code"] == "Error"
    error = first_of(attributes, ERROR) or row["status_message"] or "error" if failed else ""
    return Node(
        id=row["span_id"],
        parent_id=row["parent_span_id"],
        name=row["name"],
        kind=kind_of(row["name"], attributes),
        role=row["kind"],
        service=row["service"],
        start_ns=int(row["time_ns"]),
        duration_ns=int(row["duration_ns"]),
        error=error,
        is_clamped=CLAMPED in attributes,
        attributes=attributes,
    )


def _once_each(nodes: Sequence[Node]) -> tuple[list[Node], int, int]:
    """Return the spans without repeats, and how many were repeats and how many share an id.

    A span sent twice is the same in all its parts. Two different spans with one id are both kept:
    some tracers give the client's and the server's span of a call the same one.
    """
    kept: dict[tuple[object, ...], Node] = {}
    ids: set[str] = set()
    num_repeated = num_shared = 0
    for node in nodes:
        key = (node.id, node.role, node.name, node.service, node.start_ns, node.duration_ns)
        if key in kept:
            num_repeated += 1
            continue
        kept[key] = node
        num_shared += node.id in ids
        ids.add(node.id)
    return list(kept.values()), num_repeated, num_shared


def _join(nodes: Sequence[Node]) -> tuple[list[Node], int]:
    """Join children to their parents; return the roots and the number of circles broken."""
    by_id: dict[str, Node] = {}
    for node in nodes:
        # Of spans that share an id, children belong to the server's, which is the innermost.
        if node.id not in by_id or node.role == _SERVER:
            by_id[node.id] = node
    roots: list[Node] = []
    parents: dict[int, Node] = {}
    for node in nodes:
        # Without an id of its own, a span is nobody's parent.
        parent = by_id.get(node.parent_id) if node.parent_id else None
        if parent is None or parent is node:
            node.is_orphan = bool(node.parent_id) and parent is None
            roots.append(node)
        else:
            parents[id(node)] = parent
    num_circles = sum(node.parent_id == node.id != "" for node in roots)
    for node in _circle_breakers(nodes, parents):
        del parents[id(node)]
        roots.append(node)
        num_circles += 1
    for node in nodes:
        if parent := parents.get(id(node)):
            parent.children.append(node)
    roots.sort(key=lambda node: (node.start_ns, node.id))
    return roots, num_circles


def _circle_breakers(nodes: Sequence[Node], parents: Mapping[int, Node]) -> list[Node]:
    """Return of each circle of parents the span that starts first; it becomes a root."""
    done: set[int] = set()
    found: list[Node] = []
    for begin in nodes:
        path: dict[int, Node] = {}
        node: Node | None = begin
        while node is not None and id(node) not in done and id(node) not in path:
            path[id(node)] = node
            node = parents.get(id(node))
        if node is not None and id(node) in path:
            on_path = list(path.values())
            circle = on_path[on_path.index(node) :]
            found.append(min(circle, key=lambda each: (each.start_ns, each.id)))
        done |= path.keys()
    return found


def _correct_clocks(roots: Sequence[Node]) -> dict[str, int]:
    """Move servers' spans into their callers' where both ends are known; return ns by service.

    A server's span lies within the span of the client that waits for it. If it does not, the two
    clocks differ by at least the distance that it sticks out, so it and all below it on the same
    service are moved by that much. A span that lasts longer than its caller's cannot be corrected.
    """
    moves: dict[str, int] = {}
    waiting: list[tuple[Node, Node | None]] = [(root, None) for root in roots]
    while waiting:
        node, parent = waiting.pop()
        if parent is not None:
            # A child on its parent's machine was timed by the same clock.
            move = parent.moved_ns if node.service == parent.service else 0
            if not move and _is_called(node, parent):
                early = parent.start_ns - node.start_ns
                late = node.end_ns - parent.end_ns
                move = early if early > 0 else -late if late > 0 else 0
            if abs(move) >= _LEAST_MOVE_NS:
                node.start_ns += move
                node.moved_ns = move
                if node.service != parent.service:
                    moves[node.service] = max(moves.get(node.service, 0), move, key=abs)
        waiting += [(child, node) for child in node.children]
    return moves


def _is_called(node: Node, parent: Node) -> bool:
    return (
        node.role == _SERVER
        and parent.role not in ("Producer", "Consumer")
        and node.service != parent.service
        and not node.is_clamped
        and not parent.is_clamped
        and node.duration_ns <= parent.duration_ns
    )


def _words(number: int, of_one: str, of_many: str) -> str:
    if not number:
        return ""
    return f"1 span {of_one}." if number == 1 else f"{formats.count(number)} spans {of_many}."


def _cut_words(num_received: int, num_read: int) -> str:
    if num_received <= num_read:
        return ""
    return (
        f"The trace has {formats.count(num_received)} spans; the first {formats.count(num_read)} "
        "are shown."
    )


def _root_words(roots: Sequence[Node]) -> str:
    orphans = sum(node.is_orphan for node in roots)
    if not orphans:
        return ""
    if orphans == len(roots):
        return "The caller's own span was not received: the trace begins with what it called."
    return _words(
        orphans, "names a parent that was not received", "name a parent that was not received"
    )


def _clock_words(moves: Mapping[str, int]) -> str:
    if not moves:
        return ""
    said = ", ".join(
        f"{service or 'an unnamed service'} by {formats.signed_seconds(move / 1e9)}"
        for service, move in sorted(moves.items())
    )
    return f"Clocks differ; spans were moved to lie within their callers': {said}."
