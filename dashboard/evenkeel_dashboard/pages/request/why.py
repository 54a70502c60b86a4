"""Draws why a request took as long as it did, and what would help: sentence, ledger bar, advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from evenkeel.spans import LEDGER_ERROR_RATIO, LEDGER_SHARED_BY
from evenkeel.why.advice import Advice, advise
from evenkeel.why.causes import cause_name
from evenkeel.why.ledger import (
    PHASES,
    LedgerEntry,
    counterfactuals,
    read_ledger,
    worst_causes,
)
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.frame.page import colours, selection
from evenkeel_dashboard.pages.request.token_model import Attributes, number

Row = dict[str, Any]

# The engine is shown from this long before the request's arrival until as long after its end.
_AROUND_MS = 60_000


def show_why(row: Row, sentences: Sequence[str]) -> None:
    """Draw the explanation of a request, its ledger as bars, and what would help."""
    listed = read_ledger(row.get("ledger"))
    said = [*counterfactuals(listed, formats.seconds), *sentences]
    if not said and not listed:
        return
    with st.container(border=True, key="card-why"):
        if said:
            st.html(f'<div class="ek-why">{" ".join(escape(s) for s in said)}</div>')
        if listed:
            st.html(_bars(listed))
        if worst := worst_causes(listed):
            st.html(_help(row, worst))


def _shades(listed: Sequence[LedgerEntry]) -> dict[str, str]:
    palette = colours()
    causes = list(dict.fromkeys(e.cause for e in listed))
    # The largest first; what is beyond the palette is grey.
    causes.sort(key=lambda cause: -sum(e.seconds for e in listed if e.cause == cause))
    shades = [*palette.categories, *[palette.muted] * len(causes)]
    return dict(zip(causes, shades, strict=False))


def _bars(listed: Sequence[LedgerEntry]) -> str:
    """Return one bar per phase, on one scale, with a legend."""
    shades = _shades(listed)
    longest_s = max(sum(e.seconds for e in listed if e.phase == p) for p in PHASES)
    bars = ""
    for phase, words in PHASES.items():
        bar = [
            (cause_name(e.cause), shades[e.cause], e.seconds) for e in listed if e.phase == phase
        ]
        if bar:
            total = formats.seconds(sum(s for _, _, s in bar))
            bars += (
                f'<div class="ek-label">{words}, {total}</div>{markup.phase_bar(bar, longest_s)}'
            )
    key = markup.key([(cause_name(cause), shade) for cause, shade in shades.items()])
    return f'<div class="ek-ledger-bars">{bars}{key}</div>'


def _help(row: Row, worst: Sequence[LedgerEntry]) -> str:
    """Return what would help against the largest causes, with a link to the engine at that time."""
    items = "".join(
        f"<li><b>{escape(_capitalised(cause_name(e.cause)))}</b> "
        f"({formats.seconds(e.seconds)}, {PHASES[e.phase]}): {_advice(advice)}</li>"
        for e in worst
        if (advice := advise(e.cause)) is not None
    )
    if not items:
        return ""
    at_ms = row["time_ns"] // 1_000_000
    end_ms = at_ms + round((row["e2e_s"] or 0.0) * 1000)
    around = selection().narrowed(at_ms - _AROUND_MS, end_ms + _AROUND_MS).to_params()
    href = markup.page_link("engine", {**around, "model": row["model"]})
    more = markup.link("See what limited the engine then", href)
    return (
        '<div class="ek-advice"><div class="ek-title">What would help</div>'
        f"<ul>{items}</ul>{more}</div>"
    )


def _advice(advice: Advice) -> str:
    flags = ", ".join(f"<code>{escape(flag)}</code>" for flag in advice.flags)
    return escape(advice.text) + (f" Flags: {flags}" if flags else "")


def _capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]


def show_ledger(row: Row, attributes: Attributes) -> None:
    """Draw the request's ledger, cause by cause; `attributes` are those of its span."""
    listed = read_ledger(row.get("ledger"))
    with st.container(border=True, key="card-ledger"):
        st.html(
            '<div class="ek-title">Ledger<small>every moment is charged to one cause; the causes '
            "add up to the measured time</small></div>"
        )
        if not listed:
            st.caption(
                "None: the runtime recorded no steps, or the request came from elsewhere. "
                "docs/inside/ledger.md explains how to switch it on."
            )
            return
        rows = [
            [
                Cell(PHASES[e.phase]),
                Cell(cause_name(e.cause), title=e.cause),
                Cell(formats.seconds(e.seconds), is_number=True),
                Cell(formats.percent(e.share), is_number=True),
                Cell(formats.seconds(e.without_s), is_number=True),
            ]
            for e in listed
        ]
        headers = ("phase", "cause", "time", "share", "without it")
        st.html(markup.table(headers, rows, "Ledger of the request"))
        if shared := sharing(attributes):
            st.caption(markup.plain(shared))


def sharing(attributes: Attributes) -> str | None:
    """Return a sentence on the accuracy of the causes shared with other requests.

    Args:
        attributes: Attributes of the request's own span.
    """
    shared_by = attributes.get(LEDGER_SHARED_BY)
    if shared_by == "tokens":
        return (
            "The time of steps with several requests is split by tokens, because the server's cost "
            "model had not been validated yet. The sums are exact; the split is rough."
        )
    error = number(attributes, LEDGER_ERROR_RATIO)
    if shared_by != "cost_model" or error is None:
        return None
    return (
        "The time of steps with several requests is split by a cost model, which was "
        f"{formats.percent(error)} off on average over the last steps."
    )
