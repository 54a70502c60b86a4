"""How do two cohorts of requests differ, how certain is the difference, and what causes it?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel.token_latency import zero_gap_note
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.draw.measures import MEASURES
from evenkeel_dashboard.draw.shift import large_sample_shift
from evenkeel_dashboard.draw.tiles import StateSummary
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.contents import contents_later, range_of
from evenkeel_dashboard.frame.fields import pick
from evenkeel_dashboard.frame.page import colours, now_ms, refreshing, selection_bar
from evenkeel_dashboard.frame.polling import awaited
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.frame.zoom import chart
from evenkeel_dashboard.pages.compare.figure import distributions
from evenkeel_dashboard.pages.compare.model import (
    DIMENSIONS,
    EARLIER,
    Cohort,
    causes,
    confounder,
    default_first,
    features,
    quantile,
    sides,
    tail_words,
    verdict,
)

_HERE = Path(__file__).parent
MAX_EACH = 1_000
_COLUMNS = {
    "prompt": "prompts",
    "model": "models",
    "tenant": "tenants",
    "slo_class": "slo_classes",
    "service": "services",
}
_LOOK_FOR = (
    "Read the banner first: it says which side is faster, and whether the two can be compared at "
    "all. Below: where the difference comes from, and what else differs between the two."
)
# Dimensions whose values have queries of their own.
_LISTED = {"setup": _HERE / "compare_setups.sql", "engine": _HERE / "compare_engines.sql"}


def show() -> None:
    """Draw the page."""
    selection = selection_bar()
    st.html(markup.lead(_LOOK_FOR))
    fields = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    with fields:
        measure = pick("measure", "measure", MEASURES, 110)
        dimension = pick("by", "compare by", DIMENSIONS, 150)
    if dimension == "time":
        with fields:
            a, b = pick("a", "A, compared with this range", EARLIER, 220), ""
    else:
        values = awaited(
            partial(_values, selection, dimension),
            partial(_say_nothing, dimension),
            selection.refresh_s(),
            f"values of {dimension}",
        )
        if not values:
            return
        with fields:
            a = pick("a", "A", {v: v for v in values}, 220)
            others = [v for v in values if v != a]
            b = pick("b", "B", {v: v for v in others}, 220)
    refreshing(partial(_body, selection, measure, dimension, a, b), selection.refresh_s())


def _values(selection: Selection, dimension: str) -> list[str]:
    """Return the values to compare; [] if there are fewer than two."""
    window = selection.window(now_ms())
    if dimension in _LISTED:
        listed = reading.rows(_LISTED[dimension], range_of(window))
        found = [str(row[dimension]) for row in listed]
    else:
        found = contents_later(window)().values[_COLUMNS[dimension]]
    worth_comparing = default_first(found)
    return worth_comparing if len(worth_comparing) > 1 else []


def _say_nothing(dimension: str) -> None:
    st.html(f'<div class="ek-asof">data as of {formats.clock_ms(now_ms())}</div>')
    st.html(
        markup.hint(
            "Nothing to compare",
            f"This range has fewer than two values of {DIMENSIONS[dimension]}. Choose "
            "a longer range, another dimension, or compare by time.",
        )
    )


def _body(selection: Selection, measure: str, dimension: str, a: str, b: str) -> None:
    both = sides(selection, selection.window(now_ms()), dimension, a, b)
    # Start all queries before waiting for the first.
    begun = [(_sample(side, measure), _cohort(side)) for side in both]
    samples = [sorted(float(row["value_s"]) for row in sample()) for sample, _ in begun]
    rows = [cohort()[0] for _, cohort in begun]
    shift = large_sample_shift(samples[0], samples[1])
    names = both[0].name, both[1].name
    load = confounder(causes(measure, rows[0], rows[1]))
    level, headline, detail = verdict(shift, MEASURES[measure], *names, load)
    as_of = f"data as of {formats.clock_ms(now_ms())} · up to {MAX_EACH:,} requests of each side"
    st.html(
        markup.verdict_banner(
            StateSummary(level, headline, detail + tail_words(samples[0], samples[1], names)), as_of
        )
    )
    _show_next(dimension, load, selection)
    left, right = st.columns([3, 2], gap="small")
    with left, st.container(border=True, key="card-distribution", gap="xxsmall"):
        title = f"{MEASURES[measure]} of both"
        st.html(f'<div class="ek-title">{title}<small>share of requests finished '
                "within x; further left is faster</small></div>")  # fmt: skip
        curves = [(s.name, v) for s, v in zip(both, samples, strict=True)]
        chart(distributions(curves, colours()), "distribution", f"{title}: {detail}")
    with right, st.container(border=True, key="card-quantiles"):
        _show_quantiles(both, measure, samples, rows)
    left, right = st.columns(2, gap="small")
    with left, st.container(border=True, key="card-differing"):
        _show_causes(measure, both, rows)
    with right, st.container(border=True, key="card-features"):
        _show_features(both, rows)


def _parameters(side: Cohort) -> reading.Parameters:
    chosen = {"service": side.service, "setup": side.setup, "engine": side.engine}
    return {**range_of(side.window), **side.selection.filters(), **chosen}


def _sample(side: Cohort, measure: str) -> reading.Rows:
    parameters = _parameters(side)
    return reading.rows_later(
        _HERE / "compare_sample.sql", {**parameters, "measure": measure, "limit": MAX_EACH}
    )


def _cohort(side: Cohort) -> reading.Rows:
    return reading.rows_later(_HERE / "compare_cohort.sql", _parameters(side))


def _show_quantiles(
    both: tuple[Cohort, Cohort],
    measure: str,
    samples: list[list[float]],
    rows: list[dict[str, Any]],
) -> None:
    st.html(
        f'<div class="ek-title">Side by side<small>percentiles of up to {MAX_EACH:,} requests of '
        "each side, drawn at random</small></div>"
    )
    table = [
        [
            Cell("requests"),
            *(Cell(formats.count(row["num_requests"]), is_number=True) for row in rows),
            Cell("", is_number=True),
        ]
    ]
    for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        a, b = (quantile(sample, q) for sample in samples)
        delta = "–" if a is None or b is None else formats.signed_seconds(b - a)
        table.append(
            [
                Cell(name),
                Cell(formats.seconds(a), is_number=True),
                Cell(formats.seconds(b), is_number=True),
                Cell(delta, is_number=True),
            ]
        )
    headers = ("", f"A: {both[0].name}", f"B: {both[1].name}", "B − A")
    st.html(markup.table(headers, table, "Percentiles of both sides"))
    medians = (quantile(sample, 0.5) for sample in samples)
    if measure == "itl" and (note := zero_gap_note(*medians)):
        st.caption(markup.plain(f"0 ms: {note}."))


def _show_causes(measure: str, both: tuple[Cohort, Cohort], rows: list[dict[str, Any]]) -> None:
    st.html(
        '<div class="ek-title">Where the difference is<small>mean time per request, largest '
        "difference first</small></div>"
    )
    found = causes(measure, rows[0], rows[1])
    if not found:
        st.caption(f"{formats.NO_DATA}: one side has no requests with phases.")
        return
    largest_s = max(abs(c.delta_s) for c in found)
    table = [
        [
            Cell(c.name, title=c.key),
            Cell(formats.seconds(c.a_s), is_number=True),
            Cell(formats.seconds(c.b_s), is_number=True),
            Cell(formats.signed_seconds(c.delta_s), is_number=True),
            Cell(html=_difference_bar(c.delta_s, largest_s), sorts_as=c.delta_s),
        ]
        for c in found
    ]
    headers = ("cause", f"A: {both[0].name}", f"B: {both[1].name}", "B − A", "")
    st.html(markup.table(headers, table, "Causes by difference"))


def _difference_bar(delta_s: float, largest_s: float) -> str:
    """Return a bar to the right if B takes longer, to the left if it is shorter."""
    side, level = ("longer", "bad") if delta_s > 0 else ("shorter", "good")
    words = f"B takes {formats.seconds(abs(delta_s))} {side}"
    return markup.signed_bar(delta_s, largest_s, words, level)


def _show_next(dimension: str, load: str | None, selection: Selection) -> None:
    """Draw what to look for on the page, or what would make the sides comparable."""
    params = selection.to_params()
    if load is None:
        st.html(
            '<div class="ek-remark">Read the sentence first, then where the curves part and which '
            "causes differ. Longer prompts or answers on one side may explain a difference.</div>"
        )
        return
    paired = markup.link("an A/B run on the same questions", markup.page_link("evals", params))
    elsewhere = "" if dimension == "time" else ", or choose a range in which both had the same load"
    st.html(
        f'<div class="ek-remark">What would help: compare them in {paired}{elsewhere}. '
        f"{markup.link('See the engine', markup.page_link('engine', params))} in this range.</div>"
    )


def _show_features(both: tuple[Cohort, Cohort], rows: list[dict[str, Any]]) -> None:
    st.html(
        '<div class="ek-title">What else differs<small>longer prompts or answers may explain '
        "it</small></div>"
    )
    table = [
        [Cell(f.name), Cell(f.a, is_number=True), Cell(f.b, is_number=True),
         markup.change_cell(f.values[1], f.values[0], "–")]
        for f in features(rows[0], rows[1])
    ]  # fmt: skip
    headers = ("mean", f"A: {both[0].name}", f"B: {both[1].name}", "B against A")
    st.html(markup.table(headers, table, "What else differs"))
