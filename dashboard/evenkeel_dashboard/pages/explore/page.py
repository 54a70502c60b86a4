"""Which requests match these filters, and what does an SQL query return?"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from evenkeel.engines.engine_map import known_engines
from evenkeel.errors import StoreError
from evenkeel.store import read_query
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.draw.request_rows import request_cells, request_headers
from evenkeel_dashboard.draw.response_cache import OUTCOMES
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.contents import range_of
from evenkeel_dashboard.frame.fields import pick, write
from evenkeel_dashboard.frame.page import colours, now_ms, refreshing, selection_bar
from evenkeel_dashboard.frame.paging import page_number, pages_beside, rows_or_first_page
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.pages.explore.model import (
    ANSWERS,
    ORDERS,
    STATUSES,
    bound,
    cell_words,
    csv_bytes,
    ordering_headers,
    parquet_bytes,
    refusal_words,
)

if TYPE_CHECKING:
    import pandas as pd

_HERE = Path(__file__).parent
ENGINES = {"": "all", **{name: each.title for name, each in known_engines().items()}}
MAX_SHOWN = 40
MAX_EXPORTED = 10_000
NEWEST = next(iter(ORDERS))
_LOOK_FOR = (
    "Filter the requests, click a header to sort by it, and click an ID to see where that "
    "request's time went. For any other question, query the store in SQL below."
)
_ENDS_MS = (60_000, 3_600_000)
_BOUNDS = {
    "min_ttft_s": ("TTFT ≥", "500ms"),
    "min_e2e_s": ("total ≥", "10s"),
    "min_stall_s": ("longest pause ≥", "1s"),
    "min_input_tokens": ("input ≥", "4k tokens"),
    "min_output_tokens": ("output ≥", "500 tokens"),
    "min_reasoning_tokens": ("reasoning ≥", "200 tokens"),
    "min_repeated_share": ("repeated share ≥", "0.5"),
}


def show() -> None:
    """Draw the page."""
    selection = selection_bar()
    st.html(markup.lead(_LOOK_FOR))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        order = pick("order", "order by", ORDERS, 130)
        status = pick("status", "outcome", STATUSES, 110)
        engine = pick("engine", "engine", ENGINES, 120)
        answer = pick("answer", "answer", ANSWERS, 130)
        finish = write("finish_reason", "finish reason", "length", 110)
        session = write("session", "session", "s-acme-12", 130)
        route = write("route", "route", "checkout", 110)
        cached = pick("response_cache", "response cache", {"": "all"} | OUTCOMES, 150)
        typed = {name: write(name, *words, 110) for name, words in _BOUNDS.items()}
    bounds = {name: bound(text.removesuffix("tokens").strip()) for name, text in typed.items()}
    wrong = [_BOUNDS[name][0] for name, value in bounds.items() if value is None]
    if wrong:
        names = ", ".join(wrong)
        st.error(markup.plain(f"Not a number: {names}. Write 500ms, 1.5s, 4k or 300."))
        refreshing(show_sql, None)
        return
    parameters: dict[str, str | float] = {
        **selection.filters(),
        "order_by": order,
        "status": status,
        "answer": answer,
        "finish_reason": finish,
        "session": session,
        "engine": engine,
        "route": route,
        "response_cache": cached,
        **{name: value or 0.0 for name, value in bounds.items()},
    }
    refreshing(partial(_requests, selection, parameters), selection.refresh_s())
    refreshing(show_sql, None)


def _requests(selection: Selection, parameters: dict[str, str | float]) -> None:
    window = selection.window(now_ms())
    ranged = {**range_of(window), **parameters}
    first = (page_number(st.query_params.get("page", "")) - 1) * MAX_SHOWN
    rows, first = rows_or_first_page(
        lambda offset: _first_rows({**ranged, "offset": offset}), first
    )
    if not first:
        st.query_params.pop("page", None)
    ranged["offset"] = first
    counted = reading.rows_later(_HERE / "explore_count.sql", ranged)
    with st.container(border=True, key="card-found"):
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            words = ORDERS[str(ranged["order_by"])]
            st.html(
                f'<div class="ek-title">Requests<small>by {words}; click a header to order by '
                "it, an id to see where the time went; data as of "
                f"{formats.clock_ms(now_ms())}</small></div>"
            )
            if rows:
                export = {**ranged, "limit": MAX_EXPORTED, "offset": 0}
                _downloads(reading.frame_reader(_HERE / "explore_requests.sql", export), "requests")
        if not rows:
            st.caption("No matches in this range. Loosen the filters or widen the range.")
            return
        palette = colours()
        phases = ("queue", palette.queue), ("prefill", palette.prefill), ("decode", palette.decode)
        st.html(markup.key(phases))
        cells = request_cells(rows, selection.to_params(), palette)
        headers = ordering_headers(request_headers(), dict(st.query_params))
        st.html(markup.table(headers, cells, "Requests found"))
        num_all = max(int(counted()[0]["num_found"]), first + len(rows))
        beside = pages_beside("explore", dict(st.query_params), first, len(rows), num_all)
        st.html(markup.pager(first, len(rows), num_all, *beside))


def _first_rows(ranged: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the first rows; the newest ones are usually at the end of the range."""
    if ranged["order_by"] == NEWEST and not ranged["offset"]:
        for last_ms in _ENDS_MS:
            ending = {**ranged, "from_ms": max(ranged["from_ms"], ranged["to_ms"] - last_ms)}
            found = reading.rows(_HERE / "explore_requests.sql", {**ending, "limit": MAX_SHOWN})
            if len(found) == MAX_SHOWN:
                return found
    return reading.rows(_HERE / "explore_requests.sql", {**ranged, "limit": MAX_SHOWN})


def show_sql() -> None:
    """Draw the field for a query of your own, and its answer."""
    with st.container(border=True, key="card-sql"):
        st.html(
            '<div class="ek-title">Ask the store in SQL<small>ClickHouse\'s SQL; it only reads, '
            f"for at most {reading.FREE_TIMEOUT_S:.0f} s, at most {reading.FREE_ROWS:,} rows; "
            "docs/guide/data-model.md lists the tables</small></div>"
        )
        _ask_sql()
        sql = st.query_params.get("sql", "")
        if not sql.strip():
            return
        began = time.perf_counter()
        try:
            frame = reading.free_frame(sql)
        except StoreError as error:
            # ClickHouse puts values into its messages.
            st.error(markup.plain(refusal_words(str(error))))
            return
        took = formats.seconds(time.perf_counter() - began)
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            some = f", {MAX_SHOWN} shown; export for all" if len(frame) > MAX_SHOWN else ""
            num = f"{len(frame):,} row{'' if len(frame) == 1 else 's'}"
            st.caption(markup.plain(f"{num} in {took}{some}"))
            if len(frame.columns):
                _downloads(lambda: frame, "query")
        if len(frame):
            st.html(_table(frame))


def _ask_sql() -> None:
    """Draw the form; a submitted query goes to the URL, and a changed URL updates the form."""

    def send() -> None:
        st.query_params["sql"] = st.session_state["sql_shown"] = st.session_state["sql_field"]

    wanted = st.query_params.get("sql", read_query(_HERE / "explore_example.sql"))
    if "sql_field" not in st.session_state or st.session_state.get("sql_shown") != wanted:
        st.session_state["sql_field"] = st.session_state["sql_shown"] = wanted
    with st.form("sql", border=False):
        st.text_area("SQL", key="sql_field", height=150, label_visibility="collapsed")
        with st.container(horizontal=True, vertical_alignment="center"):
            st.form_submit_button("Run", on_click=send)
            st.caption("or Ctrl+Enter in the field")


def _table(frame: pd.DataFrame) -> str:
    # A missing value has many types, and some cannot be compared.
    shown = frame.head(MAX_SHOWN).astype(object)
    shown = shown.where(shown.notna(), None)
    numeric = [
        str(kind).startswith(("float", "int", "uint", "Int", "UInt")) for kind in frame.dtypes
    ]
    rows = [
        [
            Cell(
                cell_words(v),
                is_number=n,
                title=formats.exact(v) if n and v is not None else "",
                sorts_as=v if n else None,
            )
            for v, n in zip(row, numeric, strict=True)
        ]
        for row in shown.itertuples(index=False, name=None)
    ]
    return markup.table([str(name) for name in frame.columns], rows, "Result of the query")


def _downloads(read: Callable[[], pd.DataFrame], name: str) -> None:
    with st.container(horizontal=True, width="content"):
        for kind, to_bytes in (("csv", csv_bytes), ("parquet", parquet_bytes)):
            st.download_button(
                "CSV" if kind == "csv" else "Parquet",
                partial(_exported, read, to_bytes),
                file_name=f"evenkeel-{name}.{kind}",
                key=f"{name}-{kind}",
                help=f"up to {MAX_EXPORTED:,} rows",
                icon=":material/download:",
            )


def _exported(read: Callable[[], pd.DataFrame], to_bytes: Callable[[pd.DataFrame], bytes]) -> bytes:
    return to_bytes(read().drop(columns=["time_ms"], errors="ignore"))
