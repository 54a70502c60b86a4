"""Draws what the engines would save without the selected tenant, on request."""

from __future__ import annotations

import streamlit as st

from evenkeel.prices.engine_time import cost_of_seconds
from evenkeel.prices.price_file import PriceFile
from evenkeel.times import to_datetime
from evenkeel.whatif.reading import predicted_saving
from evenkeel.whatif.saving import PredictedSaving, Unpredictable
from evenkeel_dashboard.draw import markup, wording
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.pages.cost.model import saving_facts

_ANSWER = "cost-without"


def show_without(selection: Selection, window: Window, prices: PriceFile) -> None:
    """Draw the card; it predicts when the button is pressed, because that takes a second or two."""
    if not selection.tenant:
        return
    with st.container(border=True, key="card-cost-without"):
        st.html(
            f'<div class="ek-title">Without {escape(selection.tenant)}<small>what your own engines '
            "would save, by a replay of the range without its requests</small></div>"
        )
        asked = (selection.tenant, selection.model, window.from_ms, window.to_ms)
        if st.button("Replay the range", key="cost-replay"):
            with st.spinner("replaying"):
                found = predicted_saving(
                    reading.rows, selection.tenant, window.from_ms, window.to_ms, selection.model
                )
            st.session_state[_ANSWER] = (asked, found)
        of, found = st.session_state.get(_ANSWER, (None, None))
        # A live range moves on: its last answer stays, with its time.
        if found is not None and of[:2] == asked[:2]:
            _show_answer(found, of[2], of[3], prices)


def _show_answer(
    found: PredictedSaving | Unpredictable, from_ms: int, to_ms: int, prices: PriceFile
) -> None:
    if isinstance(found, Unpredictable):
        st.caption(f"The saving is unknown: {found.reason}.")
        return
    at = to_datetime((to_ms - 1) * 10**6)
    cost = cost_of_seconds(found.saved_of, prices, at)
    moments = f"{wording.moment_ms(from_ms)} to {wording.moment_ms(to_ms)}"
    st.html(markup.facts(saving_facts(found, cost, prices.currency, moments)))
