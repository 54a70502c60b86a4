"""Draws the gates of a run as a matrix: a row per slice, a column per gate."""

from __future__ import annotations

from typing import Any

import streamlit as st

from evenkeel.prompts.gate_verdict import OVERALL
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.pages.evals.headline import effect_words, evidence_words
from evenkeel_dashboard.pages.evals.model import LEVELS, interval, scale_of

Row = dict[str, Any]
_BY_LEVEL = ("bad", "warning", "unknown", "good")


def show_gates(gates: list[Row]) -> None:
    """Draw the verdict, effect and interval of each gate on each slice, failures first."""
    with st.container(border=True, key="card-gates"):
        st.html(
            '<div class="ek-title">Gates<small>effect of B against A with its 95% interval; '
            "shares in points (pp), latency relative; ┆ is the tolerated loss; point at a cell "
            "for the evidence</small></div>"
        )
        if not gates:
            st.caption("This run has no gates.")
            return
        names = list(dict.fromkeys(gate["gate"] for gate in gates))
        scales = {name: scale_of([g for g in gates if g["gate"] == name]) for name in names}
        by_slice: dict[str, dict[str, Row]] = {}
        for gate in gates:
            by_slice.setdefault("" if gate["slice"] in OVERALL else gate["slice"], {})[
                gate["gate"]
            ] = gate
        rows = []
        for name in sorted(by_slice, key=lambda name: (name != "", _worst(by_slice[name]))):
            found = by_slice[name]
            pairs = max((g["num_pairs"] or 0 for g in found.values()), default=0) or None
            rows.append(
                [
                    Cell(name or "all items"),
                    Cell("–" if pairs is None else formats.count(pairs), is_number=True),
                    *(_cell(found.get(gate), scales[gate]) for gate in names),
                ]
            )
        st.html(markup.table(("slice", "pairs", *names), rows, "Gates of the run"))


def _worst(found: dict[str, Row]) -> int:
    return min(_BY_LEVEL.index(_level(gate)) for gate in found.values())


def _level(gate: Row) -> str:
    return LEVELS.get(gate["verdict"], "unknown")


def _cell(gate: Row | None, scale: float) -> Cell:
    if gate is None:
        return Cell("–")
    level = _level(gate)
    effect = effect_words(gate["gate"], gate["estimate"])
    limits = (
        "no interval"
        if gate["lower"] is None or gate["upper"] is None
        else f"{effect_words(gate['gate'], gate['lower'])} to "
        f"{effect_words(gate['gate'], gate['upper'])}"
    )
    bar = markup.interval_bar(interval(gate, scale), level, f"{effect}, {limits}")
    evidence = evidence_words(gate["explanation"])
    return Cell(
        html=f'<div class="ek-gate">{markup.badge(gate["verdict"] or formats.NO_DATA, level)}'
        f"<b>{escape(effect)}</b></div>{bar}<small>{escape(limits)}</small>",
        title=f"{evidence}; {gate['explanation']}" if gate["explanation"] else "",
        sorts_as=gate["estimate"],
    )
