"""Signing out ends the session, also on a page that was loaded before the sign-in."""

import pytest
from streamlit.testing.v1 import AppTest

from evenkeel_dashboard.frame.signing_in import sessions


def test_signing_out_ends_a_session_whose_cookie_the_page_has_not_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def script() -> None:
        import streamlit as st

        from evenkeel_dashboard.frame.signing_in import sessions, sign_out_button
        from evenkeel_dashboard.frame.user_access import Identity

        if "signed_out" not in st.query_params:
            ann = Identity("ann", "secret-token")
            ticket = sessions().ticket(ann)
            st.session_state["identity"] = ann
            st.session_state["sign_in_ticket_sent"] = ticket
            st.session_state["cookie"] = sessions().redeem(ticket)
            st.session_state["answer"] = "what only ann may see"
        sign_out_button()

    monkeypatch.setenv("EVENKEEL_DASHBOARD_SIGN_IN", "token")
    app = AppTest.from_function(script, default_timeout=240).run()
    cookie = app.session_state["cookie"]
    assert sessions().find(cookie) is not None
    app.query_params["signed_out"] = "yes"
    app.button[0].click().run()
    assert not app.exception
    assert sessions().find(cookie) is None
    # Whoever signs in next in this tab would see what was kept.
    assert "identity" not in app.session_state and "answer" not in app.session_state


def test_a_page_asks_again_after_another_page_has_signed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def script() -> None:
        import streamlit as st

        from evenkeel_dashboard.frame.page import refreshing
        from evenkeel_dashboard.frame.signing_in import require, sessions
        from evenkeel_dashboard.frame.user_access import Identity

        if "ticket" not in st.session_state:
            ann = Identity("ann", "secret-token")
            st.session_state["identity"] = ann
            st.session_state["sign_in_ticket_sent"] = sessions().ticket(ann)
            st.session_state["ticket"] = st.session_state["sign_in_ticket_sent"]
            st.session_state["answer"] = "what only ann may see"
        if require():
            refreshing(lambda: st.write("secret figures"), 5)

    monkeypatch.setenv("EVENKEEL_DASHBOARD_SIGN_IN", "token")
    app = AppTest.from_function(script, default_timeout=240).run()
    assert [each.value for each in app.markdown] == ["secret figures"]
    sessions().end("", app.session_state["ticket"])
    app.run()
    assert not app.exception and not app.markdown
    assert "answer" not in app.session_state
    assert "token" in [field.label for field in app.text_input]
