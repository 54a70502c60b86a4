"""Draws the SLO page's corrections and monthly reports."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

import streamlit as st

from evenkeel.times import to_datetime
from evenkeel_dashboard.draw import markup, wording
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.frame.acting import author_field, may_act, perform
from evenkeel_dashboard.frame.collector_api import ask
from evenkeel_dashboard.frame.page import now_ms
from evenkeel_dashboard.frame.selection import parse_time_ms
from evenkeel_dashboard.frame.signing_in import identity, settings
from evenkeel_dashboard.pages.slo.data import read_corrections
from evenkeel_dashboard.pages.slo.model import months


def show_records(slo: str) -> None:
    """Draw corrections and reports."""
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
        st.caption(f"No corrections from {settings().collector_url}: check --collector-url.")
        return
    shown = [c for c in found if c["slo"] in ("", slo)]
    if not shown:
        st.caption("No corrections: every minute counts.")
    else:
        rows = [
            [
                Cell(c["slo"] or "every SLO"),
                Cell(wording.short_moment_ms(parse_time_ms(c["from"]) or 0)),
                Cell(wording.short_moment_ms(parse_time_ms(c["until"]) or 0)),
                Cell(c["reason"]),
                Cell(c["by"]),
                Cell(c["comment"], wraps=True),
                Cell(f"revoked by {c['revoked_by']}" if c["revoked_by"] else "in force"),
            ]
            for c in shown
        ]
        headers = ("SLO", wording.zoned("from"), "until", "reason", "by", "why", "")
        st.html(markup.table(headers, rows, "Corrections"))
    if may_act():
        with st.expander("Add or revoke a correction", key="correct"):
            _correct_form(slo)
            in_force = [c["id"] for c in shown if c["revoked_by"] is None]
            if in_force:
                _revoke_form(in_force)


def _correct_form(slo: str) -> None:
    # Keyed by SLO: text typed for one SLO is not meant for the next.
    now = to_datetime(now_ms() * 10**6)
    with st.form("correct", border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            begin = moment_field("from (UTC)", f"correct-from-{slo}", now - timedelta(hours=1))
            end = moment_field("until (UTC)", f"correct-until-{slo}", now)
            reason = st.selectbox("reason", ("maintenance", "incident"), width=150)
            whose = st.selectbox("of", (slo, ""), format_func=lambda s: s or "every SLO", width=200)
        comment = st.text_input("reason, for the record", key=f"correct-why-{slo}")
        author = author_field("correct")
        if st.form_submit_button("Exclude this time from the budget"):
            order = {"slo": whose, "begin": begin, "end": end, "reason": reason, "comment": comment}
            if perform("correct", order, author, "This time no longer counts."):
                st.rerun()


def moment_field(label: str, key: str, usual: datetime) -> str:
    """Draw a time field; typed text stays even after the default has moved on."""
    st.session_state.setdefault(key, f"{usual:%Y-%m-%dT%H:%MZ}")
    return str(st.text_input(label, key=key, width=190))


def _revoke_form(in_force: list[str]) -> None:
    with st.form("revoke", border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            chosen = st.selectbox("correction", in_force, width=190)
            author = author_field("revoke")
            is_sent = st.form_submit_button("Revoke it")
        if is_sent and perform("revoke", {"id": chosen}, author, "Its events count again."):
            st.rerun()


def _show_report() -> None:
    st.html('<div class="ek-title">Report<small>every SLO over a month, to download</small></div>')
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
    st.caption(f"Recomputed from stored requests; {wording.NO_DATA} if there are none.")
