"""The request page's ledger, evaluations and feedback."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel.causes import cause_name
from evenkeel_dashboard.draw import markup, wording
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.acting import author_field, may_act, perform
from evenkeel_dashboard.frame.page import colours
from evenkeel_dashboard.pages.request.ledger import (
    PHASES,
    counterfactual,
    entries,
    sharing,
)
from evenkeel_dashboard.pages.request.token_model import Attributes

_HERE = Path(__file__).parent
Row = dict[str, Any]

_DAY_MS = 86_400_000


def show_ledger(row: Row, attributes: Attributes) -> None:
    """Draw the request's ledger, cause by cause; `attributes` are those of its span."""
    listed = entries(row)
    with st.container(border=True, key="card-ledger"):
        st.html(
            '<div class="ek-title">Ledger<small>every moment is charged to one cause; the causes '
            "add up to the measured time</small></div>"
        )
        if not listed:
            st.caption(
                "It has none: the runtime was not counting steps, or the request came from "
                "elsewhere. docs/inside/ledger.md says how to switch it on."
            )
            return
        for sentence in counterfactual(listed):
            st.html(f'<div class="ek-why">{escape(sentence)}</div>')
        palette = colours()
        causes = list(dict.fromkeys(e.cause for e in listed))
        shades = {c: palette.categories[i % len(palette.categories)] for i, c in enumerate(causes)}
        st.html(markup.key([(cause_name(c), shades[c]) for c in causes]))
        longest_s = max(sum(e.seconds for e in listed if e.phase == p) for p in PHASES)
        for phase, words in PHASES.items():
            bar = [
                (cause_name(e.cause), shades[e.cause], e.seconds)
                for e in listed
                if e.phase == phase
            ]
            if bar:
                total = wording.seconds(sum(s for _, _, s in bar))
                st.html(
                    f'<div class="ek-label">{words}, {total}</div>'
                    f"{markup.phase_bar(bar, longest_s)}"
                )
        rows = [
            [
                Cell(PHASES[e.phase]),
                Cell(cause_name(e.cause), title=e.cause),
                Cell(wording.seconds(e.seconds), is_number=True),
                Cell(wording.percent(e.seconds / (e.seconds + e.without_s)), is_number=True),
                Cell(wording.seconds(e.without_s), is_number=True),
            ]
            for e in listed
        ]
        headers = ("phase", "cause", "time", "share", "without it")
        st.html(markup.table(headers, rows, "Ledger of the request"))
        if shared := sharing(attributes):
            st.caption(shared)


def show_judgements(row: Row) -> None:
    """Draw the request's evaluations and feedback."""
    at_ms = row["time_ns"] // 1_000_000
    found = reading.rows(
        _HERE / "request_evaluations.sql",
        {
            "trace_id": row["trace_id"],
            "request_id": row["request_id"],
            "from_ms": at_ms - 3_600_000,
            "to_ms": at_ms + 7 * _DAY_MS,
        },
    )
    with st.container(border=True, key="card-judgements"):
        st.html(
            '<div class="ek-title">Evaluation and feedback<small>scores and ratings of '
            "its answer</small></div>"
        )
        if not found:
            st.caption("Not judged yet.")
        else:
            _show_judged(found)
        if may_act():
            _show_feedback_form(row)


def _show_judged(found: list[Row]) -> None:
    rows = [
        [
            Cell("feedback" if j["name"] == "evenkeel.feedback" else j["scorer"] or "–"),
            Cell(wording.NO_DATA if j["score"] is None else f"{j['score']:.3g}", is_number=True),
            Cell(j["label"] or "–"),
            Cell(j["explanation"] or "–", wraps=True),
            Cell(j["author"] or "–"),
            Cell(wording.short_moment_ms(j["time_ms"])),
        ]
        for j in found
    ]
    headers = ("by", "score", "label", "why", "author", "when (UTC)")
    st.html(markup.table(headers, rows, "Judgements"))


def _show_feedback_form(row: Row) -> None:
    with (
        st.expander("Rate this answer", key="judging"),
        st.form("feedback", border=False, clear_on_submit=True),
    ):
        verdict = st.segmented_control("verdict", ("good", "bad"), default=None, key="verdict")
        comment = st.text_input("why", key="feedback-why")
        corrected = st.text_area("the right answer", key="feedback-corrected")
        with st.container(horizontal=True, vertical_alignment="bottom"):
            author = author_field("feedback")
            is_sent = st.form_submit_button("Send")
    order = {
        "trace_id": row["trace_id"],
        "tenant": row["tenant"] or "",
        "score": None if verdict is None else float(verdict == "good"),
        "comment": comment,
        "corrected": corrected,
    }
    if is_sent and perform(
        "feedback", order, author, "Thank you. Your feedback will appear in a moment."
    ):
        st.rerun()
