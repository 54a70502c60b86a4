"""Which sessions were slow, expensive or failed, and where did the time of one go?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel.spans import HEADER_SESSION
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.tiles import Tile
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.contents import range_of
from evenkeel_dashboard.frame.fields import pick, write
from evenkeel_dashboard.frame.page import colours, now_ms, refreshing, selection_bar
from evenkeel_dashboard.frame.paging import page_number, pages_beside
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.pages.sessions.ledger_bar import CAUSES, colour_of_cause
from evenkeel_dashboard.pages.sessions.model import (
    ORDERS,
    OUTCOMES,
    cost_words,
    in_order,
    ordering_headers,
    session_cells,
)
from evenkeel_dashboard.pages.sessions.session import show_session

_HERE = Path(__file__).parent
MAX_SHOWN = 40
_MOST_PAGES = 250
# A session has one of each; it may use several prompts.
_FILTERS = ("model", "tenant", "slo_class")
_LOOK_FOR = (
    "A session is everything that a user or an agent waits for in one task: its requests, its "
    "tool calls and the time between them. Look for sessions that spend their time in the queue "
    "or on recomputed prefixes rather than on tools and answers, then open one to see what it "
    "waited for."
)

Row = dict[str, Any]


def show() -> None:
    """Draw the list, or the session in the URL."""
    wanted = st.query_params.get("session_id", "").strip()
    if wanted:
        show_session(wanted)
        return
    selection = selection_bar(_FILTERS)
    st.html(markup.lead(_LOOK_FOR))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        order = pick("order", "order by", ORDERS, 170)
        outcome = pick("outcome", "outcome", OUTCOMES, 130)
        route = write("route", "route", "checkout", 150)
        found = write("find", "session", "an ID", 200)
    if found:
        # Another page of the same address.
        st.query_params["session_id"] = found
        st.query_params.pop("find", None)
        st.rerun()
    parameters: dict[str, str | int] = {
        **{name: selection.filters()[name] for name in _FILTERS},
        "order_by": order,
        "outcome": outcome,
        "route": route,
    }
    refreshing(partial(_body, selection, parameters), selection.refresh_s())


def _body(selection: Selection, parameters: dict[str, str | int]) -> None:
    window = selection.window(now_ms())
    ranged: dict[str, str | int] = {**range_of(window), **parameters, "limit": MAX_SHOWN}
    first = (min(page_number(st.query_params.get("page", "")), _MOST_PAGES) - 1) * MAX_SHOWN
    counts = _read_keys(ranged, first)
    if first and not counts["session_ids"]:
        # Other filters or another range may have had more pages.
        first = 0
        counts = _read_keys(ranged, first)
    if not first:
        st.query_params.pop("page", None)
    if not counts["session_ids"]:
        _say_empty()
        return
    keys: reading.Parameters = {
        "session_ids": tuple(counts["session_ids"]),
        "tenants": tuple(counts["tenants"]),
    }
    read = reading.rows_later(_HERE / "sessions.sql", keys)
    _show_tiles(counts)
    order = str(parameters["order_by"])
    with st.container(border=True, key="card-sessions"):
        st.html(
            f'<div class="ek-title">Sessions<small>{ORDERS[order]} first; '
            "each ended as its last request did; click an id to see what it waited for; "
            f"data as of {formats.clock_ms(now_ms())}</small></div>"
        )
        palette = colours()
        st.html(markup.key([(words, colour_of_cause(c, palette)) for c, words in CAUSES.items()]))
        rows = in_order(read(), counts["tenants"], counts["session_ids"], order)
        cells = session_cells(rows, selection.to_params(), palette)
        st.html(markup.table(ordering_headers(dict(st.query_params)), cells, "Sessions found"))
        num_all = int(counts["num_found"])
        beside = pages_beside("sessions", dict(st.query_params), first, len(rows), num_all)
        st.html(markup.pager(first, len(rows), num_all, *beside))


def _read_keys(ranged: dict[str, str | int], first: int) -> Row:
    """Return how the sessions of the range went, and the keys of those from `first` on."""
    paged = {**ranged, "offset": first, "most": first + MAX_SHOWN}
    return reading.rows_later(_HERE / "session_keys.sql", paged)()[0]


def _show_tiles(counts: Row) -> None:
    failed = counts["num_failed"] / counts["num_found"] if counts["num_found"] else None
    evicted = "requests that computed a prefix again that had been cached and was evicted"
    tiles = [
        Tile("Sessions", formats.count(counts["num_found"]), "", "last seen in the range"),
        Tile("Still open", formats.count(counts["num_open"]), "",
             "seen in the last 30 minutes, so they may not be over yet"),
        Tile("Failed", formats.percent(failed), "",
             "those whose last request did not end well; an open one may try again"),
        Tile("Time to done, p50", formats.seconds(counts["e2e_p50_s"]), "",
             "from the first request's arrival to the end of the last one"),
        Tile("Time to done, p95", formats.seconds(counts["e2e_p95_s"]), "",
             "from the first request's arrival to the end of the last one"),
        Tile("Recomputed prefixes", formats.count(counts["num_evicted"]), "", evicted),
        Tile("Cost", cost_words(counts["total_cost"], counts["any_currency"]), "",
             "of the requests that have a price", is_wide=True),
    ]  # fmt: skip
    st.html(markup.number_tiles(tiles, ""))


def _say_empty() -> None:
    """Draw why there is no session: none stored, or none that matches."""
    stored = reading.rows_later(_HERE / "any_session.sql", {})()
    st.html(f'<div class="ek-asof">data as of {formats.clock_ms(now_ms())}</div>')
    if not stored:
        st.html(
            markup.hint(
                "No sessions yet",
                f"Send the header {HEADER_SESSION} with each request of a task, or a session ID "
                "that your agent already sends. The requests of one trace are also a session.",
                f"curl http://127.0.0.1:8000/v1/chat/completions -H '{HEADER_SESSION}: task-1' …",
            )
        )
        return
    last = formats.moment_ms(stored[0]["end_ms"])
    st.html(
        markup.hint(
            "No matching sessions in this range",
            f"Loosen the filters or widen the range. A session was last seen {last}.",
        )
    )
