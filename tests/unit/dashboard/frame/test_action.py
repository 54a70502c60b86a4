"""A form's button: its click is never lost, and what was written stays until it is done."""

from collections.abc import Mapping
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from evenkeel_dashboard.frame import action
from evenkeel_dashboard.frame.collector_api import CollectorError


class Collector:
    """Stands in for the collector: keeps what is ordered, and may refuse."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, Mapping[str, Any]]] = []
        self.refusal: str | None = None

    def act(self, url: str, name: str, token: str | None, order: Mapping[str, Any]) -> None:
        if self.refusal is not None:
            raise CollectorError(self.refusal, 400)
        self.orders.append((name, dict(order)))


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Collector:
    made = Collector()
    monkeypatch.setattr(action, "act", made.act)
    monkeypatch.setattr(action, "may_act", lambda: True)
    return made


def page(is_readable: bool = True) -> None:
    import streamlit as st

    from evenkeel_dashboard.frame.action import (
        OrderError,
        action_button,
        author_field,
        show_done,
        show_refusal,
    )

    show_done()

    def read() -> tuple[dict[str, str], str]:
        if not st.session_state["why"]:
            raise OrderError("Write why")
        return {"comment": st.session_state["why"]}, "It is done."

    if not is_readable:
        st.stop()
    with st.form("form"):
        st.text_input("why", key="why")
        author_field("form")
        action_button("Do it", "button", "silence", read, "form", cleared={"why": ""})
        show_refusal("button")


def opened() -> AppTest:
    app = AppTest.from_function(page, default_timeout=240).run()
    assert not app.exception
    return app


def fill_in(app: AppTest, why: str = "noise", name: str = "ann") -> None:
    app.text_input(key="why").set_value(why)
    app.text_input(key="form-by").set_value(name)


def test_a_click_counts_though_the_page_can_no_longer_be_drawn(collector: Collector) -> None:
    app = opened()
    fill_in(app)
    app.args = (False,)
    app.button[0].click().run()
    assert not app.exception
    assert collector.orders == [("silence", {"comment": "noise", "by": "ann"})]
    assert [toast.value for toast in app.toast] == [r"It is done\."]


def test_a_click_runs_once(collector: Collector) -> None:
    app = opened()
    fill_in(app)
    app.button[0].click().run()
    app.run()
    assert len(collector.orders) == 1
    assert not app.toast
    assert app.text_input(key="why").value == ""
    assert app.text_input(key="form-by").value == "ann"


@pytest.mark.parametrize(
    ("why", "name", "refusal", "said"),
    [
        ("noise", "ann", "there is no such alert", "there is no such alert"),
        ("noise", " ", None, "Enter your name"),
        ("", "ann", None, "Write why"),
    ],
)
def test_what_is_refused_says_why_and_keeps_what_was_written(
    why: str, name: str, refusal: str | None, said: str, collector: Collector
) -> None:
    collector.refusal = refusal
    app = opened()
    fill_in(app, why, name)
    app.button[0].click().run()
    # It stays when the page is drawn again, as a live one is.
    for _ in range(2):
        (error,) = app.error
        assert said in error.value
        assert app.text_input(key="why").value == why
        app.run()
    assert collector.orders == []
    collector.refusal = None
    fill_in(app)
    app.button[0].click().run()
    assert not app.error
    assert len(collector.orders) == 1


@pytest.mark.parametrize("ended", ["may_act", "still_signed_in"])
def test_who_has_lost_access_since_does_nothing(
    ended: str, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = opened()
    fill_in(app)
    monkeypatch.setattr(action, ended, lambda: False)
    app.button[0].click().run()
    assert collector.orders == []
