"""Draws the causes of prefix-cache misses, and near misses to review."""

from __future__ import annotations

from typing import Any

import streamlit as st

from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.markup import Cell, moment_cell, page_link
from evenkeel_dashboard.frame.page import selection
from evenkeel_dashboard.pages.cache.model import (
    by_cause,
    miss_words,
    near_miss_href,
    near_miss_words,
    unstable,
)

Row = dict[str, Any]

MAX_NEAR_MISSES = 15
_MAX_UNSTABLE = 10


def show_prefixes(rows: list[Row]) -> None:
    """Draw why prompts missed the prefix cache, and which prompts have unstable prefixes."""
    left, right = st.columns(2, gap="small")
    with left, st.container(border=True, key="card-misses"):
        st.html(
            '<div class="ek-title">Why prompts were computed<small>by what happened to the part '
            f"that was not cached{_sampled(rows)}</small></div>"
        )
        if not rows:
            st.caption(
                "No reasons recorded in this range: they come from the runtime's step records."
            )
        else:
            cells = [
                [
                    Cell(miss_words(cause["miss"]), title=cause["miss"]),
                    Cell(formats.count(cause["num_requests"]), is_number=True),
                    Cell(formats.count(cause["missed_tokens"]), is_number=True),
                    Cell(formats.seconds(cause["cost_s"]), is_number=True),
                ]
                for cause in by_cause(rows)
            ]
            headers = ("why", "requests", "tokens computed", "time it took")
            st.html(markup.table(headers, cells, "Why prompts were computed"))
    with right, st.container(border=True, key="card-unstable"):
        st.html(
            '<div class="ek-title">Unstable prefixes<small>prompts with changing text before '
            "static text: move the changing part to the end</small></div>"
        )
        found = unstable(rows)[:_MAX_UNSTABLE]
        if not found:
            st.caption("None seen." if rows else formats.NO_DATA)
            return
        params = selection().to_params()
        cells = [
            [
                Cell(row["prompt"]),
                Cell(formats.count(row["num_unstable"]), is_number=True),
                Cell(formats.count(row["diverged_at"]), is_number=True),
                Cell(formats.count(row["unstable_tokens"]), is_number=True),
                Cell(
                    "example",
                    href=page_link("request", {"request_id": row["example_id"], **params}),
                ),
            ]
            for row in found
        ]
        names = ("prompt", "requests", "changes at token", "static tokens after it", "")
        st.html(markup.table(names, cells, "Unstable prefixes"))


def _sampled(rows: list[Row]) -> str:
    weight = rows[0]["weight"] if rows else 1.0
    return "" if weight <= 1 else f"; read from 1/{weight:.0f} of the time"


def show_near_misses(rows: list[Row]) -> None:
    """Draw requests with a similar cached answer that was not used, for review."""
    with st.container(border=True, key="card-near-misses"):
        st.html(
            '<div class="ek-title">Near misses to review<small>a similar answer was cached '
            "but not used, most similar first; open one to rate it</small></div>"
        )
        if not rows:
            st.caption("None in this range.")
            return
        params = selection().to_params()
        cells = [
            [
                moment_cell(row["time_ms"]),
                Cell(_similarity(row["similarity"]), is_number=True),
                Cell(_similarity(row["threshold"]), is_number=True),
                Cell(near_miss_words(row), title=row["reason"]),
                Cell(_verdict(row["verdict"])),
                Cell(row["tenant"] or "–"),
                Cell("open", href=near_miss_href(row, params)),
            ]
            for row in rows
        ]
        headers = (
            formats.zoned("when"),
            "similarity",
            "needed",
            "why not",
            "answers",
            "tenant",
            "",
        )
        st.html(markup.table(headers, cells, "Near misses", is_short=True))


def _similarity(value: float | None) -> str:
    return "–" if value is None else formats.three_digits(value)


def _verdict(verdict: str) -> str:
    return {"same": "were the same", "different": "differed", "": "not compared"}.get(
        verdict, verdict
    )
