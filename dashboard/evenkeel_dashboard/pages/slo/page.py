"""Where did an SLO's budget go, who spent it, and how would another objective have done?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import streamlit as st

from evenkeel.slo.model import Metric, Slo
from evenkeel.slo.selection import page_filters
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.draw.request_rows import request_cells, request_headers
from evenkeel_dashboard.draw.slo_tiles import slo_tile, worst_slos
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.burns import burns_later
from evenkeel_dashboard.frame.contents import range_of
from evenkeel_dashboard.frame.fields import pick
from evenkeel_dashboard.frame.page import colours, now_ms, refreshing, selection_bar
from evenkeel_dashboard.frame.polling import awaited
from evenkeel_dashboard.frame.selection import FILTERS, Selection
from evenkeel_dashboard.frame.signing_in import identity
from evenkeel_dashboard.frame.user_access import slos_of
from evenkeel_dashboard.pages.slo import draft as slo_draft
from evenkeel_dashboard.pages.slo import records as slo_records
from evenkeel_dashboard.pages.slo.budget_figure import show_budget
from evenkeel_dashboard.pages.slo.data import (
    MAX_BURNED,
    BudgetSpend,
    corrected_spans_ms,
    is_counted,
    is_of_sessions,
    read_corrections,
    read_slos,
    readable,
    spent_later,
)
from evenkeel_dashboard.pages.slo.model import (
    HELP,
    Burner,
    budget_summary,
    burners,
    lost_phase,
    rank_of,
)

SHOWN_REQUESTS = 6
_DIMENSIONS = {
    "model": "model",
    "tenant": "tenant",
    "slo_class": "SLO class",
    "route": "route",
    "prompt": "prompt version",
    "engine": "engine",
    "response_cache": "response cache",
}


def show() -> None:
    """Draw the page."""
    selection = selection_bar(filters=())
    slos = slos_of(read_slos(), identity().tenant)
    names = [slo.name for slo in slos] or awaited(
        partial(_evaluated, selection),
        partial(say_nothing, selection),
        selection.refresh_s(),
        "SLOs",
    )
    if not names:
        return
    name = pick("slo", "SLO", {name: name for name in names}, 260)
    slo = next((slo for slo in slos if slo.name == name), None)
    refreshing(partial(_body, selection, name, slo), selection.refresh_s())
    if slo is not None and is_counted(slo):
        refreshing(partial(slo_draft.show_draft, selection, slo), None)
    refreshing(partial(slo_records.show_records, name), None)


def _evaluated(selection: Selection) -> list[str]:
    found = reading.rows(reading.SHARED / "slo_now.sql", range_of(selection.window(now_ms())))
    return [row["slo"] for row in found]


def say_nothing(selection: Selection) -> None:
    """Draw why there is no SLO to show."""
    st.html(f'<div class="ek-asof">data as of {formats.clock_ms(now_ms())}</div>')
    if tenant := identity().tenant:
        st.html(
            markup.hint(
                f"No SLO is evaluated for tenant {tenant} alone",
                "A tenant does not see SLOs that cover all tenants. To evaluate one for each "
                "tenant, add groupBy: [tenant] to the SLO.",
            )
        )
        return
    if selection.is_past(now_ms()):
        st.html(
            markup.hint(
                "No SLO was evaluated at the end of this range",
                "Choose a later range. For SLOs of a file, start the dashboard with --slos.",
            )
        )
        return
    st.html(
        markup.hint(
            "No SLOs are evaluated, and no SLO file is given",
            "Write objectives in slos.yaml; the collector evaluates them, and the dashboard "
            "reads them from the same file.",
            "evenkeel collect --slos slos.yaml\nevenkeel dashboard --slos slos.yaml",
        )
    )


def _body(selection: Selection, name: str, slo: Slo | None) -> None:
    window = selection.window(now_ms())
    burns = burns_later(window)
    found = reading.rows_later(reading.SHARED / "slo_now.sql", range_of(window))
    spent, spans_ms = None, corrected_spans_ms(name, read_corrections())
    if slo is not None and is_counted(slo):
        judged = readable(window, MAX_BURNED)
        spent = spent_later(slo, judged, spans_ms)
    every = found()
    now = [row for row in every if row["slo"] == name]
    newest_ms = now[0]["time_ms"] if now else None
    past_ms = window.to_ms if selection.is_past(now_ms()) else None
    evaluated = (
        "never evaluated" if newest_ms is None else f"evaluated {formats.moment_ms(newest_ms)}"
    )
    st.html(
        markup.verdict_banner(
            budget_summary(name, now[0] if now else None, past_ms),
            f"data as of {formats.clock_ms(now_ms())} · {evaluated}",
        )
    )
    by_slo, params = burns(), selection.to_params()
    # The chosen one first; the others are one click away.
    shown, num_more = worst_slos(every, name)
    tiles = [
        slo_tile(
            row, by_slo.get(row["slo"], []), markup.page_link("slo", {"slo": row["slo"], **params})
        )
        for row in shown
    ]
    st.html(markup.slo_tiles(tiles, colours(), name, num_more))
    if slo is None:
        st.html(
            markup.remark(
                "To count its events, the dashboard needs the SLO's file:",
                "evenkeel dashboard --slos slos.yaml",
            )
        )
        return
    if is_of_sessions(slo):
        st.html(_session_link(slo, selection.unfiltered().to_params()))
        show_budget(slo, window, spans_ms, is_past=past_ms is not None)
        return
    if slo.indicator.budget is not None:
        filters = page_filters(slo.indicator.shared_select)
        params = selection.unfiltered().to_params()
        params |= {n: v for n, v in filters.items() if n in FILTERS}
        st.html(
            f'<div class="ek-remark">It is a budget of '
            f"{formats.number(slo.indicator.budget)} in money: "
            f"{markup.link('see who spent it', markup.page_link('cost', params))}.</div>"
        )
        return
    if spent is None:
        st.html(markup.remark("It judges time slices or evaluations, not single requests:",
                              "evenkeel slo report"))  # fmt: skip
        return
    part = ""
    if judged != window:
        part = f"; of the last {formats.span_of(judged.duration_s)} of the range"
    found_spent = spent()
    _show_requests(found_spent, selection)
    _show_spent(found_spent, selection, part, slo)
    show_budget(slo, window, spans_ms, is_past=past_ms is not None)


def _session_link(slo: Slo, params: Mapping[str, str]) -> str:
    """Return the link to the sessions that burned it, the worst first."""
    order = "turns" if slo.indicator.metric is Metric.SESSION_TURNS else "e2e"
    outcome = "failed" if slo.indicator.metric is Metric.SESSION_SUCCESS else ""
    chosen = {"order": order, "outcome": outcome, "tenant": slo.indicator.select.get("tenant", "")}
    href = markup.page_link("sessions", {**params, **{k: v for k, v in chosen.items() if v}})
    silence = formats.span_of(float(slo.indicator.silence_s * slo.scale))
    return (
        f'<div class="ek-remark">It judges sessions, once they have been silent for {silence}. '
        f"{markup.link('See the worst sessions', href)}</div>"
    )


def _show_requests(spent: BudgetSpend, selection: Selection) -> None:
    with st.container(border=True, key="card-burning-requests"):
        st.html(
            '<div class="ek-title">The requests that burned it'
            "<small>furthest above the limit first; open one to see why, and what would help"
            "</small></div>"
        )
        if not spent.requests:
            st.caption("None in this range.")
            return
        cells = request_cells(spent.requests, selection.to_params(), colours())
        caption = "Requests that burned the budget"
        st.html(markup.table(request_headers(), cells[:SHOWN_REQUESTS], caption))
        if len(cells) > SHOWN_REQUESTS:
            with st.expander(f"{len(cells) - SHOWN_REQUESTS} more", key="more-burning"):
                st.html(markup.table(request_headers(), cells[SHOWN_REQUESTS:], f"More: {caption}"))


def _show_spent(spent: BudgetSpend, selection: Selection, part: str, slo: Slo) -> None:
    left, right = st.columns([3, 2], gap="small")
    with left, st.container(border=True, key="card-burners"):
        st.html(
            '<div class="ek-title">Who burned it<small>share of bad requests;'
            f" the tick shows the share of traffic{part}</small></div>"
        )
        found = [b for b in burners(spent.cohorts) if b.lift > 1]
        if not found:
            st.caption(
                "No cohort burned more than its share of traffic."
                if spent.requests
                else "No budget was burned."
            )
        else:
            rows = [
                [
                    Cell(_DIMENSIONS.get(b.dimension, b.dimension)),
                    Cell(b.cohort, href=cohort_href(b, selection, slo)),
                    Cell(html=markup.share_bar(b.bad_share, b.traffic_share), sorts_as=b.bad_share),
                    Cell(formats.percent(b.bad_share), is_number=True),
                    Cell(formats.percent(b.bad / b.total), is_number=True),
                    Cell(formats.count(b.bad), is_number=True),
                ]
                for b in found
            ]
            headers = ("by", "cohort", "share of all failures", "", "failure rate", "bad")
            st.html(markup.table(headers, rows, "Cohorts that burned the budget"))
    with right, st.container(border=True, key="card-causes"):
        st.html(
            '<div class="ek-title">Where their time went'
            "<small>mean time of bad and good requests, by phase</small></div>"
        )
        if spent.causes:
            _show_causes(spent.causes)
            _show_help(spent, selection)
        else:
            st.caption(formats.NO_DATA)


def cohort_href(burner: Burner, selection: Selection, slo: Slo) -> str:
    """Return the link to a cohort's requests that the SLO judges, the worst first."""
    judged = page_filters(slo.indicator.shared_select) | {burner.dimension: burner.cohort}
    # The page has no filters: those of others do not narrow what it counts.
    params = selection.unfiltered().to_params() | judged | {"order": rank_of(slo)}
    return markup.page_link("explore", params)


def _show_help(spent: BudgetSpend, selection: Selection) -> None:
    phase = lost_phase(spent.causes)
    if not phase:
        return
    params = selection.to_params()
    engine = markup.link("what the engine waited for", markup.page_link("engine", params))
    st.html(
        f'<div class="ek-remark">What would help: bad requests lost most time in {phase}. '
        f"{HELP[phase]} See {engine}, or open a request above for its own causes.</div>"
    )


def _show_causes(row: Mapping[str, Any]) -> None:
    palette = colours()
    phases = ("queue", palette.queue), ("prefill", palette.prefill), ("decode", palette.decode)
    st.html(markup.key(phases))
    sides = {
        side: [(n, c, row[f"{side}_{n}_s"] or 0.0) for n, c in phases] for side in ("bad", "good")
    }
    longest_s = max(sum(s for _, _, s in bar) for bar in sides.values())
    rows = [
        [
            Cell(side),
            Cell(html=markup.phase_bar(bar, longest_s) or formats.NO_DATA),
            *(Cell(formats.seconds(row[f"{side}_{n}_s"]), is_number=True) for n, _ in phases),
        ]
        for side, bar in sides.items()
    ]
    st.html(markup.table(("requests", "", "queue", "prefill", "decode"), rows, "Phases"))
    ends = [
        f"{formats.count(row[f'num_{end}'])} {words}"
        for end, words in (("error", "failed"), ("aborted", "aborted"), ("shed", "shed"))
        if row[f"num_{end}"]
    ]
    total = f"{formats.count(row['num_bad'])} bad of {formats.count(row['num_events'])} requests"
    of_bad = f"; of bad requests, {', '.join(ends)}" if ends else ""
    st.caption(markup.plain(f"{total}{of_bad}."))
