"""Draws the SLO page's corrections and monthly reports."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from evenkeel.times import to_datetime
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.markup import Cell, moment_cell
from evenkeel_dashboard.draw.zones import shown_zone, typed_time, zone_key
from evenkeel_dashboard.frame.action import (
    Order,
    OrderError,
    action_button,
    author_field,
    may_act,
    show_refusal,
)
from evenkeel_dashboard.frame.collector_api import ask
from evenkeel_dashboard.frame.page import now_ms
from evenkeel_dashboard.frame.selection import format_time_ms, parse_time_ms
from evenkeel_dashboard.frame.signing_in import identity, settings
from evenkeel_dashboard.pages.slo.data import read_corrections
from evenkeel_dashboard.pages.slo.model import MINUTE_MS, months

HOUR_MS = 60 * MINUTE_MS


def show_records(slo: str) -> None:
    """Draw corrections and reports."""
    if identity().tenant:
        st.caption("Corrections and reports cover all tenants: a tenant's token does not see them.")
        return
    left, right = st.columns([3, 2], gap="small")
    with left, st.container(border=True, key="card-corrections"):
        _show_corrections(slo)
    with right, st.container(border=True, key="card-report"):
        _show_report()


def _show_corrections(slo: str) -> None:
    st.html(
        '<div class="ek-title">Corrections<small>time that does not count: maintenance, or an '
        "incident outside our control</small></div>"
    )
    found = read_corrections()
    if found is None:
        words = f"No corrections from {settings().collector_url}: check --collector-url."
        st.caption(markup.plain(words))
        return
    shown = [c for c in found if c["slo"] in ("", slo)]
    if not shown:
        st.caption("No corrections: every minute counts.")
    else:
        rows = [
            [
                Cell(c["slo"] or "every SLO"),
                moment_cell(parse_time_ms(c["from"]) or 0),
                moment_cell(parse_time_ms(c["until"]) or 0),
                Cell(c["reason"]),
                Cell(c["by"]),
                Cell(c["comment"], wraps=True),
                Cell(f"revoked by {c['revoked_by']}" if c["revoked_by"] else "in force"),
            ]
            for c in shown
        ]
        headers = ("SLO", formats.zoned("from"), "until", "reason", "by", "why", "")
        st.html(markup.table(headers, rows, "Corrections"))
    if may_act():
        with st.expander("Add or revoke a correction", key="correct"):
            _correct_form(slo)
            in_force = [c["id"] for c in shown if c["revoked_by"] is None]
            if in_force:
                revoke_form(in_force)


def _correct_form(slo: str) -> None:
    # Keyed by SLO: text typed for one SLO is not meant for the next.
    now = now_ms()
    with st.form("correct", border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            read_begin = moment_field("from", f"correct-from-{slo}", now - HOUR_MS)
            read_end = moment_field("until", f"correct-until-{slo}", now)
            st.selectbox("reason", ("maintenance", "incident"), width=150, key="correct-reason")
            st.selectbox(
                "of",
                (slo, ""),
                format_func=lambda s: s or "every SLO",
                width=200,
                key=f"correct-of-{slo}",
            )
        st.text_input("reason, for the record", key=f"correct-why-{slo}")

        def read() -> tuple[Order, str]:
            begin_ms, end_ms = read_begin(), read_end()
            if begin_ms is None or end_ms is None:
                raise OrderError("Write times such as 2026-11-20 10:00.")
            order = {
                "begin": format_time_ms(begin_ms),
                "end": format_time_ms(end_ms),
                "slo": st.session_state[f"correct-of-{slo}"],
                "reason": st.session_state["correct-reason"],
                "comment": st.session_state[f"correct-why-{slo}"],
            }
            return order, "This time no longer counts."

        author_field("correct")
        said, key = "Exclude this time from the budget", f"send-correct-{slo}"
        action_button(said, key, "correct", read, "correct")
        show_refusal(key)


def moment_field(label: str, key: str, usual_ms: int) -> Callable[[], int | None]:
    """Draw a time field in the shown zone; typed text stays after the default has moved on.

    Returns:
        A function that reads it: Unix milliseconds, or None if the text is not a time.
    """
    # A time typed in one zone is another time in the next.
    field, zone = f"{key}-{zone_key()}", shown_zone()
    st.session_state.setdefault(field, typed_time(usual_ms // MINUTE_MS * MINUTE_MS))
    st.text_input(formats.zoned(label), key=field, width=190)
    return lambda: parse_time_ms(str(st.session_state[field]).strip(), zone)


def revoke_form(in_force: list[str]) -> None:
    """Draw the form that revokes one of some corrections."""

    def read() -> tuple[Order, str]:
        return {"id": st.session_state["revoke-id"]}, "Its events count again."

    with st.form("revoke", border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            # With a key, what is chosen stays when somebody else adds one.
            st.selectbox("correction", in_force, key="revoke-id", width=190)
            author_field("revoke")
            action_button("Revoke it", "send-revoke", "revoke", read, "revoke")
        show_refusal("send-revoke")


def _show_report() -> None:
    st.html(
        '<div class="ek-title">Report<small>every SLO over a month (UTC), to download</small></div>'
    )
    now = to_datetime(now_ms() * 10**6)
    found = {name: (begin, end) for name, begin, end in months(now)}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        month = st.selectbox("month", list(found), key="report-month", width=180)
        begin, end = found[month]
        for name, suffix in (("markdown", "md"), ("json", "json")):
            parameters = {"from": begin, "to": end, "format": name}
            st.download_button(
                name.capitalize() if name == "markdown" else "JSON",
                partial(ask, settings().collector_url, "report", identity().token, parameters),
                file_name=f"slo-report-{begin[:7]}.{suffix}",
                key=f"report-{name}",
                icon=":material/download:",
            )
    st.caption(f"Recomputed from stored requests; {formats.NO_DATA} if there are none.")
