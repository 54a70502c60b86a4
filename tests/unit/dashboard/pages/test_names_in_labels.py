"""Names and questions of users are shown as they are, where Streamlit takes Markdown."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


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
