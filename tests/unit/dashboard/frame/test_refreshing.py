"""Parts of a page that refresh on their own."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from evenkeel_dashboard.frame import reading


def test_a_click_is_not_lost_as_the_first_data_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is drawn again for its range, but only after the form has had its click."""

    def script() -> None:
        import streamlit as st

        from evenkeel_dashboard.frame.page import refreshing

        def body() -> None:
            with st.form("f"):
                if st.form_submit_button("Acknowledge"):
                    st.session_state["num_sent"] = st.session_state.get("num_sent", 0) + 1

        st.session_state.setdefault("num_sent", 0)
        refreshing(body, None)

    found = [{"first_ms": 1_790_000_000_000}]
    monkeypatch.setattr(reading, "minute_rows_later", lambda *_: lambda: found)
    app = AppTest.from_function(script, default_timeout=240).run()
    app.session_state["range_without_data"] = True
    app.button[0].click().run()
    assert not app.exception
    assert app.session_state["num_sent"] == 1
    assert app.session_state["range_without_data"] is False
