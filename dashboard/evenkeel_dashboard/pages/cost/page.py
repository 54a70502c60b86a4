"""What does it cost, who pays for it, and what of it is wasted?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from evenkeel.prices.engine_time import ENGINE_KINDS, EngineTime, engine_times
from evenkeel.prices.price_file import JOULES_PER_KWH, PriceFile
from evenkeel.prices.stored import prices_of
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.charts import Line, Scale, stacked_bars
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.frame.fields import pick
from evenkeel_dashboard.frame.page import colours, now_ms, refreshing, selection_bar
from evenkeel_dashboard.frame.selection import FILTERS, Selection
from evenkeel_dashboard.frame.zoom import zoomable
from evenkeel_dashboard.pages.cost.data import CostData, cost_later
from evenkeel_dashboard.pages.cost.model import (
    DIMENSIONS,
    NONE,
    CohortCost,
    biggest_changes,
    by_kind,
    cost_tiles,
    price_words,
    savings_of,
    total_of,
    unpriced,
    unpriced_words,
    wasted_by_cause,
)
from evenkeel_dashboard.pages.cost.whatif import show_without

MAX_COHORTS = 400
_LOOK_FOR = (
    "See whose share of the bill grew, then what was wasted: cancelled and failed answers cost "
    "as much as good ones. Click a name to see its share of the bill."
)
_TO_CLICK = {
    **dict.fromkeys(FILTERS, "; click a name to filter, a number of requests to list them"),
    "route": "; click a number of requests to list them",
    "service": "",
}


def show() -> None:
    """Draw the page."""
    selection = selection_bar()
    st.html(markup.lead(_LOOK_FOR))
    dimension = pick("by", "by", DIMENSIONS, 170)
    refreshing(partial(_body, selection, dimension), selection.refresh_s())


def _body(selection: Selection, dimension: str) -> None:
    data = cost_later(selection, selection.window(now_ms()), dimension)()
    prices, total = prices_of(data.prices), total_of(data.cohorts)
    st.html(
        f'<div class="ek-asof">data as of {formats.clock_ms(now_ms())} · '
        f"from the rollups, in whole minutes · {escape(_price_words(data, prices))}</div>"
    )
    if not total.num_requests and not total.before:
        st.html(
            markup.hint("No requests in this range", "Choose a longer range, or clear filters.")
        )
        return
    if not total.num_priced and not prices.model and not prices.engine:
        st.html(
            markup.hint(
                "No prices: pass --prices FILE",
                f"{formats.count(total.num_requests)} requests in this range have no cost, because "
                "their models have no price and no sender reports a cost. Write a price file "
                "(docs/guide/cost.md) and start the collector with it: later requests then have a "
                "cost. For earlier ones, run evenkeel prices reprice.",
                "evenkeel collect --prices prices.toml",
            )
        )
        return
    times = by_kind(engine_times(data.engines, prices))
    waste = wasted_by_cause(data.models)
    saved = savings_of(data.models, data.compressed, prices)
    tiles = cost_tiles(total, waste, saved, times, prices.currency)
    before = f"the {formats.span_of(data.window.duration_s)} before"
    st.html(markup.number_tiles(tiles, before))
    if words := unpriced_words(unpriced(data.models, prices), total.num_requests):
        st.html(f'<div class="ek-remark" data-unpriced>{escape(words)}</div>')
    _show_bill(data, dimension, prices.currency)
    _show_cohorts(data.cohorts, selection, dimension, prices.currency)
    show_without(selection, data.window, prices, data.engines)
    left, right = st.columns([3, 2], gap="small")
    with left:
        _show_changes(data, selection, dimension, prices.currency, before)
        _show_engines(times, prices.currency)
    with right:
        _show_parts("Wasted", "paid for, and used by nobody", waste, prices.currency, total.cost)
        _show_parts("Saved", "would have come on top", saved.by_cause, prices.currency, total.cost)


def _price_words(data: CostData, prices: PriceFile) -> str:
    if not data.prices:
        return "no price file in force; costs as senders state them"
    num = len(prices.model) + len(prices.engine)
    since = formats.moment_ms(int(data.prices[0]["since_ms"]))
    words = f"{num} price{'' if num == 1 else 's'}" if num else "prices"
    return f"{words} in force since {since}"


def _show_bill(data: CostData, dimension: str, currency: str) -> None:
    palette = colours()
    series = [
        Line(str(place), name, palette.categories[place % len(palette.categories)])
        for place, name in enumerate(data.drawn)
    ]
    figure = stacked_bars(data.series, series, Scale("", 1.0), data.window)
    step = formats.span_of(data.window.step_s)
    zoomable(
        figure, "bill", f"Bill by {DIMENSIONS[dimension]}", f"{currency} per {step}; drag to zoom"
    )


def cohort_links(selection: Selection, dimension: str, name: str) -> tuple[str, str]:
    """Return the links of a cohort: its part of the bill, and its requests; "" for none."""
    if dimension == "route" and name != NONE:
        # A filter of the page Explore alone.
        return "", markup.page_link("explore", {**selection.to_params(), "route": name})
    # Requests of a prompt without a version cannot be filtered.
    if dimension not in FILTERS or name == NONE or (dimension == "prompt" and name[-1:] == "@"):
        return "", ""
    params = selection.filtered(dimension, name).to_params()
    cost = markup.page_link("cost", {**params, "by": dimension if dimension == "tenant" else ""})
    return cost, markup.page_link("explore", params)


def _show_cohorts(
    cohorts: Sequence[CohortCost], selection: Selection, dimension: str, currency: str
) -> None:
    total = total_of(cohorts)
    with st.container(border=True, key="card-cost-cohorts"):
        by = DIMENSIONS[dimension]
        present = [each for each in cohorts if each.num_requests]
        shown = present[:MAX_COHORTS]
        more = f"; {len(shown)} of {len(present)}" if len(present) > len(shown) else ""
        st.html(
            f'<div class="ek-title">By {by}<small>most expensive first{more}{_TO_CLICK[dimension]}'
            "</small></div>"
        )
        rows = []
        for each in shown:
            of_cost, of_requests = cohort_links(selection, dimension, each.name)
            share = each.cost / total.cost if total.cost and each.known_cost is not None else None
            rows.append(
                [
                    Cell(each.name, href=of_cost),
                    _price(each.known_cost, currency),
                    Cell("–" if share is None else formats.percent(share), is_number=True),
                    markup.change_cell(each.known_cost, each.before),
                    Cell(formats.count(each.num_requests), href=of_requests, is_number=True),
                    _price(each.per_1k_requests, currency),
                    _price(each.per_1m_tokens, currency, "–" if each.num_priced else ""),
                    _price(each.known_waste, currency),
                    Cell(formats.count(each.num_requests - each.num_priced), is_number=True),
                ]
            )
        headers = (
            by, "cost", "share", "change", "requests", "per 1k requests", "per 1M tokens", "wasted",
            "without cost",
        )  # fmt: skip
        st.html(markup.table(headers, rows, f"Cost by {by}", is_short=True))


def _show_changes(
    data: CostData,
    selection: Selection,
    dimension: str,
    currency: str,
    before: str,
) -> None:
    with st.container(border=True, key="card-cost-changes"):
        st.html(
            f'<div class="ek-title">Biggest changes<small>against {escape(before)}</small></div>'
        )
        changes = biggest_changes(data.cohorts)
        if not changes:
            why = data.incomparable or "no cost in"
            compared = total_of(data.cohorts).before
            words = f"Nothing to compare with: {why} {before}."
            st.caption("No cost changed." if compared else markup.plain(words))
            return
        largest = abs(changes[0].change or 0.0)
        rows = []
        for each in changes:
            change = each.change or 0.0
            words = f"{'+' if change > 0 else ''}{formats.money(change, currency)}"
            level = "bad" if change > 0 else "good"
            rows.append(
                [
                    Cell(each.name, href=cohort_links(selection, dimension, each.name)[0]),
                    _price(each.before, currency),
                    _price(each.known_cost, currency),
                    Cell(words, is_number=True, sorts_as=change),
                    Cell(html=markup.signed_bar(change, largest, words, level)),
                ]
            )
        headers = (DIMENSIONS[dimension], "before", "now", "change", "")
        st.html(markup.table(headers, rows, "Biggest changes"))


def _show_parts(
    title: str, meaning: str, parts: Mapping[str, float], currency: str, bill: float
) -> None:
    with st.container(border=True, key=f"card-cost-{title.lower()}"):
        st.html(f'<div class="ek-title">{title}<small>{meaning}</small></div>')
        if not parts:
            st.caption("Nothing in this range.")
            return
        rows = [
            [
                Cell(name),
                _price(value, currency),
                Cell(formats.percent(value / bill if bill else None), is_number=True),
            ]
            for name, value in parts.items()
        ]
        st.html(markup.table(("what", "cost", "of the bill"), rows, title))


def _show_engines(times: Sequence[EngineTime], currency: str) -> None:
    """Draw the time of your own engines; nothing if none reports it."""
    if not times:
        return
    total = sum(each.spent_s for each in times)
    with st.container(border=True, key="card-cost-engine"):
        st.html(
            '<div class="ek-title">Own engines<small>all of their time, and what it costs</small>'
            "</div>"
        )
        has_energy = any(each.energy_j is not None for each in times)
        heads = ("engine time", "time", "share", *(("energy",) if has_energy else ()), "cost")
        rows = [
            [
                Cell(ENGINE_KINDS.get(each.kind, each.kind)),
                Cell(formats.seconds(each.spent_s), is_number=True, sorts_as=each.spent_s),
                Cell(formats.percent(each.spent_s / total if total else None), is_number=True),
                *([_energy(each.energy_j)] if has_energy else []),
                _price(each.cost, currency),
            ]
            for each in times
        ]
        st.html(markup.table(heads, rows, "Engine time"))


def _energy(joules: float | None) -> Cell:
    words = formats.kilowatt_hours(None if joules is None else joules / JOULES_PER_KWH)
    return Cell(words, is_number=True, sorts_as=joules)


def _price(value: float | None, currency: str, unknown: str = "") -> Cell:
    words = unknown if unknown and value is None else price_words(value, currency)
    return Cell(words, is_number=True, sorts_as=value)
