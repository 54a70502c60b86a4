"""The request page's evaluations and feedback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.markup import Cell, moment_cell
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.action import (
    Order,
    action_button,
    author_field,
    may_act,
    show_refusal,
)

_HERE = Path(__file__).parent
Row = dict[str, Any]

_DAY_MS = 86_400_000


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
            Cell(formats.number(j["score"]), is_number=True),
            Cell(j["label"] or "–"),
            Cell(j["explanation"] or "–", wraps=True),
            Cell(j["author"] or "–"),
            moment_cell(j["time_ms"]),
        ]
        for j in found
    ]
    headers = ("by", "score", "label", "why", "author", formats.zoned("when"))
    st.html(markup.table(headers, rows, "Judgements"))


def _show_feedback_form(row: Row) -> None:
    def read() -> tuple[Order, str]:
        state = st.session_state
        verdict = state["verdict"]
        order = {
            "trace_id": row["trace_id"],
            "tenant": row["tenant"] or "",
            "score": None if verdict is None else float(verdict == "good"),
            "comment": state["feedback-why"],
            "corrected": state["feedback-corrected"],
        }
        return order, "Thank you. Your feedback will appear in a moment."

    with st.expander("Rate this answer", key="judging"), st.form("feedback", border=False):
        st.segmented_control("verdict", ("good", "bad"), default=None, key="verdict")
        st.text_input("why", key="feedback-why")
        st.text_area("the right answer", key="feedback-corrected")
        with st.container(horizontal=True, vertical_alignment="bottom"):
            author_field("feedback")
            emptied = {"verdict": None, "feedback-why": "", "feedback-corrected": ""}
            key = f"send-feedback-{row['trace_id']}"
            action_button("Send", key, "feedback", read, "feedback", cleared=emptied)
        show_refusal(key)
