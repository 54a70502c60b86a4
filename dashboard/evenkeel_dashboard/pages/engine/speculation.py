"""Draws whether speculation pays, and whether its answers are the model's own."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.markup import Cell, page_link
from evenkeel_dashboard.draw.positions import Position, positions
from evenkeel_dashboard.frame.page import colours, selection
from evenkeel_dashboard.pages.engine.data import EngineData
from evenkeel_dashboard.pages.engine.outcomes import gain_words, steps_words


def show_speculation(data: EngineData) -> None:
    """Draw acceptance by position and source, the measured speed-up, and the canary's results."""
    with st.container(border=True, key="card-acceptance"):
        found = positions(data.positions)
        st.html(
            '<div class="ek-title">Speculation by draft position and source'
            "<small>a token counts only if all tokens before it were accepted</small></div>"
        )
        if not found:
            st.caption("No speculation in this range.")
            return
        tables = [("all drafts", found)]
        if len(data.sources) > 1:
            tables += [
                (f"{source['source'].replace('_', ' ')}", positions(source))
                for source in data.sources
            ]
        for column, (name, listed) in zip(st.columns(len(tables)), tables, strict=True):
            with column:
                st.html(
                    f'<div class="ek-label">{escape(name)}</div>'
                    + markup.table(
                        _POSITION_HEADERS,
                        _position_cells(listed),
                        f"Positions, {name}",
                        is_short=True,
                    )
                )
        drafted = data.positions["drafted_tokens"] or 0
        accepted = data.positions["accepted_tokens"] or 0
        share = formats.percent(accepted / drafted if drafted else None)
        first = found[0].drafted
        length = 1 + accepted / first if first else None
        words = (
            f"Acceptance length {formats.number(length)} tokens per verify step; {share} of all "
            "drafted tokens were accepted."
        )
        if len(data.sources) == 1 and (by := data.sources[0]["source"].replace("_", " ")):
            words += f" Draft source: {by}."
        st.caption(markup.plain(words))
        _show_gain(data)
        _show_canary(data)


_POSITION_HEADERS = ("position", "drafted", "accepted", "of the first")


def _position_cells(found: Sequence[Position]) -> list[list[Cell]]:
    first = float(found[0].drafted) if found else 0.0
    return [
        [
            Cell(str(p.number), is_number=True),
            Cell(formats.count(p.drafted), is_number=True),
            Cell(formats.percent(p.rate), is_number=True),
            Cell(
                html=markup.phase_bar(
                    [("accepted", colours().decode, float(p.accepted))], first, formats.count
                )
            ),
        ]
        for p in found
    ]


def _show_gain(data: EngineData) -> None:
    st.html(
        '<div class="ek-title" style="margin-top:.6rem">Does it pay?<small>tokens per second with '
        "drafts over without, measured on steps that the controller drew at random to run without "
        "drafts</small></div>"
    )
    if not data.gains:
        st.html(
            markup.remark(
                "Not measured in this range. --speculate auto measures it within some 8,000 steps "
                "that have drafts, and the collector reads it from the runtime's metrics:",
                "evenkeel collect --scrape http://127.0.0.1:8000/metrics",
            )
        )
        return
    servers = {(gain["service"], gain["instance"]) for gain in data.gains}
    rows = [
        [
            Cell(steps_words(gain, of_several=len(servers) > 1), title=gain["instance"]),
            Cell(formats.factor(gain["ratio"]), is_number=True),
            Cell(
                f"{formats.factor(gain['lower'])} to {formats.factor(gain['upper'])}",
                is_number=True,
            ),
            Cell(gain_words(gain)),
        ]
        for gain in data.gains
    ]
    headers = ("steps", "speed-up", "95% interval", "so")
    st.html(markup.table(headers, rows, "Measured speed-up by speculation"))


def _show_canary(data: EngineData) -> None:
    found = {row["result"]: row for row in data.canaries}
    if not found:
        return
    same = found.get("match", {}).get("num_answers", 0)
    differing = found.get("mismatch")
    words = (
        f"Checked: {formats.count(same + (differing or {}).get('num_answers', 0))} greedy answers "
        "were regenerated without drafts; "
    )
    if differing is None:
        st.html(f'<div class="ek-remark" data-canary>{words}all are the same.</div>')
        return
    params = selection().to_params()
    href = page_link("request", {"request_id": differing["newest_id"], **params})
    st.html(
        f'<div class="ek-remark" data-canary>{words}{formats.count(differing["num_answers"])} '
        f"differ, the newest is {markup.link('this request', href)}.</div>"
    )
