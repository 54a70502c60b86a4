"""Draws the production part of the evals page: live trend, review queue, and feedback."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from evenkeel.store import QUERIES
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.charts import Line, Scale, lines
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.markup import Cell, moment_cell, page_link
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.action import (
    Order,
    action_button,
    author_field,
    may_act,
    show_refusal,
)
from evenkeel_dashboard.frame.page import colours, now_ms, selection
from evenkeel_dashboard.frame.series import fill_gaps
from evenkeel_dashboard.frame.zoom import chart
from evenkeel_dashboard.pages.evals.model import EstimatedShare, answer_text, weighted_share

_HERE = Path(__file__).parent
Row = dict[str, Any]

_DAYS = 7
_DAY_MS = 86_400_000
_STEP_S = 6 * 3_600
_PERCENT = Scale("%", 100.0)
_MAX_QUEUE = 6
_MAX_FEEDBACK = 10


def _week() -> dict[str, int]:
    to_ms = (now_ms() // 60_000 + 1) * 60_000
    return {"from_ms": to_ms - _DAYS * _DAY_MS, "to_ms": to_ms}


def show_trend() -> None:
    """Draw the share of production answers that live evaluations found right in the past week."""
    week = _week()
    found = reading.rows(_HERE / "live_eval_series.sql", {**week, "step_s": _STEP_S})
    with st.container(border=True, key="card-live"):
        st.html(
            f'<div class="ek-title">Live evaluations<small>share of all requests answered right, '
            f"last {_DAYS} days; a random sample is scored</small></div>"
        )
        if not found:
            st.html(
                markup.remark(
                    "No requests were scored this week:",
                    "evenkeel eval live live.toml --state build/live",
                )
            )
            return
        series: dict[str, list[Row]] = {}
        for row in found:
            series.setdefault(f"{row['monitor']}, {row['scorer']}", []).append(row)
        _draw_trend(series, Window(week["from_ms"], week["to_ms"], _STEP_S))
        cells = [_trend_cells(name, rows) for name, rows in series.items()]
        headers = ("live evaluation, scorer", "right", "95% interval", "scored", "unscored")
        st.html(markup.table(headers, cells, "Live evaluations"))


def _draw_trend(series: dict[str, list[Row]], window: Window) -> None:
    steps: dict[Any, dict[str, Any]] = {}
    for name, rows in series.items():
        for row in rows:
            found = steps.setdefault(row["bucket"], {"bucket": row["bucket"]})
            found[name] = weighted_share([row]).value
    palette = colours()
    drawn = [
        Line(name, name, palette.categories[i % len(palette.categories)], 2.2)
        for i, name in enumerate(series)
    ]
    frame = fill_gaps(pd.DataFrame(list(steps.values())), list(series), window)
    figure = lines(frame, drawn, _PERCENT, window)
    figure.top = 101
    chart(figure, "live-trend", "Share of all requests answered right over the last week")


def _trend_cells(name: str, rows: list[Row]) -> list[Cell]:
    found: EstimatedShare = weighted_share(rows)
    limits = (
        formats.NO_DATA
        if found.lower is None
        else f"{formats.percent(found.lower)} … {formats.percent(found.upper)}"
    )
    return [
        Cell(name),
        Cell(formats.percent(found.value), is_number=True),
        Cell(limits, is_number=True),
        Cell(formats.count(found.num_scored), is_number=True),
        Cell(formats.count(sum(row["num_unscored"] for row in rows)), is_number=True),
    ]


def show_review_queue() -> None:
    """Draw failures that may become items of a golden dataset, to accept or reject."""
    week = _week()
    found = reading.rows(
        _HERE / "golden_candidates.sql", {"from_ms": week["from_ms"], "limit": _MAX_QUEUE}
    )
    with st.container(border=True, key="card-review"):
        waiting = found[0]["num_waiting"] if found else 0
        st.html(
            '<div class="ek-title">Review queue<small>failures of the last '
            f"{_DAYS} days that may become items of a golden dataset; {formats.count(waiting)} "
            "wait</small></div>"
        )
        if not found:
            st.caption("No bad answers found by live evaluations or people.")
            return
        contents = _contents(found, week)
        for row in found:
            _show_candidate(row, contents.get(row["trace_id"]))
        st.html(
            markup.remark(
                "Accepted answers become items in a checkout of the dataset with",
                "evenkeel eval grow golden_datasets/NAME --reviewed",
            )
        )


def _contents(rows: list[Row], week: dict[str, int]) -> dict[str, tuple[str, str]]:
    """Return question and answer by trace, if the runtime recorded them."""
    found = reading.rows(
        QUERIES / "request_contents.sql",
        {
            "trace_ids": tuple(sorted(row["trace_id"] for row in rows)),
            "from_ns": (week["from_ms"] - _DAYS * _DAY_MS) * 10**6,
            "to_ns": week["to_ms"] * 10**6,
        },
    )
    return {
        row["trace_id"]: (answer_text(row["input_messages"]), answer_text(row["output_messages"]))
        for row in found
    }


def _show_candidate(row: Row, content: tuple[str, str] | None) -> None:
    asked, answered = content or ("", "")
    trace_id = row["trace_id"]
    title = _cut(asked.splitlines()[0], 90) if asked else f"trace {trace_id[:8]}…"
    with st.expander(markup.plain(f"{title} ({_cut('; '.join(row['reasons']), 110)})")):
        href = page_link("request", {"trace_id": trace_id, **selection().to_params()})
        st.html(
            markup.facts(
                [
                    ("asked", asked or "not recorded"),
                    ("answered", answered or "not recorded"),
                    ("found bad", "; ".join(row["reasons"])),
                    (formats.zoned("when"), formats.moment_ms(row["time_ms"])),
                ]
            )
            + f"<p>{markup.link('open the request', href)}</p>"
        )
        if not may_act():
            st.caption("Reviewing requires a token with the admin scope.")
            return
        _show_review_form(row)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _show_review_form(row: Row) -> None:
    trace_id = row["trace_id"]
    reference_key, why_key = f"reference-{trace_id}", f"why-{trace_id}"

    def read(decision: str) -> tuple[Order, str]:
        order = {"trace_id": trace_id, "tenant": row["tenant"], "decision": decision}
        order["comment"] = st.session_state[why_key]
        if decision == "reject":
            return order, "Turned down."
        return {**order, "reference": st.session_state[reference_key]}, "Accepted."

    with st.form(f"review-{trace_id}", border=False):
        st.text_area("what the answer should be", row["corrected"] or "", key=reference_key)
        with st.container(horizontal=True, vertical_alignment="bottom"):
            author_field(f"review-{trace_id}")
            st.text_input("why", key=why_key)
            keys = accept, reject = f"accept-{trace_id}", f"reject-{trace_id}"
            of = f"review-{trace_id}"
            action_button("Accept", accept, "review", partial(read, "accept"), of, is_primary=True)
            action_button("Turn down", reject, "review", partial(read, "reject"), of)
        show_refusal(*keys)


def show_feedback() -> None:
    """Draw the feedback of the past week."""
    found = reading.rows(_HERE / "newest_feedback.sql", {**_week(), "limit": _MAX_FEEDBACK})
    with st.container(border=True, key="card-feedback"):
        first = found[0] if found else {"num_judgements": 0, "num_good": 0, "num_bad": 0}
        st.html(
            f'<div class="ek-title">Feedback<small>last {_DAYS} days: '
            f"{formats.count(first['num_judgements'])} judgements, "
            f"{formats.count(first['num_good'])} good, {formats.count(first['num_bad'])} bad"
            "</small></div>"
        )
        if not found:
            st.html(
                markup.remark(
                    "No feedback yet. Judge an answer on its Request page, or send",
                    "POST /v1/feedback",
                )
            )
            return
        params = selection().to_params()
        rows = [
            [
                moment_cell(row["time_ms"]),
                Cell(html=_mark(row)),
                Cell(row["comment"] or "–", wraps=True),
                Cell(row["corrected"] or "–", wraps=True),
                Cell(row["author"] or "–"),
                Cell("open", href=page_link("request", {"trace_id": row["trace_id"], **params})),
            ]
            for row in found
        ]
        headers = (formats.zoned("when"), "verdict", "why", "should have been", "who", "request")
        st.html(markup.table(headers, rows, "Feedback"))


def _mark(row: Row) -> str:
    score = row["score"]
    if score is None:
        return escape(row["label"] or "–")
    return markup.badge(
        row["label"] or formats.three_digits(score), "good" if score >= 0.5 else "bad"
    )
