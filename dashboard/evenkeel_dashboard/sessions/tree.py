"""Which work of a session was called by which."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from evenkeel_dashboard.sessions.work import Work, WorkKind

# Deeper calls count as their caller's own work.
MAX_DEPTH = 32
# A caller may record its end a little before that of what it called.
_TOLERANCE_NS = 1_000_000
_MAX_FRAMES = 300


@dataclass(slots=True, eq=False)
class WorkNode:
    """A piece of work and what it called."""

    work: Work
    parent: WorkNode | None = None
    children: list[WorkNode] = field(default_factory=list)

    def agent(self) -> WorkNode | None:
        """Return the agent in which this happened, if any."""
        node, steps = self.parent, 0
        while node is not None and steps < MAX_DEPTH and node.work.kind is not WorkKind.AGENT:
            node, steps = node.parent, steps + 1
        return node if node is not None and node.work.kind is WorkKind.AGENT else None


def grow(works: Sequence[Work]) -> list[WorkNode]:
    """Return the nodes of a session, in the order of `works`.

    A parent holds what lies within its time; a child that goes on after its parent has ended
    belongs to the parent's parent. A cycle among parents is cut: its work has no parent. Work whose
    parent is not among it belongs to the agent of its trace that began last before it and holds it,
    unless it called this agent.
    """
    nodes = [WorkNode(work) for work in works]
    by_id = {node.work.id: node for node in nodes if node.work.id}
    wanted = [by_id.get(node.work.parent_id) if node.work.parent_id else None for node in nodes]
    parents = dict(zip(map(id, nodes), wanted, strict=True))
    in_cycle = _find_cycles(nodes, parents)
    frames = _Frames([node for node in nodes if node.work.kind is WorkKind.AGENT])
    chosen: dict[int, WorkNode | None] = {}
    guessed: set[int] = set()
    for node in nodes:
        parent = None if id(node) in in_cycle else parents[id(node)]
        steps = 0
        while parent is not None and not _holds(parent, node):
            parent = parents[id(parent)] if id(parent) not in in_cycle else None
            steps += 1
            if steps > MAX_DEPTH:
                parent = None
        if parent is None and _is_parent_unknown(node, by_id) and id(node) not in in_cycle:
            parent = frames.find(node)
            guessed.add(id(node))
        chosen[id(node)] = parent if parent is not node else None
    # Times are tolerant: an agent may hold work that it was called by.
    wrong = guessed & _find_cycles(nodes, chosen)
    for node in nodes:
        parent = chosen[id(node)]
        if parent is not None and id(node) not in wrong:
            node.parent = parent
            parent.children.append(node)
    return nodes


def _is_parent_unknown(node: WorkNode, by_id: dict[str, WorkNode]) -> bool:
    """Tell whether work names a parent that is not part of the session's work."""
    return bool(node.work.parent_id) and node.work.parent_id not in by_id


def _find_cycles(nodes: Sequence[WorkNode], parents: dict[int, WorkNode | None]) -> set[int]:
    """Return the ids of the nodes whose parents lead back to themselves."""
    done: set[int] = set()
    in_cycle: set[int] = set()
    for node in nodes:
        path: list[int] = []
        place: dict[int, int] = {}
        at: WorkNode | None = node
        while at is not None and id(at) not in done and id(at) not in place:
            place[id(at)] = len(path)
            path.append(id(at))
            at = parents[id(at)]
        if at is not None and id(at) in place:
            in_cycle.update(path[place[id(at)] :])
        done.update(path)
    return in_cycle


def _holds(parent: WorkNode, child: WorkNode) -> bool:
    outer, inner = parent.work, child.work
    return (
        outer.start_ns - _TOLERANCE_NS <= inner.start_ns
        and inner.end_ns <= outer.end_ns + _TOLERANCE_NS
    )


class _Frames:
    """Agents by trace and start."""

    def __init__(self, agents: Sequence[WorkNode]) -> None:
        self._of_trace: dict[str, list[WorkNode]] = {}
        for agent in sorted(agents, key=lambda each: each.work.start_ns):
            self._of_trace.setdefault(agent.work.trace_id, []).append(agent)

    def find(self, node: WorkNode) -> WorkNode | None:
        """Return the agent that began last before `node` and holds it, of the latest hundreds."""
        agents = self._of_trace.get(node.work.trace_id, [])
        latest = bisect_right(
            agents, node.work.start_ns + _TOLERANCE_NS, key=lambda each: each.work.start_ns
        )
        for agent in reversed(agents[max(0, latest - _MAX_FRAMES) : latest]):
            if agent is not node and _holds(agent, node) and not _holds(node, agent):
                return agent
        return None
