"""Lays a trace out as rows of a waterfall: indented by parent, repeated siblings as one row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel import spans
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.escaping import visible
from evenkeel_dashboard.pages.request.span_kinds import (
    COST,
    INPUT_TOKENS,
    MODEL_NAME,
    OUTPUT_TOKENS,
    TOOL_NAME,
    SpanKind,
    first_of,
)
from evenkeel_dashboard.pages.request.trace_axis import Axis
from evenkeel_dashboard.pages.request.trace_tree import Node, Trace

Row = Mapping[str, Any]

# So many siblings of one kind, name and service become one row, which opens.
LEAST_REPEATED = 6
# Characters of a name or an error that are drawn; the span's details have more.
MAX_WORDS = 300
# A trace of up to so many rows is shown open.
OPEN_ROWS = 80
_OPEN_DEPTH = 2


@dataclass(frozen=True, slots=True)
class Amounts:
    """Tokens and cost of a span, or of the spans of a row; None if no span has any.

    Costs in different currencies (`is_mixed`) have no sum.
    """

    input_tokens: float | None = None
    output_tokens: float | None = None
    cost: float | None = None
    currency: str = ""
    is_mixed: bool = False

    def plus(self, other: Amounts) -> Amounts:
        """Return the sum."""
        is_same = not self.currency or not other.currency or self.currency == other.currency
        is_mixed = self.is_mixed or other.is_mixed or not is_same
        return Amounts(
            _plus(self.input_tokens, other.input_tokens),
            _plus(self.output_tokens, other.output_tokens),
            None if is_mixed else _plus(self.cost, other.cost),
            self.currency or other.currency,
            is_mixed,
        )


NOTHING = Amounts()


@dataclass(slots=True)
class WaterfallRow:
    """One row: a span, or siblings that repeat.

    Attributes:
        depth: Indentation, from 0.
        size: Rows below it that belong to it; they follow it.
        node: The span; the first of several.
        repeated: How many spans the row stands for; 1 for a single one.
        start_ns: Start of the first, and `end_ns` the end of the last.
        busy_ns: Sum of the durations.
        amounts: Tokens and cost, each call's once.
        error: What went wrong, or how many failed.
        is_view: Whether another span of the same call is counted in its place.
        is_request: Whether it is a request in `requests`.
    """

    depth: int
    size: int
    node: Node
    repeated: int
    start_ns: int
    end_ns: int
    busy_ns: int
    amounts: Amounts
    error: str
    is_view: bool
    is_request: bool


def lay_out(trace: Trace, requests: Sequence[Row]) -> list[WaterfallRow]:
    """Return the rows of a trace, each before the rows below it.

    Args:
        trace: The trace.
        requests: Its rows of `requests`, whose tokens and costs are those that count.
    """
    counted = {row["span_id"]: row for row in requests}
    rows: list[WaterfallRow] = []
    # Entries are added last first; a row's size is known once all below it are done.
    waiting: list[tuple[int, Sequence[Node]] | int] = [
        (0, group) for group in reversed(_groups(trace.roots))
    ]
    open_rows: list[int] = []
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, int):
            place = open_rows.pop()
            rows[place].size = len(rows) - place - 1
            continue
        depth, group = entry
        open_rows.append(len(rows))
        waiting.append(-1)
        rows.append(_row(depth, group, counted))
        if len(group) > 1:
            waiting += [(depth + 1, [node]) for node in reversed(group)]
        else:
            waiting += [(depth + 1, below) for below in reversed(_groups(group[0].children))]
    return rows


def _groups(siblings: Sequence[Node]) -> list[Sequence[Node]]:
    """Return siblings one by one, but those that repeat together, in the order of their starts."""
    keys = [(node.kind, node.name, node.service) for node in siblings]
    number = Counter(keys)
    found: dict[object, list[Node]] = {}
    for node, key in zip(siblings, keys, strict=True):
        found.setdefault(key if number[key] >= LEAST_REPEATED else id(node), []).append(node)
    return list(found.values())


def _row(depth: int, group: Sequence[Node], counted: Mapping[str, Row]) -> WaterfallRow:
    first = group[0]
    amounts = NOTHING
    for node in group:
        own = amounts_of(node, counted.get(node.id))
        if own is not NOTHING:
            amounts = amounts.plus(own)
    failed = [node.error for node in group if node.error]
    error = failed[0] if failed else ""
    if len(group) > 1 and failed:
        error = f"{len(failed)} failed: {error}"
    is_request = any(node.id in counted for node in group)
    return WaterfallRow(
        depth=depth,
        size=0,
        node=first,
        repeated=len(group),
        start_ns=min(node.start_ns for node in group),
        end_ns=max(node.end_ns for node in group),
        busy_ns=sum(node.duration_ns for node in group),
        amounts=amounts,
        error=error,
        is_view=first.kind is SpanKind.MODEL and not is_request,
        is_request=is_request,
    )


def amounts_of(node: Node, request: Row | None = None) -> Amounts:
    """Return the tokens and cost of a span: of its request, otherwise those that it states."""
    if request is not None:
        return _amounts_of_request(request)
    if not node.attributes:
        return NOTHING
    cost = _number(first_of(node.attributes, COST))
    return Amounts(
        _number(first_of(node.attributes, INPUT_TOKENS)),
        _number(first_of(node.attributes, OUTPUT_TOKENS)),
        cost,
        "" if cost is None else "USD",
    )


def _amounts_of_request(row: Row) -> Amounts:
    cost = row.get("cost")
    known = None if cost is None or math.isnan(cost) else cost
    currency = "" if known is None else row.get("currency") or ""
    return Amounts(row["input_tokens"], row["output_tokens"], known, currency)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _plus(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other


def folded(rows: Sequence[WaterfallRow], wanted: Collection[str]) -> list[int]:
    """Return the places of the rows that are closed at first.

    A short trace is open but for its repeated siblings. In a long one, only the first levels and
    the way to the wanted spans are.
    """
    wanted_at = [
        place for place, row in enumerate(rows) if row.repeated == 1 and row.node.id in wanted
    ]
    closable = [
        place
        for place, row in enumerate(rows)
        if row.size and not any(place < at <= place + row.size for at in wanted_at)
    ]
    repeated = [place for place in closable if rows[place].repeated > 1]
    if _num_visible(rows, repeated) <= OPEN_ROWS:
        return repeated
    return [
        place for place in closable if rows[place].repeated > 1 or rows[place].depth >= _OPEN_DEPTH
    ]


def _num_visible(rows: Sequence[WaterfallRow], closed: Collection[int]) -> int:
    closed = set(closed)
    place = number = 0
    while place < len(rows):
        number += 1
        place += 1 + (rows[place].size if place in closed else 0)
    return number


def title_of(row: WaterfallRow) -> str:
    """Return the name of a row; of a tool or a model, what was called too."""
    node = row.node
    name = node.name or "unnamed"
    called = ""
    if node.kind is SpanKind.TOOL:
        called = first_of(node.attributes, TOOL_NAME)
    elif node.kind in (SpanKind.MODEL, SpanKind.EMBEDDING):
        called = first_of(node.attributes, MODEL_NAME)
    if called and called not in name:
        name = f"{name} {called}"
    return f"{name} ×{formats.count(row.repeated)}" if row.repeated > 1 else name


def tokens_words(amounts: Amounts) -> str:
    """Return tokens in and out: 1,204 → 87; "" if there are none."""
    if amounts.input_tokens is None and amounts.output_tokens is None:
        return ""
    sides = (amounts.input_tokens, amounts.output_tokens)
    return " → ".join("–" if side is None else formats.count(side) for side in sides)


def cost_words(amounts: Amounts) -> str:
    """Return a cost with its currency: 0.0042 USD; "" if it is not known."""
    if amounts.cost is None:
        return ""
    return formats.money(amounts.cost, amounts.currency)


def colour_of(node: Node, palette: Palette) -> str:
    """Return the colour of a span's bar: the same for the same kind, and phases' as elsewhere."""
    phases = {
        spans.SPAN_QUEUE: palette.queue,
        spans.SPAN_PREFILL: palette.prefill,
        spans.SPAN_DECODE: palette.decode,
    }
    if node.name in phases:
        return phases[node.name]
    chosen = {
        SpanKind.MODEL: 0,
        SpanKind.TOOL: 3,
        SpanKind.AGENT: 6,
        SpanKind.RETRIEVAL: 2,
        SpanKind.EMBEDDING: 2,
        SpanKind.RERANK: 2,
        SpanKind.DATABASE: 7,
        SpanKind.TEMPLATE: 1,
        SpanKind.PREPARATION: 1,
        SpanKind.EVALUATION: 5,
        SpanKind.GUARDRAIL: 5,
        SpanKind.MCP: 3,
    }.get(node.kind)
    return palette.muted if chosen is None else palette.categories[chosen]


def shown_data(
    axis: Axis,
    rows: Sequence[WaterfallRow],
    palette: Palette,
    wanted: Collection[str],
    hrefs: Mapping[str, str],
) -> dict[str, Any]:
    """Return what the browser draws: one short list per row, words as a person reads them.

    Args:
        axis: The time that the bars are drawn over.
        rows: The trace's rows.
        palette: The theme's colours.
        wanted: Ids of the spans to mark and to open the way to.
        hrefs: `before` and `after` of the address of a span's details, around its id.
    """
    words: dict[str, int] = {}
    ids = Counter(row.node.id for row in rows if row.repeated == 1)

    def word(text: str) -> int:
        return words.setdefault(visible(text, MAX_WORDS), len(words))

    lines = [
        [
            row.depth,
            row.size,
            word(row.node.kind.value),
            word(title_of(row)),
            word(row.node.service),
            round(axis.left(row.start_ns), 5),
            round(axis.width(row.start_ns, row.end_ns), 5),
            _duration_words(row),
            tokens_words(row.amounts),
            cost_words(row.amounts),
            word(row.error),
            word(colour_of(row.node, palette)),
            row.node.id if row.repeated == 1 else "",
            row.is_view + 2 * row.is_request + 4 * bool(row.node.moved_ns)
            + 8 * row.node.is_orphan + 16 * (ids[row.node.id] > 1),
            axis.beyond_words(row.start_ns, row.end_ns),
        ]
        for row in rows
    ]  # fmt: skip
    return {
        "rows": lines,
        "words": list(words),
        "folded": folded(rows, wanted),
        "wanted": sorted(wanted),
        "ticks": [formats.seconds(axis.whole_ns / 1e9 * part / 4) for part in range(5)],
        "trace": f"{len(rows)} {axis.begin_ns}",
        **hrefs,
    }


def _duration_words(row: WaterfallRow) -> str:
    if row.node.is_clamped and row.repeated == 1:
        return "unknown"
    said = formats.seconds(row.busy_ns / 1e9)
    return f"{said} in all" if row.repeated > 1 else said


def summary(trace: Trace, requests: Sequence[Row]) -> str:
    """Return what the trace holds, in a line: each request's tokens and cost once."""
    nodes = trace.nodes()
    total, num_priced = NOTHING, 0
    for row in requests:
        own = _amounts_of_request(row)
        total, num_priced = total.plus(own), num_priced + (own.cost is not None)
    num_failed = sum(bool(node.error) for node in nodes)
    num_services = len({node.service for node in nodes})
    parts = [
        _counted(trace.num_shown, "span"),
        _counted(num_services, "service"),
        _counted(len(requests), "request"),
    ]
    if said := tokens_words(total):
        parts.append(f"{said} tokens")
    if said := cost_words(total):
        some = f" for the {formats.count(num_priced)} with a price"
        parts.append(said + (some if num_priced < len(requests) else ""))
    if num_failed:
        parts.append(f"{formats.count(num_failed)} failed")
    return ", ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{formats.count(number)} {noun}{'' if number == 1 else 's'}"
