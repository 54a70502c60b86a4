"""Draws the classes of near hits with their evidence, and what happens to each."""

from __future__ import annotations

from typing import Any

import streamlit as st

from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.pages.cache.model import evidence_words, kind_words, status_words


def show_classes(rows: list[dict[str, Any]]) -> None:
    """Draw the classes of near hits; nothing if there are none."""
    if not rows:
        return
    with st.container(border=True, key="card-hit-classes"):
        st.html(
            '<div class="ek-title">Near hits by class<small>kind of the difference, lowest cosine, '
            "and smallest lead over the nearest question with another answer</small></div>"
        )
        cells = [
            [
                Cell(kind_words(row["kind"]), title=row["kind"]),
                Cell(row["route"]),
                Cell(formats.number(row["similarity"]), is_number=True),
                Cell(formats.number(row["lead"]), is_number=True),
                Cell(html=markup.badge(*status_words(row))),
                Cell(formats.count(row["num_hits"]), is_number=True),
                Cell(formats.count(row["num_served"]), is_number=True),
                Cell(formats.count(row["num_verified"]), is_number=True),
                Cell(formats.count(row["seen"]), is_number=True, title=_labelled(row)),
                Cell(formats.count(row["wrong"]), is_number=True),
                Cell(formats.percent(row["wrong_bound"]), is_number=True),
                Cell(formats.percent(row["wrong_limit"]), is_number=True),
            ]
            for row in rows
        ]
        headers = (
            "the new question has",
            "route",
            "cosine from",
            "lead from",
            "its hits are",
            "near hits",
            "served",
            "verified",
            "verdicts",
            "wrong",
            "bound",
            "limit",
        )
        st.html(markup.table(headers, cells, "Near hits by class", is_short=True))
        st.caption(markup.plain(evidence_words(rows)))


def _labelled(row: dict[str, Any]) -> str:
    return f"{formats.count(row['labelled'])} of them from labelled questions"
