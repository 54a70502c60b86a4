"""Draws the SLO draft: how another limit or target would have judged the same requests."""

from __future__ import annotations

from fractions import Fraction

import streamlit as st

from evenkeel.errors import ConfigurationError
from evenkeel.slo.backtest import BacktestResult
from evenkeel.slo.model import Slo
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.draw.slo_tiles import budget_words
from evenkeel_dashboard.frame.fields import slide
from evenkeel_dashboard.frame.page import now_ms
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.pages.slo.data import (
    LONGEST_DRAFT_MS,
    corrected_spans_ms,
    draft_window,
    read_corrections,
    read_draft,
)
from evenkeel_dashboard.pages.slo.model import (
    choices,
    draft,
    draft_targets,
    draft_thresholds_s,
)


def show_draft(selection: Selection, slo: Slo) -> None:
    """Draw the sliders, and both objectives' verdicts on the requests of the range."""
    window = selection.window(now_ms() // 60_000 * 60_000)
    with st.container(border=True, key="card-draft"):
        asked_s = min(window.duration_s, LONGEST_DRAFT_MS / 1000)
        st.html(
            '<div class="ek-title">Try another objective<small>replayed by the minute over the '
            f"requests of the last {formats.span_of(asked_s)} of the range, with the SLO's own "
            "windows</small></div>"
        )
        with st.container(horizontal=True, gap="large"):
            threshold_s = _choose_threshold(slo)
            targets = choices(draft_targets(slo), slo.target, _target_words)
            own = _target_words(slo.target)
            target = targets[slide("draft_target", "target", list(targets), own)]
        tried = draft(slo, threshold_s, target)
        # The replay judges all requests again, so it runs only on demand.
        if tried == draft(slo, slo.indicator.threshold_s, slo.target):
            st.caption("Move a slider to see how another objective would have done.")
            if not st.button("Replay the current objective"):
                return
        spans_ms = corrected_spans_ms(slo.name, read_corrections())
        try:
            judged = draft_window(window)
            now, then = read_draft(slo, tried, judged, spans_ms)
        except ConfigurationError as error:
            st.caption(markup.plain(str(error)))
            return
        rows = [
            _row("current", slo.indicator.threshold_s, slo.target, now),
            _row("draft", threshold_s, target, then),
        ]
        headers = (
            "objective",
            "limit",
            "target",
            "SLI",
            "budget left",
            "pages",
            "tickets",
            "alerts",
        )
        st.html(markup.table(headers, rows, "Current and draft objective"))
        if words := shortened_words(judged.duration_s, asked_s):
            st.caption(markup.plain(words))


def shortened_words(judged_s: float, asked_s: float) -> str:
    """Return over how much of the range the requests were replayed; "" if it is all of it."""
    # The end of a range is cut to the minute.
    if judged_s > asked_s - 120:
        return ""
    span = formats.seconds(judged_s)
    return f"Over the last {span} of the range only: it has more requests than can be replayed."


def _choose_threshold(slo: Slo) -> float | None:
    own_s = slo.indicator.threshold_s
    if own_s is None:
        return None
    limits = choices(draft_thresholds_s(slo), own_s, formats.seconds)
    return limits[slide("draft_limit", "limit", list(limits), formats.seconds(own_s))]


def _target_words(target: Fraction) -> str:
    return formats.percent(float(target))


def _row(
    name: str, threshold_s: float | None, target: Fraction, found: BacktestResult
) -> list[Cell]:
    pages = [a for a in found.alerts if a.severity == "page"]
    left = found.budget_left_ratio
    spans = "; ".join(
        f"{a.severity} {formats.short_minute_ms(a.from_minute * 60_000)}–"
        f"{formats.clock_ms((a.to_minute + 1) * 60_000)[:5]}"
        for a in found.alerts[:6]
    )
    return [
        Cell(name),
        Cell(formats.seconds(threshold_s) if threshold_s is not None else "–", is_number=True),
        Cell(formats.percent(float(target)), is_number=True),
        Cell(formats.percent_of_target(found.sli, float(target)), is_number=True),
        Cell(
            budget_words(left),
            is_number=True,
            level="bad" if left is not None and left < 0 else "",
        ),
        Cell(str(len(pages)), is_number=True),
        Cell(str(len(found.alerts) - len(pages)), is_number=True),
        Cell(spans or "none", wraps=True),
    ]
