"""Draws what the engines would save without the selected tenant, on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from evenkeel.prices.engine_time import cost_of_seconds, watts_of_work
from evenkeel.prices.price_file import PriceFile
from evenkeel.times import to_datetime
from evenkeel.whatif.reading import predicted_saving
from evenkeel.whatif.saving import PredictedSaving, Unpredictable
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.frame.signing_in import identity

_ANSWER = "cost-without"


def show_without(
    selection: Selection, window: Window, prices: PriceFile, engines: Sequence[Mapping[str, Any]]
) -> None:
    """Draw the card; it predicts when the button is pressed, because that takes a second or two.

    Args:
        selection: What is selected.
        window: The range.
        prices: The prices in force.
        engines: Rows of the query `engine_seconds`.
    """
    if not selection.tenant:
        return
    with st.container(border=True, key="card-cost-without"):
        st.html(
            f'<div class="ek-title">Without {escape(selection.tenant)}<small>what your own engines '
            "would save, by a replay of the range without its requests</small></div>"
        )
        # What another user of this session may see is not for this one.
        whose = (identity().token, selection.tenant, selection.model)
        if st.button("Replay the range", key="cost-replay"):
            with st.spinner("replaying"):
                found = predicted_saving(
                    reading.rows, selection.tenant, window.from_ms, window.to_ms, selection.model
                )
            st.session_state[_ANSWER] = (whose, window, found)
        of, replayed, found = st.session_state.get(_ANSWER, (None, None, None))
        # A live range moves on: its last answer stays, with its time.
        if found is not None and of == whose:
            _show_answer(found, replayed.from_ms, replayed.to_ms, prices, watts_of_work(engines))


def _show_answer(
    found: PredictedSaving | Unpredictable,
    from_ms: int,
    to_ms: int,
    prices: PriceFile,
    watts_of: Mapping[str, float],
) -> None:
    if isinstance(found, Unpredictable):
        # It may name tenants and models, and may end in a question.
        end = "" if found.reason.endswith("?") else "."
        st.caption(markup.plain(f"The saving is unknown: {found.reason}{end}"))
        return
    at = to_datetime((to_ms - 1) * 10**6)
    cost = cost_of_seconds(found.saved_of, prices, at, watts_of)
    moments = f"{formats.moment_ms(from_ms)} to {formats.moment_ms(to_ms)}"
    st.html(markup.facts(saving_facts(found, cost, prices.currency, moments)))


def saving_facts(
    found: PredictedSaving, cost: float | None, currency: str, moments: str
) -> list[tuple[str, str]]:
    """Return what would be saved without a tenant, by name.

    Args:
        found: The prediction.
        cost: What the seconds cost; None without a price.
        currency: The bill's.
        moments: The range in words.
    """
    margin = "" if found.margin_s is None else f" ± {formats.seconds(found.margin_s)}"
    margin += ": may be nothing" if found.is_nothing_shown else ""
    share = formats.percent(found.saved_s / found.busy_s if found.busy_s else None)
    replayed = f"{formats.count(found.num_requests)} requests"
    if found.replayed_ratio < 1:
        replayed += f", a sample of {formats.percent(found.replayed_ratio)} of the time"
    return [
        ("saved", f"{formats.seconds(found.saved_s)}{margin}"),
        ("of the time in steps", share),
        ("at the engines' price", formats.money(cost, currency)),
        ("replayed", replayed),
        ("replay of what happened", f"{formats.signed_percent(found.replay_error)} off"),
        ("range", moments),
    ]
