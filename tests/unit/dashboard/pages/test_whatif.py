"""What the engines would save without a tenant is read for one user."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from evenkeel.whatif.saving import Unpredictable
from evenkeel_dashboard.pages.cost import whatif


def test_a_prediction_is_shown_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> None:
        import streamlit as st

        from evenkeel.prices.price_file import PriceFile
        from evenkeel_dashboard.draw.window import Window
        from evenkeel_dashboard.frame.selection import Selection
        from evenkeel_dashboard.frame.user_access import Identity
        from evenkeel_dashboard.pages.cost.whatif import show_without

        st.session_state["identity"] = Identity(*st.query_params["who"].split(","))
        show_without(Selection(tenant="acme"), Window(0, 3_600_000, 60), PriceFile(), [])

    found = Unpredictable("globex has no step records")
    monkeypatch.setattr(whatif, "predicted_saving", lambda *_: found)
    app = AppTest.from_function(script, default_timeout=240)
    app.query_params["who"] = "op,all-tenants"
    app.run().button[0].click().run()
    assert not app.exception
    assert "globex" in app.caption[0].value
    app.query_params["who"] = "ann,one-tenant"
    app.run()
    assert not app.exception and not app.caption
