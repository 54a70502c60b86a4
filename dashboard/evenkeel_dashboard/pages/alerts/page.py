"""What is firing, why, who was notified, and what should you do?"""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from evenkeel.slo.ended_alert import past_annotations
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.markup import Cell, moment_cell
from evenkeel_dashboard.draw.request_rows import alert_cells, alert_headers
from evenkeel_dashboard.draw.tiles import StateSummary
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.action import (
    Order,
    action_button,
    author_field,
    may_act,
    show_refusal,
)
from evenkeel_dashboard.frame.collector_api import CollectorError, ask_json
from evenkeel_dashboard.frame.contents import range_of
from evenkeel_dashboard.frame.page import colours, now_ms, refreshing, selection_bar
from evenkeel_dashboard.frame.selection import Selection, parse_time_ms
from evenkeel_dashboard.frame.signing_in import identity, settings
from evenkeel_dashboard.frame.zoom import zoomable
from evenkeel_dashboard.pages.alerts.columns import alert_columns, slo_link
from evenkeel_dashboard.pages.alerts.figure import timeline_chart
from evenkeel_dashboard.pages.alerts.model import (
    audit_words,
    delivery_words,
    ended,
    failure_words,
    headline,
    lasts_s,
    letter_words,
    silenced_alerts,
    silenced_s,
    timeline,
    with_just_fired,
)

_DURATIONS = ("30m", "1h", "4h", "1d", "7d")


def show() -> None:
    """Draw the page."""
    selection = selection_bar(filters=())
    refreshing(partial(_body, selection), selection.refresh_s())


def _body(selection: Selection) -> None:
    window = selection.window(now_ms())
    found = reading.rows(reading.SHARED / "alerts.sql", range_of(window))
    book, problem = _read_book()
    past_ms = window.to_ms if selection.is_past(now_ms()) else None
    # What the evaluator knows is of now.
    kept = [] if past_ms else (book or {}).get("alerts", [])
    found = with_just_fired(found, kept)
    level, sentence = headline(found, book is not None, past_ms)
    told = delivery_words(book["notifications"], _failing(book)) if book else ""
    num_all = found[0]["num_alerts"] if found else 0
    counted = f"{num_all:,} alert{'' if num_all == 1 else 's'} in this range"
    if num_all > len(found):
        counted += f", {len(found)} shown"
    as_of = f"data as of {formats.clock_ms(now_ms())} · {counted}"
    look = (
        "Read why it is firing, then open an example to see where its time went. " if found else ""
    )
    reason = look + (f"Notifications: {told}." if told else "")
    st.html(markup.verdict_banner(StateSummary(level, sentence, reason), as_of))
    if problem and identity().tenant:
        st.caption(
            "Silences, deliveries and actions cover all tenants: "
            "a tenant's token does not see them."
        )
    elif problem:
        st.html(
            markup.remark(
                f"Silences, deliveries and actions are not available: {problem}.",
                "evenkeel collect --slos slos.yaml"
                if "--slos" in problem
                else "evenkeel dashboard --collector-url http://127.0.0.1:4318",
            )
        )
    active = [alert for alert in found if alert["state"] in ("firing", "pending")]
    for number, alert in enumerate(active):
        with st.container(border=True, key=f"card-alert-{number}"):
            show_active(alert, kept, selection, past_ms)
    _show_timeline(found, window)
    if book:
        left, right = st.columns(2, gap="small")
        with left:
            show_silences(book, [a["slo"] for a in active])
        with right:
            _show_letters(book)
    _show_past(found, selection)
    if book:
        _show_audit()


def _read_book() -> tuple[dict[str, Any] | None, str]:
    try:
        return ask_json(settings().collector_url, "alerts", identity().token), ""
    except CollectorError as error:
        return None, str(error)


def show_active(
    alert: dict[str, Any],
    kept: list[dict[str, Any]],
    selection: Selection,
    past_ms: int | None,
) -> None:
    """Draw an alert that fires or is pending, with what to do about it.

    Args:
        alert: A row of the query `alerts`.
        kept: What the evaluator knows of the alerts.
        selection: For links.
        past_ms: The end of a range in the past; None for now.
    """
    annotations = alert["annotations"] or {}
    if past_ms is not None:
        annotations = past_annotations(annotations)
    params = selection.to_params()
    named = alert["slo"], alert["severity"]
    silenced_for_s = silenced_s(*named, kept, now_ms())
    taken_on = {(each["slo"], each["severity"]): each["acknowledged_by"] for each in kept}
    taken_by = taken_on.get(named)
    began_ms = alert["fired_ms"] or alert["started_ms"]
    level = "bad" if alert["state"] == "firing" else "warning"
    badges = markup.badge(f"{alert['state']}: {alert['severity']}", level)
    if taken_by:
        badges += markup.badge(f"acknowledged by {taken_by}", "good")
    if silenced_for_s is not None:
        badges += markup.badge(f"silenced, {formats.seconds(silenced_for_s)} left", "unknown")
    elif alert["was_silenced"]:
        badges += markup.badge("silenced when it fired", "unknown")
    slo_href = slo_link(alert, params)
    name = markup.link(alert["slo"], slo_href) if slo_href else escape(alert["slo"])
    summary = annotations.get("summary") or annotations.get("description") or ""
    details = annotations.get("description", "") if annotations.get("summary") else ""
    lasted = formats.age(((past_ms or now_ms()) - began_ms) / 1000)
    st.html(
        f'<div class="ek-alert ek-{level}"><div class="ek-row">'
        f"<b>{name}</b>{badges}"
        f'<span class="ek-asof">since {formats.moment_ms(began_ms)}, {lasted}</span></div>'
        f"<p><b>{escape(summary)}</b> {escape(details)}</p>"
        f"{alert_columns(annotations, slo_href, params)}</div>"
    )
    if may_act() and alert["state"] == "firing" and past_ms is None:
        _show_actions(alert["alert_id"], alert["slo"], taken_by)


def _show_actions(alert_id: str, slo: str, taken_by: str | None) -> None:
    # Not by its place: what is written stays with the alert when another comes before it.
    of = f"act-{alert_id}"
    comment_key, duration_key = f"comment-{alert_id}", f"for-{alert_id}"

    def read_acknowledgement() -> tuple[Order, str]:
        order = {"slo": slo, "comment": st.session_state[comment_key]}
        return order, f"{slo} is acknowledged."

    def read_silence() -> tuple[Order, str]:
        order, _ = read_acknowledgement()
        return {**order, "duration": st.session_state[duration_key]}, f"{slo} is silenced."

    with st.expander("Acknowledge or silence", key=of), st.form(of, border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            author_field(of)
            st.text_input("what you are doing about it", key=comment_key)
            st.selectbox("for", _DURATIONS, 1, key=duration_key, width=100)
        ack, silence = f"ack-{alert_id}", f"silence-{alert_id}"
        with st.container(horizontal=True):
            is_taken = taken_by is not None
            action_button(
                "Acknowledge", ack, "acknowledge", read_acknowledgement, of, disabled=is_taken
            )
            action_button("Silence", silence, "silence", read_silence, of)
        show_refusal(ack, silence)


def _show_timeline(found: list[dict[str, Any]], window: Window) -> None:
    bars = timeline(found, window)
    if not bars:
        return
    zoomable(
        timeline_chart(bars, window, colours()),
        "alert-timeline",
        "Alert timeline",
        "thin: pending, thick: firing, pale: silenced",
    )


def show_silences(book: dict[str, Any], active: list[str]) -> None:
    """Draw the silences, and the forms that add and end one.

    Args:
        book: What the collector's alert book holds.
        active: The SLOs of the alerts that fire or are pending.
    """
    with st.container(border=True, key="card-silences"):
        st.html('<div class="ek-title">Silences<small>silenced alerts are not sent</small></div>')
        silences = book["silences"]
        if not silences:
            st.caption("No silences.")
        else:
            rows = [
                [
                    Cell(", ".join(s["matchers"]), wraps=True),
                    Cell(
                        formats.seconds(lasts_s(s["until"], now_ms()))
                        + ("" if s["is_in_force"] else ", not started yet"),
                        is_number=True,
                    ),
                    Cell(s["comment"] or "–", wraps=True),
                    Cell(s["by"] or "–"),
                    Cell(s["id"]),
                ]
                for s in silences
            ]
            st.html(markup.table(("alerts with", "left", "why", "by", "id"), rows, "Silences"))
        if not may_act():
            return
        with st.expander("Add or end a silence", key="silencing"):
            known = sorted({a["slo"] for a in book["alerts"]} | set(active))
            _silence_form(known)
            if silences:
                _end_silence_form([s["id"] for s in silences])


def _silence_form(known: list[str]) -> None:
    def read() -> tuple[Order, str]:
        state = st.session_state
        slo = state["new-silence-slo"] or ""
        order = {"duration": state["new-silence-for"], "comment": state["new-silence-why"]}
        return {**silenced_alerts(slo), **order}, f"{slo} is silenced."

    with st.form("new-silence", border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.selectbox(
                "SLO, or matchers",
                known,
                accept_new_options=True,
                # With a key, what is chosen stays as alerts come and go.
                key="new-silence-slo",
                width=320,
                help='matchers such as severity=~"page|ticket", tenant!=acme',
            )
            st.selectbox("for", _DURATIONS, 1, width=100, key="new-silence-for")
            author_field("new-silence")
        st.text_input("why", key="new-silence-why")
        action_button("Silence it", "send-silence", "silence", read, "new-silence")
        show_refusal("send-silence")


def _end_silence_form(ids: list[str]) -> None:
    def read() -> tuple[Order, str]:
        return {"id": st.session_state["end-silence-id"]}, "The silence has ended."

    with st.form("end-silence", border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.selectbox("silence", ids, key="end-silence-id", width=200)
            author_field("end-silence")
            action_button("End it", "send-end-silence", "end-silence", read, "end-silence")
        show_refusal("send-end-silence")


def _failing(book: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the receivers that accept no notifications; an older collector does not say."""
    return list(book.get("failing", []))


def _show_letters(book: dict[str, Any]) -> None:
    with st.container(border=True, key="card-letters"):
        words = delivery_words(book["notifications"], _failing(book))
        st.html(f'<div class="ek-title">Deliveries<small>{escape(words)}</small></div>')
        for each in _failing(book):
            st.html(markup.notice(failure_words(each, now_ms())))
        letters = book["dead_letters"]
        if not letters:
            if not _failing(book):
                st.caption("No failed deliveries.")
            return
        rows = [
            [
                Cell(str(letter["number"]), is_number=True),
                Cell(letter["receiver"]),
                Cell(letter_words(letter, book["history"]), wraps=True),
                Cell(str(letter["attempts"]), is_number=True),
                Cell(letter["error"] or "–", wraps=True, level="bad"),
            ]
            for letter in letters
        ]
        headers = ("number", "receiver", formats.zoned("about"), "attempts", "last error")
        st.html(markup.table(headers, rows, "Dead letters"))
        if may_act():
            _replay_form([letter["number"] for letter in letters])


def _replay_form(numbers: list[int]) -> None:
    def read() -> tuple[Order, str]:
        order = {"number": st.session_state["replay-number"]}
        return order, "Queued: the result appears here in a moment."

    with st.form("replay", border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.selectbox(
                "which",
                [None, *numbers],
                format_func=lambda n: "all" if n is None else f"number {n}",
                key="replay-number",
                width=150,
            )
            author_field("replay")
            action_button("Retry delivery", "send-replay", "replay", read, "replay")
        show_refusal("send-replay")


def _show_past(found: list[dict[str, Any]], selection: Selection) -> None:
    past = ended(found)
    with st.container(border=True, key="card-past"):
        st.html('<div class="ek-title">Resolved in this range<small>newest first</small></div>')
        if not past:
            st.caption("None.")
            return
        # They have ended, so that no other end counts.
        rows = [alert_cells(alert, now_ms(), selection.to_params()) for alert in past]
        st.html(markup.table(alert_headers(), rows, "Resolved alerts"))


def _show_audit() -> None:
    try:
        entries = ask_json(settings().collector_url, "audit", identity().token)["entries"]
    except (CollectorError, KeyError):
        return
    with st.expander(f"Audit log ({len(entries)})", key="audit"):
        rows = [
            [
                moment_cell(parse_time_ms(e["time"]) or 0),
                Cell(e["by"]),
                Cell(e["action"]),
                Cell(audit_words(e["details"]), wraps=True),
            ]
            for e in entries[:50]
        ]
        st.html(markup.table((formats.zoned("when"), "who", "action", "of"), rows, "Audit"))
