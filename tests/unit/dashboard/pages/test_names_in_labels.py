"""Names and questions of users are shown as they are, where Streamlit takes Markdown."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def test_the_name_of_a_span_is_no_markdown() -> None:
    def script() -> None:
        from evenkeel_dashboard.pages.request.page import _show_spans

        name = "`![x](http://a)<b>"
        span = {"name": name, "kind": "Server", "duration_ns": 10**9, "span_id": "1"}
        _show_spans([span | {"attributes": {}}])

    app = AppTest.from_function(script, default_timeout=60).run()
    assert not app.exception and not app.markdown
    assert "&lt;b&gt;" in app.get("html")[0].proto.body


def test_the_question_of_a_user_is_no_markdown() -> None:
    def script() -> None:
        from evenkeel_dashboard.pages.evals.live import _show_candidate

        row = {"trace_id": "1", "reasons": ["low score"], "time_ms": 0, "corrected": None}
        _show_candidate(row, ("![x](http://a)", "yes"))

    app = AppTest.from_function(script, default_timeout=60).run()
    assert not app.exception
    assert app.expander[0].label.startswith(r"\!\[x\]\(http")
