"""Words and table rows of sessions, and how the list is ordered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.markup import Cell, page_link, phase_bar
from evenkeel_dashboard.draw.request_rows import request_href, short_id
from evenkeel_dashboard.pages.sessions.figure import colour_of_kind
from evenkeel_dashboard.pages.sessions.ledger_bar import (
    bar_parts,
    cause_words,
    colour_of_cause,
    read_session_ledger,
)
from evenkeel_dashboard.pages.sessions.timeline import Step, phase_seconds
from evenkeel_dashboard.sessions.work import WorkKind

Row = Mapping[str, Any]

ORDERS = {
    "e2e": "slowest",
    "cost": "most expensive",
    "recompute": "most recomputed",
    "turns": "most turns",
    "time": "newest",
}
OUTCOMES = {"": "all", "failed": "failed", "ok": "done well", "open": "still open"}
STEP_KINDS = {
    "": "all steps",
    "path": "critical path",
    "request": "turns",
    "tool": "tools",
    "agent": "agents",
}
STEP_ORDERS = {"time": "in order", "longest": "longest first", "cost": "most expensive first"}
_STEP_WORDS = {WorkKind.REQUEST: "turn", WorkKind.TOOL: "tool", WorkKind.AGENT: "agent"}
_LEVELS = {"ok": "", "error": "bad", "aborted": "warning", "shed": "warning", "open": ""}
HEADERS = (
    "session", "last seen", "turns", "tools", "time to done", "where the time went",
    "recomputed", "input", "output", "cost", "model", "tenant", "end",
)  # fmt: skip
_RANKED_BY = {
    "e2e": "e2e_s", "cost": "cost", "recompute": "recompute_s", "turns": "num_requests",
    "time": "end_ms",
}  # fmt: skip
_ORDER_OF = {
    "time to done": "e2e", "cost": "cost", "recomputed": "recompute", "turns": "turns",
    "last seen": "time",
}  # fmt: skip


def ordering_headers(params: Mapping[str, str]) -> list[str | Cell]:
    """Return the headers of the list, linked to the page ordered by that column."""
    now = params.get("order", next(iter(ORDERS)))
    found: list[str | Cell] = []
    for header in HEADERS:
        order = _ORDER_OF.get(header)
        shown = formats.zoned(header) if header == "last seen" else header
        if order is None:
            found.append(Cell(shown))
            continue
        linked = {k: v for k, v in params.items() if k != "page"} | {"order": order}
        mark = " ▼" if order == now else ""
        found.append(Cell(shown + mark, href=page_link("sessions", linked)))
    return found


def session_cells(
    rows: Sequence[Row], params: Mapping[str, str], colours: Palette
) -> list[list[Cell]]:
    """Return one row of cells per session; all bars share one scale."""
    longest_s = max((row["e2e_s"] or 0.0 for row in rows), default=0.0)
    return [_session_cells(row, params, colours, longest_s) for row in rows]


def _session_cells(
    row: Row, params: Mapping[str, str], colours: Palette, longest_s: float
) -> list[Cell]:
    spent = bar_parts(read_session_ledger(row["ledger"]), colours)
    return [
        Cell(
            short_id(row["session_id"]), href=session_href(row, params),
            copies=row["session_id"], title=row["session_id"],
        ),
        Cell(formats.short_clock_ms(row["end_ms"]), sorts_as=row["end_ms"]),
        Cell(formats.count(row["num_requests"]), is_number=True),
        Cell(formats.count(row["num_tools"]), is_number=True),
        Cell(formats.seconds(row["e2e_s"]), is_number=True),
        Cell(
            html=phase_bar(spent, longest_s) or formats.NO_DATA,
            sorts_as=sum(seconds for _, _, seconds in spent),
        ),
        Cell(recomputed_words(row["recompute_s"]), is_number=True),
        Cell(formats.count(row["input_tokens"]), is_number=True),
        Cell(formats.count(row["output_tokens"]), is_number=True),
        cost_cell(row["cost"], row["currency"]),
        Cell(row["model"] or "–"),
        Cell(row["tenant"] or "–"),
        outcome_cell(row),
    ]  # fmt: skip


def session_href(row: Row, params: Mapping[str, str]) -> str:
    """Return the link to a session; it includes the tenant, as two may use the same ID."""
    shown = {k: v for k, v in params.items() if k not in ("page", "order", "outcome", "step")}
    own = {"session_id": row["session_id"], "of": row["tenant"] or ""}
    return page_link("sessions", {**own, **shown})


def recomputed_words(seconds: float | None) -> str:
    """Return the seconds spent on recomputed prefixes; none is a dash."""
    return "–" if not seconds else formats.seconds(seconds)


def cost_cell(cost: float | None, currency: str | None) -> Cell:
    """Return a cost with its currency; without a price there is none, which is not 0."""
    if cost is None:
        why = "no price is known for its model, or not all that it charges for"
        return Cell(formats.NO_PRICE, is_number=True, title=why)
    return Cell(cost_words(cost, currency), is_number=True, sorts_as=cost)


def cost_words(cost: float | None, currency: str | None) -> str:
    """Return an amount with its currency, such as 0.0123 USD; "no price" if it is unknown."""
    if cost is None:
        return formats.NO_PRICE
    return formats.money(cost, currency or "")


def outcome_cell(row: Row) -> Cell:
    """Return how a session ended: as its last request did, or that it is still open."""
    status = row["last_status"]
    if row["is_open"]:
        words = "open" if status == "ok" else f"open, {status}"
        title = "its last request was too recent to tell whether it is over"
        return Cell(words, level=_LEVELS.get(status, ""), title=title)
    return Cell(status, level=_LEVELS.get(status, ""))


def step_cells(
    steps: Sequence[tuple[int, Step]],
    currency: str | None,
    params: Mapping[str, str],
    colours: Palette,
) -> list[list[Cell]]:
    """Return one row of cells per step; all bars share one scale.

    Args:
        steps: Steps with their numbers.
        currency: Of their costs.
        params: The parameters of links to requests.
        colours: Of the theme.
    """
    longest_s = max((step.work.seconds for _, step in steps), default=0.0)
    return [_step_cells(n, step, currency, params, colours, longest_s) for n, step in steps]


STEP_HEADERS = (
    "#", "step", "what", "began after", "took", "where the time went", "critical", "input",
    "cached", "output", "recomputed", "cost", "end",
)  # fmt: skip


def _step_cells(
    number: int,
    step: Step,
    currency: str | None,
    params: Mapping[str, str],
    colours: Palette,
    longest_s: float,
) -> list[Cell]:
    work, row = step.work, step.row
    is_turn = work.kind is WorkKind.REQUEST
    bar = [(cause_words(c), colour_of_cause(c, colours), s) for c, s in phase_seconds(work)]
    bar = bar or [(work.name, colour_of_kind(work.kind, colours), work.seconds)]
    counts = [row[name] for name in ("input_tokens", "cached_tokens", "output_tokens")]
    return [
        Cell(f"{number:,}", is_number=True, sorts_as=number),
        Cell(_STEP_WORDS[work.kind]),
        Cell(
            short_id(work.request_id) if is_turn else work.name,
            href=_request_href(row, params) if is_turn else "",
            copies=work.request_id,
            title=work.request_id or work.name,
        ),
        # An agent begins a little before its first request, which is when the session begins.
        Cell(formats.seconds(max(0.0, step.start_s)), is_number=True, sorts_as=step.start_s),
        Cell(formats.seconds(work.seconds), is_number=True, sorts_as=work.seconds),
        Cell(html=phase_bar(bar, longest_s) or "–", sorts_as=work.seconds),
        Cell("●" if step.is_critical else "", title="on the critical path"),
        *(Cell(formats.count(c) if is_turn else "–", is_number=True) for c in counts),
        Cell(recomputed_words(work.recompute_s), is_number=True),
        cost_cell(row["cost"], currency) if is_turn else Cell("–", is_number=True),
        Cell(row["status"], level=_LEVELS.get(row["status"], "bad")),
    ]


def _request_href(row: Row, params: Mapping[str, str]) -> str:
    return request_href({**row, "time_ms": row["start_ns"] // 1_000_000}, params)


def chosen_steps(steps: Sequence[Step], kind: str, order: str) -> list[tuple[int, Step]]:
    """Return the steps to list, each with its number in the session, from 1.

    Args:
        steps: All steps, in order.
        kind: One of `STEP_KINDS`.
        order: One of `STEP_ORDERS`.
    """
    found = [
        (number, step)
        for number, step in enumerate(steps, 1)
        if not kind or (step.is_critical if kind == "path" else step.work.kind.value == kind)
    ]
    if order == "longest":
        found.sort(key=lambda each: -each[1].work.seconds)
    elif order == "cost":
        found.sort(key=lambda each: -(each[1].row["cost"] or 0.0))
    return found


def in_order(
    rows: Sequence[Row], tenants: Sequence[str], session_ids: Sequence[str], order: str
) -> list[Row]:
    """Return sessions in the order of their keys; one that is gone meanwhile is left out.

    Open sessions have grown since their keys were read: what they are ordered by decides.
    """
    read = {(row["tenant"], row["session_id"]): row for row in rows}
    keys = zip(tenants, session_ids, strict=True)
    found = [read[key] for key in keys if key in read]
    return sorted(found, key=lambda row: -(row[_RANKED_BY[order]] or 0))
