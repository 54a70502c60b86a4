"""Names and questions of users are shown as they are, whatever they are."""

from __future__ import annotations

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from evenkeel_dashboard.draw.appearance import palette
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import action
from evenkeel_dashboard.frame.collector_api import CollectorError
from evenkeel_dashboard.pages.cost.data import by_cohort
from evenkeel_dashboard.pages.latency.figures import cohort_lines

STEPS = pd.to_datetime([0, 60], unit="s")


def test_a_tenant_that_is_called_as_a_column_of_the_series_has_its_line() -> None:
    window = Window(0, 120_000, 60)
    frames = {
        name: pd.DataFrame({"bucket": STEPS, "p95_s": [value, value]})
        for name, value in (("bucket", 2.0), ("acme", 3.0))
    }
    chart, _ = cohort_lines(frames, "p95_s", window, palette("light"))
    drawn = {series.name: series.path for series in chart.series}
    assert drawn == {"bucket": "M0 2L1 2", "acme": "M0 3L1 3"}


def test_a_route_that_is_called_as_a_column_of_the_series_has_its_costs() -> None:
    costs = pd.DataFrame(
        {"bucket": STEPS[[0, 1, 1]], "cohort": ["bucket", "acme", ""], "cost": [1.0, 2.0, 4.0]}
    )
    found = by_cohort(costs, ["bucket", "acme", "all others"], Window(0, 120_000, 60))
    assert found.drop(columns="bucket").fillna(0.0).to_numpy().tolist() == [[1, 0, 0], [0, 2, 4]]


def test_the_name_of_a_span_is_no_markdown() -> None:
    def script() -> None:
        from evenkeel_dashboard.pages.request.trace_view import _show_span

        name = "`![x](http://a)<b>"
        span = {"name": name, "kind": "Server", "duration_ns": 10**9, "span_id": "1"}
        words = dict.fromkeys(
            ("parent_span_id", "service", "status_code", "status_message", "scope"), name
        )
        lists = {
            "event_names": [], "event_times_ns": [], "event_attributes": [], "link_trace_ids": [],
        }  # fmt: skip
        maps = {"attributes": {}, "resource_attributes": {}}
        _show_span([span | words | lists | maps | {"scope_version": "", "time_ns": 0}], "1")

    app = AppTest.from_function(script, default_timeout=240).run()
    assert not app.exception and not app.markdown
    assert "&lt;b&gt;" in app.get("html")[0].proto.body


def test_the_question_of_a_user_is_no_markdown() -> None:
    def script() -> None:
        from evenkeel_dashboard.pages.evals.live import _show_candidate

        row = {"trace_id": "1", "reasons": ["low score"], "time_ms": 0, "corrected": None}
        _show_candidate(row, ("![x](http://a)", "yes"))

    app = AppTest.from_function(script, default_timeout=240).run()
    assert not app.exception
    assert app.expander[0].label.startswith(r"\!\[x\]\(http")


def test_the_names_of_others_in_an_answer_are_no_markdown() -> None:
    def script() -> None:
        from evenkeel.prices.price_file import PriceFile
        from evenkeel.whatif.saving import Unpredictable
        from evenkeel_dashboard.pages.cost.whatif import _show_answer

        for reason in ("there are ![x](http://a)", "did you mean 'acme'?"):
            _show_answer(Unpredictable(reason), 0, 60_000, PriceFile(), {})

    app = AppTest.from_function(script, default_timeout=240).run()
    assert not app.exception
    first, last = (each.value for each in app.caption)
    assert first == r"The saving is unknown\: there are \!\[x\]\(http\://a\)\."
    assert last == r"The saving is unknown\: did you mean 'acme'?"


def test_the_names_of_alerts_in_a_refusal_are_no_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> None:
        import streamlit as st

        from evenkeel_dashboard.frame.action import action_button, author_field, show_refusal

        with st.form("form"):
            author_field("form")
            action_button("Do it", "button", "acknowledge", lambda: ({}, "done"), "form")
            show_refusal("button")

    def refuse(*_: object) -> None:
        raise CollectorError("no alert of 'x' is firing; there are chat/![x](http://a)", 409)

    monkeypatch.setattr(action, "act", refuse)
    monkeypatch.setattr(action, "may_act", lambda: True)
    app = AppTest.from_function(script, default_timeout=240).run()
    app.text_input[0].set_value("ann")
    app.button[0].click().run()
    assert not app.exception
    assert app.error[0].value.endswith(r"chat/\!\[x\]\(http\://a\)")
