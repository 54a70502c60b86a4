"""The ledger of a session: where the time from its first arrival to its end went.

Seconds are charged along the critical path, walked backwards from the end: each moment belongs to
the work that the session waited for, and to nothing else, so the causes add up to the wall time.

    model.queue, model.prefill, model.recompute, model.decode   a request's phases; `recompute` is
                                the part of its prefill that computed evicted tokens again
    model.other                 the rest of a request, or all of it if its phases are unknown
    tool.NAME                   a tool, but for the requests and tools inside it
    client                      no work at all: think time and unexplained gaps between requests
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evenkeel_dashboard.sessions.tree import MAX_DEPTH, WorkNode, grow
from evenkeel_dashboard.sessions.work import Work, WorkKind

QUEUE, PREFILL, RECOMPUTE, DECODE, OTHER = (
    "model.queue", "model.prefill", "model.recompute", "model.decode", "model.other",
)  # fmt: skip
CLIENT = "client"
TOOL_PREFIX = "tool."
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of the critical path: the work that the session waited for, if any."""

    start_ns: int
    end_ns: int
    cause: str
    work: Work | None = None


@dataclass(frozen=True, slots=True)
class SessionLedger:
    """Where the time of a session went.

    Attributes:
        start_ns: First arrival of a request or start of a tool.
        end_ns: Last end of one.
        seconds: Seconds by cause; they add up to the time between the two.
        path: The critical path, first stretch first, without gaps.
        tree: All work, with what it called.
    """

    start_ns: int
    end_ns: int
    seconds: Mapping[str, float]
    path: tuple[Stretch, ...]
    tree: tuple[WorkNode, ...]

    @property
    def e2e_s(self) -> float:
        """From the first arrival to the end."""
        return (self.end_ns - self.start_ns) / _NS

    @property
    def saved_s(self) -> float:
        """How much sooner the session would have ended with its prefix kept in the cache."""
        return self.seconds.get(RECOMPUTE, 0.0)

    def total(self, prefix: str) -> float:
        """Return the seconds of all causes that begin with `prefix`, such as `tool.`."""
        return sum(seconds for cause, seconds in self.seconds.items() if cause.startswith(prefix))


def account(works: Sequence[Work]) -> SessionLedger | None:
    """Return the ledger of a session; None without a request and without a tool."""
    timed = [work for work in works if work.kind is not WorkKind.AGENT]
    if not timed:
        return None
    start_ns = min(work.start_ns for work in timed)
    end_ns = max(work.end_ns for work in timed)
    tree = grow(works)
    roots = [node for node in tree if node.parent is None]
    backwards = list(_Walk().through(_Calls(_worked(roots)), start_ns, end_ns, CLIENT))
    path = tuple(reversed(backwards))
    length_ns: Counter[str] = Counter()
    for stretch in path:
        length_ns[stretch.cause] += stretch.end_ns - stretch.start_ns
    seconds = {cause: length / _NS for cause, length in sorted(length_ns.items())}
    return SessionLedger(start_ns, end_ns, seconds, path, tuple(tree))


def _worked(nodes: Sequence[WorkNode]) -> list[WorkNode]:
    """Return requests and tools; an agent is replaced by what it called."""
    found = []
    left = list(reversed(nodes))
    while left:
        node = left.pop()
        if node.work.kind is WorkKind.AGENT:
            left.extend(reversed(node.children))
        else:
            found.append(node)
    return found


class _Calls:
    """Calls of one caller, on a walk back in time that passes each moment once.

    Attributes:
        waiting: Those that ended before the moment that the walk has reached, by their ends.
        running: Those that run then or began later, the one that began last first.
    """

    def __init__(self, nodes: Sequence[WorkNode]) -> None:
        self.waiting = sorted(nodes, key=lambda node: (node.work.end_ns, node.work.start_ns))
        self.running: list[tuple[int, int, WorkNode]] = []

    def run_next(self) -> WorkNode:
        """Return the call that ended last, which runs from now on."""
        node = self.waiting.pop()
        heapq.heappush(self.running, (-node.work.start_ns, len(self.waiting), node))
        return node

    def go_to(self, now_ns: int) -> None:
        """Go back to a moment."""
        while self.waiting and self.waiting[-1].work.end_ns > now_ns:
            self.run_next()
        while self.running and self.running[0][2].work.start_ns >= now_ns:
            heapq.heappop(self.running)


class _Walk:
    """A walk back along the critical path; what a caller called is sorted once."""

    def __init__(self) -> None:
        self._calls_of: dict[int, _Calls | None] = {}

    def through(
        self,
        calls: _Calls,
        start_ns: int,
        end_ns: int,
        idle: str,
        owner: Work | None = None,
        depth: int = 0,
    ) -> Iterator[Stretch]:
        """Yield the path through calls within a window, last stretch first.

        Work that begins at a moment waited for what ended last before it. Where nothing did, it is
        charged to whatever ran then, and to `idle` if nothing did.
        """
        now_ns = end_ns
        while now_ns > start_ns:
            calls.go_to(now_ns)
            ended_ns = start_ns
            if calls.waiting:
                ended_ns = max(start_ns, calls.waiting[-1].work.end_ns)
            if calls.waiting and ended_ns == now_ns:
                node = calls.run_next()
                from_ns = max(start_ns, node.work.start_ns)
            elif calls.running:
                node = calls.running[0][2]
                from_ns = max(ended_ns, node.work.start_ns)
            else:
                yield Stretch(ended_ns, now_ns, idle, owner)
                now_ns = ended_ns
                continue
            if from_ns < now_ns:
                yield from self._inside(node, from_ns, now_ns, depth)
            now_ns = from_ns

    def _inside(self, node: WorkNode, start_ns: int, end_ns: int, depth: int) -> Iterator[Stretch]:
        """Yield the path through one piece of work within a window, last stretch first."""
        work = node.work
        is_tool = work.kind is WorkKind.TOOL
        own = f"{TOOL_PREFIX}{work.name}" if is_tool else OTHER
        if id(node) not in self._calls_of:
            inner = _worked(node.children) if depth < MAX_DEPTH else []
            self._calls_of[id(node)] = _Calls(inner) if inner else None
        calls = self._calls_of[id(node)]
        if calls is not None:
            yield from self.through(calls, start_ns, end_ns, own, work, depth + 1)
        elif is_tool:
            yield Stretch(start_ns, end_ns, own, work)
        else:
            for cause, from_ns, to_ns in reversed(phases(work)):
                low, high = max(from_ns, start_ns), min(to_ns, end_ns)
                if low < high:
                    yield Stretch(low, high, cause, work)


def phases(work: Work) -> list[tuple[str, int, int]]:
    """Return a request's phases, which fill its time: cause, start and end in nanoseconds."""
    prefill_s, recompute_s = work.prefill_s or 0.0, work.recompute_s or 0.0
    lengths = [
        (QUEUE, work.queue_s or 0.0),
        (RECOMPUTE, recompute_s),
        (PREFILL, max(0.0, prefill_s - recompute_s)),
        (DECODE, work.decode_s or 0.0),
    ]
    total_s = sum(seconds for _, seconds in lengths)
    # Phases are of the server's monotonic clock, the rest of the span's; they may differ a little.
    scale = min(1.0, work.seconds / total_s) if total_s > 0 else 0.0
    found, at_ns, done_s = [], work.start_ns, 0.0
    for cause, seconds in lengths:
        done_s += seconds * scale
        to_ns = min(work.end_ns, work.start_ns + round(done_s * _NS))
        found.append((cause, at_ns, to_ns))
        at_ns = to_ns
    found.append((OTHER, at_ns, work.end_ns))
    return [each for each in found if each[1] < each[2]]
