"""Corrections on the SLO page: the one that is chosen is the one that is revoked."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest


def test_the_correction_that_is_chosen_stays_chosen_when_another_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def page(ids: list[str]) -> None:
        import streamlit as st

        from evenkeel_dashboard.frame import signing_in
        from evenkeel_dashboard.frame.user_access import Identity
        from evenkeel_dashboard.pages.slo.records import revoke_form

        st.session_state[signing_in._IDENTITY] = Identity("ann", None, may_act=True)
        revoke_form(ids)

    monkeypatch.setenv("EVENKEEL_DASHBOARD_COLLECTOR_URL", "http://127.0.0.1:9")
    app = AppTest.from_function(page, args=(["c1", "c2"],), default_timeout=240).run()
    app.selectbox[0].set_value("c2")
    # The page learns of another one with the click.
    app.args = (["c3", "c1", "c2"],)
    app.button[0].click().run()
    assert not app.exception
    assert app.selectbox[0].value == "c2"
