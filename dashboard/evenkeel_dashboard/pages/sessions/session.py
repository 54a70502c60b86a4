"""Draws one session: what it waited for, its ledger, its timeline, and its steps."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.escaping import escape, exactly
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.fields import pick, set_param
from evenkeel_dashboard.frame.page import colours, now_ms, selection
from evenkeel_dashboard.frame.paging import page_number, pages_beside
from evenkeel_dashboard.frame.polling import awaited
from evenkeel_dashboard.frame.zoom import chart, part_shown, show_part
from evenkeel_dashboard.pages.sessions.figure import timeline_chart
from evenkeel_dashboard.pages.sessions.ledger_bar import (
    bar_parts,
    read_session_ledger,
    with_tools_as_one,
)
from evenkeel_dashboard.pages.sessions.model import (
    STEP_HEADERS,
    STEP_KINDS,
    STEP_ORDERS,
    chosen_steps,
    cost_words,
    outcome_cell,
    step_cells,
)
from evenkeel_dashboard.pages.sessions.sentences import explanation, notes
from evenkeel_dashboard.pages.sessions.timeline import SessionTimeline, read_timeline
from evenkeel_dashboard.sessions.ledger import CLIENT, TOOL_PREFIX, SessionLedger

_HERE = Path(__file__).parent
MAX_STEPS = 20_000
MAX_SHOWN = 40
MODEL_PREFIX = "model."
_LOOK_AGAIN_S = 5
_LOOK_FOR = (
    "Start with the sentence, then the timeline: bright bars are what the session waited for; "
    "pale bars ran in parallel and cost no time."
)

Row = dict[str, Any]


def show_session(wanted: str) -> None:
    """Draw the session with this ID, or that there is none yet."""
    of = st.query_params.get("of", "")
    st.button(
        "all sessions", icon=":material/arrow_back:", type="tertiary", on_click=_leave, key="leave"
    )
    st.html(markup.lead(_LOOK_FOR))
    read = partial(reading.rows, _HERE / "session.sql", {"session_id": wanted, "tenant": of})
    found = awaited(read, partial(_say_unknown, wanted), _LOOK_AGAIN_S, f"session {wanted}")
    if found:
        _show(found[0])


def _leave() -> None:
    for name in ("session_id", "of", "part", "page", "steps", "sorted"):
        set_param(name, None)


def _say_unknown(wanted: str) -> None:
    st.html(f'<div class="ek-asof">data as of {formats.clock_ms(now_ms())}</div>')
    st.html(
        markup.hint(
            "No such session",
            f"No session {wanted!r} is stored. A request is stored when it ends: this page retries "
            "automatically. Or it is past the store's retention.",
        )
    )


def _show(row: Row) -> None:
    parameters = {
        "session_id": row["session_id"],
        "tenant": row["tenant"],
        "limit": MAX_STEPS,
    }
    found = read_timeline(reading.rows(_HERE / "session_steps.sql", parameters))
    _show_head(row)
    _show_why(row, found)
    _show_timeline(found)
    _show_facts(row, found)
    _show_steps(found, row["currency"])


def _show_head(row: Row) -> None:
    outcome = outcome_cell(row)
    level = outcome.level or ("" if row["is_open"] else "good")
    st.html(
        f'<div class="ek-row ek-request"><h2>{escape(row["session_id"])}</h2>'
        f'<button type="button" class="ek-copy" data-copy="{exactly(row["session_id"])}" '
        'title="copy the id" aria-label="copy the id"></button>'
        f"{markup.badge(outcome.text, level)}</div>"
        f'<div class="ek-asof">data as of {formats.clock_ms(now_ms())} · began '
        f"{formats.moment_ms(row['start_ns'] // 1_000_000)}</div>"
    )


def _show_why(row: Row, found: SessionTimeline) -> None:
    spent = read_session_ledger(None if found.ledger is None else found.ledger.seconds)
    said = explanation(row, spent, found.evictions)
    bar = bar_parts(with_tools_as_one(spent), colours())
    with st.container(border=True, key="card-session-why"):
        if said:
            st.html(f'<div class="ek-why">{" ".join(escape(s) for s in said)}</div>')
        if bar:
            total_s = sum(each.seconds for each in spent)
            words = f"time to done, {formats.seconds(total_s)}"
            st.html(
                f'<div class="ek-ledger-bars"><div class="ek-label">{words}</div>'
                f"{markup.phase_bar(bar, total_s)}"
                f"{markup.key([(f'{n}, {formats.seconds(s)}', c) for n, c, s in bar])}</div>"
            )
        if said := notes(row, found, MAX_STEPS):
            st.html("".join(f'<div class="ek-remark">{escape(note)}</div>' for note in said))


def _show_timeline(found: SessionTimeline) -> None:
    with st.container(border=True, key="card-session-timeline", gap="xsmall"):
        st.html(
            '<div class="ek-title">Timeline<small>seconds since the session began; bright is the '
            "critical path; drag to zoom</small></div>"
        )
        part = part_shown()
        shown_s = part or (-0.01 * found.end_s, 1.02 * found.end_s)
        if shown_s[1] <= shown_s[0]:
            st.caption("It took no time, so there is nothing to draw.")
            return
        drawn = timeline_chart(found, shown_s, colours())
        num_critical = sum(step.is_critical for step in found.steps)
        alt = f"Timeline of {len(found.steps)} steps, {num_critical} of them on the critical path"
        chart(drawn, "session-timeline", alt, on_range=show_part)
        if part is not None:
            st.button(
                "show the whole session", type="tertiary", on_click=set_param, args=("part", None)
            )


def _show_facts(row: Row, found: SessionTimeline) -> None:
    spent = found.ledger
    with st.container(border=True, key="card-session-facts"):
        st.html(
            markup.facts(
                [
                    ("turns", formats.count(row["num_requests"])),
                    ("tool calls", formats.count(row["num_tools"])),
                    ("agents", formats.count(row["num_agents"])),
                    ("time to done", formats.seconds(None if spent is None else spent.e2e_s)),
                    ("waited for the model", _total(spent, MODEL_PREFIX)),
                    ("waited for tools", _total(spent, TOOL_PREFIX)),
                    ("pauses of the client", _total(spent, CLIENT)),
                    ("input tokens", formats.count(row["input_tokens"])),
                    ("cached tokens", formats.count(row["cached_tokens"])),
                    ("output tokens", formats.count(row["output_tokens"])),
                    ("wasted tokens", formats.count(row["wasted_tokens"] or 0)),
                    ("cost", cost_words(row["cost"], row["currency"])),
                    ("failed requests", formats.count(row["num_error"])),
                    ("failed tools", formats.count(row["num_tool_errors"])),
                    ("tenant", row["tenant"] or "–"),
                    ("model", row["model"] or "–"),
                    ("SLO class", row["slo_class"] or "–"),
                    ("route", row["route"] or "–"),
                    ("found by", row["session_source"]),
                ]
            )
        )


def _total(spent: SessionLedger | None, prefix: str) -> str:
    return formats.NO_DATA if spent is None else formats.seconds(spent.total(prefix))


def _show_steps(found: SessionTimeline, currency: str | None) -> None:
    with st.container(border=True, key="card-session-steps"):
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            kind = pick("steps", "show", STEP_KINDS, 150)
            order = pick("sorted", "order", STEP_ORDERS, 190)
        listed = chosen_steps(found.steps, kind, order)
        if not listed:
            st.caption("None in this session.")
            return
        first = (page_number(st.query_params.get("page", "")) - 1) * MAX_SHOWN
        shown = listed[first : first + MAX_SHOWN]
        if not shown:
            first, shown = 0, listed[:MAX_SHOWN]
        st.html(
            '<div class="ek-title">Steps<small>requests lead to where their time went; ● is on the '
            "critical path</small></div>"
        )
        cells = step_cells(shown, currency, selection().to_params(), colours())
        st.html(markup.table(STEP_HEADERS, cells, "Steps of the session"))
        beside = pages_beside("sessions", dict(st.query_params), first, len(shown), len(listed))
        st.html(markup.pager(first, len(shown), len(listed), *beside))
