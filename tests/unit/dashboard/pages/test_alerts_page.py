"""The Alerts page: what is written about an alert stays with it."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest


def test_what_is_written_about_an_alert_stays_with_it_when_a_worse_one_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def page(names: list[str]) -> None:
        import streamlit as st

        from evenkeel_dashboard.frame import signing_in
        from evenkeel_dashboard.frame.selection import Selection
        from evenkeel_dashboard.frame.user_access import Identity
        from evenkeel_dashboard.pages.alerts.page import show_active

        st.session_state[signing_in._IDENTITY] = Identity("ann", None, may_act=True)
        for name in names:
            alert = {
                "alert_id": f"id-{name}", "slo": name, "severity": "page", "state": "firing",
                "alertname": "SloBudgetBurn", "started_ms": 0, "fired_ms": 0, "was_silenced": 0,
                "annotations": {},
            }  # fmt: skip
            show_active(alert, [], Selection(), None)

    monkeypatch.setenv("EVENKEEL_DASHBOARD_COLLECTOR_URL", "http://127.0.0.1:9")
    app = AppTest.from_function(page, args=(["chat"],), default_timeout=240).run()
    assert not app.exception
    written = "what you are doing about it"
    next(field for field in app.text_input if field.label == written).set_value("of chat")
    next(button for button in app.button if button.label == "Silence").click().run()
    assert "no collector answers" in app.error[0].value
    app.args = (["batch", "chat"],)
    app.run()
    assert not app.exception
    assert [field.value for field in app.text_input if field.label == written] == ["", "of chat"]


def test_what_is_chosen_to_silence_stays_when_alerts_and_silences_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one was silenced instead, or its silence ended."""

    def page(slos: list[str], ids: list[str]) -> None:
        import streamlit as st

        from evenkeel_dashboard.frame import signing_in
        from evenkeel_dashboard.frame.user_access import Identity
        from evenkeel_dashboard.pages.alerts.page import show_silences

        st.session_state[signing_in._IDENTITY] = Identity("ann", None, may_act=True)
        silences = [
            {
                "id": name, "matchers": ["slo=chat"], "until": "2100-01-01T00:00:00Z", "by": "ann",
                "is_in_force": True, "comment": "",
            }
            for name in ids
        ]  # fmt: skip
        show_silences({"alerts": [], "silences": silences}, slos)

    monkeypatch.setenv("EVENKEEL_DASHBOARD_COLLECTOR_URL", "http://127.0.0.1:9")
    app = AppTest.from_function(page, args=(["batch", "chat"], ["s1", "s2"]), default_timeout=240)
    app.run()
    assert not app.exception
    chosen = {"SLO, or matchers": "chat", "silence": "s2"}
    for label, value in chosen.items():
        next(box for box in app.selectbox if box.label == label).set_value(value)
    for label in ("Silence it", "End it"):
        next(button for button in app.button if button.label == label).click()
    app.run()
    assert "no collector answers" in app.error[0].value
    app.args = (["agents", "batch", "chat"], ["s0", "s1", "s2"])
    app.run()
    assert not app.exception
    found = {box.label: box.value for box in app.selectbox}
    assert {label: found[label] for label in chosen} == chosen
    app.args = ([], ["s0", "s1"])
    app.run()
    assert not app.exception
    found = {box.label: box.value for box in app.selectbox}
    assert found["silence"] == "s0", "one that has ended cannot be ended"
