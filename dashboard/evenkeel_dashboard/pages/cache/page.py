"""What do the caches save, and are cached answers right?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.charts import Line, Scale, lines
from evenkeel_dashboard.draw.compression import verdict_words as verdict_of_compression
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.draw.response_cache import outcome_words
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.contents import num_requests, range_of
from evenkeel_dashboard.frame.fields import pick
from evenkeel_dashboard.frame.page import colours, now_ms, refreshing, selection_bar
from evenkeel_dashboard.frame.selection import Selection, slices
from evenkeel_dashboard.frame.series import fill_gaps
from evenkeel_dashboard.frame.zoom import zoomable
from evenkeel_dashboard.pages.cache.causes import MAX_NEAR_MISSES, show_near_misses, show_prefixes
from evenkeel_dashboard.pages.cache.classes import show_classes
from evenkeel_dashboard.pages.cache.model import (
    bound_words,
    cache_tiles,
    mode_words,
    reason_words,
    verdict_words,
)

_HERE = Path(__file__).parent
MAX_READ = 500_000
_MAX_REASONS = 40
_PERCENT = Scale("%", 100.0)
_RATIOS = ("prefix_ratio", "session_ratio", "exact_ratio", "semantic_ratio", "verified_ratio")
_LOOK_FOR = (
    "Start with what was answered from a cache and how much of that can be wrong, then see why "
    "the other prompts had to be computed."
)
_RESPONSES = (
    '<div class="ek-title">Response cache<small>whole answers reused, for the same or a similar '
    "question</small></div>"
)
_BY = {"prompt": "prompt version", "tenant": "tenant", "model": "model"}


def show() -> None:
    """Draw the page."""
    selection = selection_bar()
    st.html(markup.lead(_LOOK_FOR))
    by = pick("by", "by", _BY, 150)
    refreshing(partial(_body, selection, by), selection.refresh_s())


def _body(selection: Selection, by: str) -> None:
    window = selection.window(now_ms())
    parameters = {**range_of(window), **selection.filters()}
    stored = num_requests(selection, window)
    read_most = slices(stored, window, MAX_READ)
    # One slice per step, so that every step has data.
    share = read_most["period_s"] / read_most["slice_s"]
    step_slices = {"period_s": window.step_s, "slice_s": max(1, round(window.step_s / share))}
    sliced = {**parameters, **slices(stored, window)}
    # Start all queries before waiting for the first.
    counted = reading.rows_later(_HERE / "response_cache_counts.sql", parameters)
    found = reading.rows_later(
        _HERE / "cache_cohorts.sql", {**parameters, **read_most, "dimension": by}
    )
    by_step = reading.frame_later(
        _HERE / "cache_series.sql", {**parameters, **step_slices, "step_s": window.step_s}
    )
    misses = reading.rows_later(_HERE / "prefix_misses.sql", sliced)
    compressed = reading.rows_later(_HERE / "compression_verdicts.sql", sliced)
    cohorts, outcomes = found(), counted()
    # The details are in the spans, which are read only if there are any answers.
    details = reading.rows(_HERE / "response_cache_details.sql", parameters) if outcomes else []
    st.html(
        f'<div class="ek-asof">data as of {formats.clock_ms(now_ms())} · saved time is estimated '
        "from the same model's own prefill</div>"
    )
    if not cohorts and not outcomes:
        st.html(
            markup.hint(
                "No cache data in this range",
                "vLLM's own traces have no cached tokens: the plugin and the runtime report them; "
                "traced clients do if vLLM runs with --enable-prompt-tokens-details. Choose a "
                "longer range, or set the filters to all.",
            )
        )
        return
    tiles = cache_tiles(cohorts, outcomes, details)
    st.html(markup.number_tiles(tiles, ""))
    series = fill_gaps(by_step(), _RATIOS, window)
    palette = colours()
    shown = [
        # Often the same: one is seen on top of the other.
        Line("prefix_ratio", "prefix cache, tokens", palette.categories[0], 4.5),
        Line("session_ratio", "within conversations, tokens", palette.categories[8], 1.2),
    ]
    if outcomes:
        shown += [
            Line("exact_ratio", "same question, requests", palette.categories[2]),
            Line("semantic_ratio", "similar question, requests", palette.categories[3]),
            Line("verified_ratio", "verified by the model, requests", palette.categories[1]),
        ]
    figure = lines(series, shown, _PERCENT, window)
    figure.top = 100
    zoomable(figure, "cache-hits", "Cache hit ratio", "share of input tokens, or of requests")
    # What was answered, and how much of it can be wrong, before the long tables.
    if outcomes:
        _show_responses(outcomes, details)
        show_classes(reading.rows(_HERE / "response_cache_classes.sql", parameters))
        _show_bound(window)
    if cohorts:
        _show_cohorts(cohorts, by)
    show_prefixes(misses())
    if outcomes:
        _show_reasons(details)
        show_near_misses(
            reading.rows(_HERE / "cache_near_misses.sql", {**sliced, "limit": MAX_NEAR_MISSES})
        )
    _show_compression(compressed())
    if not outcomes:
        _say_no_responses()


def _show_cohorts(cohorts: list[dict[str, Any]], by: str) -> None:
    with st.container(border=True, key="card-cache-cohorts"):
        num_all = cohorts[0]["num_cohorts"]
        some = f", {len(cohorts)} of {num_all:,}" if num_all > len(cohorts) else ""
        st.html(
            f'<div class="ek-title">Prefix cache by {_BY[by]}<small>most saved first{some}; cold '
            "requests found nothing cached, often because changing text comes first</small></div>"
        )
        largest = max(row["saved_s"] or 0.0 for row in cohorts)
        rows = [
            [
                Cell(row["cohort"]),
                Cell(formats.count(row["num_requests"]), is_number=True),
                Cell(formats.count(row["input_tokens_sum"]), is_number=True),
                Cell(formats.percent(row["hit_ratio"]), is_number=True),
                Cell(formats.percent(row["cold_ratio"]), is_number=True),
                Cell(formats.seconds(row["saved_s"]), is_number=True),
                Cell(
                    html=markup.phase_bar(
                        [("saved", colours().decode, row["saved_s"] or 0.0)], largest
                    )
                ),
            ]
            for row in cohorts
        ]
        headers = (_BY[by], "requests", "input tokens", "found", "cold", "prefill saved", "")
        st.html(markup.table(headers, rows, "Prefix cache by cohort", is_short=True))


def _show_compression(rows: list[dict[str, Any]]) -> None:
    """Draw what prompt compression saved and refused; nothing if it is off."""
    if not rows:
        return
    with st.container(border=True, key="card-compression"):
        saved = sum(row["saved_tokens"] for row in rows)
        st.html(
            '<div class="ek-title">Prompt compression<small>long histories shortened, and checked '
            f"that nothing essential was lost; {formats.count(saved)} tokens saved</small></div>"
        )
        cells = [
            [
                Cell(verdict_of_compression(row["verdict"]), title=row["verdict"]),
                Cell(formats.count(row["num_requests"]), is_number=True),
                Cell(formats.count(row["saved_tokens"]), is_number=True),
            ]
            for row in rows
        ]
        st.html(markup.table(("result", "requests", "tokens saved"), cells, "Compression"))


def _say_no_responses() -> None:
    with st.container(border=True, key="card-response-cache"):
        st.html(_RESPONSES)
        st.caption(
            "No cached answers in this range, or it is off. docs/guide/cache.md "
            "shows how to switch it on, in shadow mode first."
        )


def _show_responses(outcomes: list[dict[str, Any]], details: list[dict[str, Any]]) -> None:
    with st.container(border=True, key="card-response-cache"):
        st.html(_RESPONSES)
        total = sum(row["num_requests"] for row in outcomes)
        rows = [
            [
                Cell(outcome_words(row["outcome"])),
                Cell(formats.count(row["num_requests"]), is_number=True),
                Cell(formats.percent(row["num_requests"] / total), is_number=True),
            ]
            for row in outcomes
        ]
        st.html(markup.table(("outcome", "requests", "share"), rows, "Outcomes"))
        st.caption(markup.plain(bound_words(details)))


def _show_reasons(details: list[dict[str, Any]]) -> None:
    """Draw why the response cache did not answer; nothing if no reason is recorded."""
    reasons = [row for row in details if row["reason"]]
    if not reasons:
        return
    with st.container(border=True, key="card-cache-reasons"):
        st.html(
            '<div class="ek-title">Why it did not answer<small>requests that the response cache '
            "left to the model, most frequent reason first</small></div>"
        )
        rows = [
            [
                Cell(reason_words(row["reason"]), title=row["reason"]),
                Cell(mode_words(row["mode"])),
                Cell(verdict_words(row["verdict"])),
                Cell(formats.count(row["num_requests"]), is_number=True),
                Cell(formats.seconds(row["lookup_s"]), is_number=True),
            ]
            for row in reasons[:_MAX_REASONS]
        ]
        headers = ("why it did not answer", "mode", "compared", "requests", "lookup")
        st.html(markup.table(headers, rows, "Why it did not answer", is_short=True))


def _show_bound(window: Window) -> None:
    """Draw the bound on wrong answers over time; nothing if there is none."""
    bound = reading.frame(
        _HERE / "response_cache_bound.sql", {**range_of(window), "step_s": window.step_s}
    )
    if bound.empty or not bound["wrong_bound"].notna().any():
        return
    frame = fill_gaps(bound, ("wrong_bound", "wrong_limit"), window)
    palette = colours()
    series = [
        Line("wrong_bound", "upper bound", palette.categories[0], 2.4),
        Line("wrong_limit", "limit", palette.bad, 1.2),
    ]
    zoomable(
        lines(frame, series, _PERCENT, window),
        "wrong-hits",
        "Wrong answers (upper bound)",
        "upper bound on the share of cached answers that are wrong",
    )
