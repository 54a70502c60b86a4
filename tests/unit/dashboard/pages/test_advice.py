"""Pages of a range in the past, or of a tenant, do not give advice that does not apply."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

PAST_MS = 1_700_000_000_000


@pytest.mark.parametrize("page", ["health", "slo"])
@pytest.mark.parametrize("is_past", [False, True])
def test_only_now_the_advice_is_to_write_objectives(page: str, is_past: bool) -> None:
    def show(page: str, is_past: bool, past_ms: int) -> None:
        from types import SimpleNamespace
        from typing import Any

        from evenkeel_dashboard.frame.selection import Selection
        from evenkeel_dashboard.pages.health.page import show_slos
        from evenkeel_dashboard.pages.slo.page import say_nothing

        chosen = Selection().narrowed(past_ms, past_ms + 60_000) if is_past else Selection()
        data: Any = SimpleNamespace(slos=[])
        if page == "health":
            show_slos(data, chosen)
        else:
            say_nothing(chosen)

    app = AppTest.from_function(show, args=(page, is_past, PAST_MS), default_timeout=240).run()
    assert not app.exception
    said = " ".join(each.proto.body for each in app.get("html"))
    said += " ".join(each.value for each in app.caption)
    assert ("evenkeel collect --slos slos.yaml" in said) == (not is_past)
    assert ("No SLO was evaluated at the end of this range" in said) == is_past


@pytest.mark.parametrize("page", ["health", "slo"])
def test_a_tenant_is_not_told_to_write_objectives(page: str) -> None:
    def show(page: str) -> None:
        from types import SimpleNamespace
        from typing import Any

        import streamlit as st

        from evenkeel_dashboard.frame import signing_in
        from evenkeel_dashboard.frame.selection import Selection
        from evenkeel_dashboard.frame.user_access import Identity
        from evenkeel_dashboard.pages.health.page import show_slos
        from evenkeel_dashboard.pages.slo.page import say_nothing

        st.session_state[signing_in._IDENTITY] = Identity("ann", "t", "globex")
        data: Any = SimpleNamespace(slos=[])
        if page == "health":
            show_slos(data, Selection())
        else:
            say_nothing(Selection())

    app = AppTest.from_function(show, args=(page,), default_timeout=240).run()
    assert not app.exception
    said = " ".join(each.proto.body for each in app.get("html"))
    said += " ".join(each.value for each in app.caption)
    assert "slos.yaml" not in said and "No SLO is evaluated for tenant globex alone" in said


def test_a_tenant_is_not_asked_for_another_address_of_the_collector() -> None:
    """It refuses corrections and reports, which cover all tenants."""

    def show() -> None:
        import streamlit as st

        from evenkeel_dashboard.frame import signing_in
        from evenkeel_dashboard.frame.user_access import Identity
        from evenkeel_dashboard.pages.slo.records import show_records

        st.session_state[signing_in._IDENTITY] = Identity("ann", "t", "globex")
        show_records("chat")

    app = AppTest.from_function(show, default_timeout=240).run()
    assert not app.exception
    said = " ".join(each.value for each in app.caption)
    assert "cover all tenants" in said and "--collector-url" not in said
