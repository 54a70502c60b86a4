"""Finds the spans that are views of one model call, and names the time between them.

A call that its client, a gateway and the server trace has a span of each, one above the other. Only
one of them is counted as a request; the page shows the times of all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.pages.request.span_kinds import SpanKind
from evenkeel_dashboard.pages.request.trace_tree import Node

_SERVER = "Server"
_CARRIERS = (SpanKind.MODEL, SpanKind.HTTP, SpanKind.RPC)
# Time between two spans below this is not worth a word.
LEAST_GAP_S = 0.0005


@dataclass(frozen=True, slots=True)
class CallView:
    """What one sender measured of a call.

    Attributes:
        who: client, gateway or server.
        node: Its span.
        is_counted: Whether this one is the request in `requests`.
        between_s: Its duration without that of the view inside it; None for the innermost.
        between: What that time was spent on.
    """

    who: str
    node: Node
    is_counted: bool
    between_s: float | None
    between: str


def views_of(nodes: Sequence[Node], span_id: str, counted: Collection[str]) -> list[CallView]:
    """Return the views of the call that a span belongs to, outermost first.

    Args:
        nodes: The spans of the trace, joined.
        span_id: One of the call's spans, such as the request of the page.
        counted: Span ids of the trace's requests.

    Returns:
        At most one view per service and instrumentation; [] if the span is not in the trace.
    """
    above = {id(child): node for node in nodes for child in node.children}
    own = next((node for node in nodes if node.id == span_id), None)
    if own is None:
        return []
    path = [own]
    while (parent := above.get(id(path[-1]))) is not None:
        path.append(parent)
    chain = [node for node in reversed(path) if node is own or _is_part_of_call(node, own, above)]
    inner: Node | None = own
    while inner is not None:
        inner = _only_model(inner)
        if inner is not None:
            chain.append(inner)
    shown = list(_named(chain))
    return [
        CallView(
            who,
            node,
            node.id in counted,
            _between_s(node, shown[place + 1][1]) if place + 1 < len(shown) else None,
            _between_words(who, shown[place + 1][0]) if place + 1 < len(shown) else "",
        )
        for place, (who, node) in enumerate(shown)
    ]


def _is_part_of_call(node: Node, own: Node, above: dict[int, Node]) -> bool:
    """Return whether a span above the request's is of the same call.

    It is if it calls a model too, or carries the call over HTTP, with nothing else in between.
    """
    if node.kind not in _CARRIERS:
        return False
    below = own
    while below is not node:
        # An agent or tool in between, or several calls below one span: not the same call.
        if below is not own and below.kind in (SpanKind.AGENT, SpanKind.TOOL, SpanKind.APPLICATION):
            return False
        below = above[id(below)]
    if node.kind is SpanKind.MODEL:
        return True
    if len(_models_below(node)) > 1:
        return False
    # The application's own endpoint is not part of the call: one that a call leads to is.
    parent = above.get(id(node))
    return node.role != _SERVER or (
        parent is not None and parent.role != _SERVER and parent.kind in _CARRIERS
    )


def _only_model(node: Node) -> Node | None:
    """Return the next model span below, if there is exactly one."""
    found = _models_below(node)
    return found[0] if len(found) == 1 else None


def _models_below(node: Node) -> list[Node]:
    found: list[Node] = []
    waiting = list(node.children)
    while waiting and len(found) < 2:
        each = waiting.pop()
        if each.kind is SpanKind.MODEL:
            found.append(each)
        else:
            waiting += each.children
    return found


def _named(chain: Sequence[Node]) -> Iterator[tuple[str, Node]]:
    """Yield who measured each view: the first's service is the client, the last's the server."""
    first, last = chain[0], chain[-1]
    for place, node in enumerate(chain):
        if place and _is_detail(node, chain[place - 1]):
            continue
        if last.role == _SERVER and node.service == last.service:
            yield "server", node
        elif node.service == first.service:
            yield "client", node
        else:
            yield "gateway", node


def _is_detail(node: Node, outer: Node) -> bool:
    """Return whether a transport span adds nothing: its own service's view is there already."""
    return node.kind is not SpanKind.MODEL and node.service == outer.service


def _between_s(outer: Node, inner: Node) -> float:
    return (outer.duration_ns - inner.duration_ns) / 1e9


def _between_words(outer: str, inner: str) -> str:
    if outer == inner:
        return f"{outer}'s own code"
    return {"client": "network and client", "gateway": "gateway"}.get(outer, outer)


def gap_words(views: Sequence[CallView]) -> list[str]:
    """Return the time between the views in words: network and client: 38 ms, gateway: 12 ms."""
    return [
        f"{view.between}: {formats.seconds(view.between_s)}"
        for view in views
        if view.between_s is not None and view.between_s >= LEAST_GAP_S
    ]
