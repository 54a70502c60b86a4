"""A page checks for what is missing, and stops in the end."""

from streamlit.testing.v1 import AppTest


def test_a_page_stops_checking_for_what_does_not_come() -> None:
    def script() -> None:
        import streamlit as st

        from evenkeel_dashboard.frame.polling import awaited

        found = awaited(
            lambda: list(st.session_state.get("there", ())),
            lambda: st.caption("nothing yet"),
            None,
            "it",
        )
        st.session_state["found"] = found

    def said(app: AppTest) -> list[str]:
        return [caption.value for caption in app.caption]

    app = AppTest.from_function(script, default_timeout=240).run()
    assert said(app) == ["nothing yet"]
    app.session_state["checks_for"] = {"it": 59}
    app.run()
    assert len(said(app)) == 2 and "stopped checking" in said(app)[1]
    app.session_state["there"] = ["data"]
    app.run()
    assert app.session_state["found"] == ["data"] and said(app) == []
    assert app.session_state["checks_for"] == {}
