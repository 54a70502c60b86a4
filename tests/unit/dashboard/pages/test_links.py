"""Links from page to page keep what the reader has chosen: range, filters, and time zone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import evenkeel_dashboard.pages
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.pages.alerts.columns import alert_columns

ROOT = Path(evenkeel_dashboard.pages.__file__).parent


def test_each_link_passes_the_selection_on() -> None:
    dropped = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="page_link") | ast.Attribute(attr="page_link"),
                    args=[_, ast.Dict(keys=keys)],
                ) if None not in keys:
                    dropped.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert dropped == []


def test_a_comparison_with_the_newest_version_is_of_the_last_days_in_the_readers_zone() -> None:
    def script() -> None:
        import streamlit as st

        from evenkeel_dashboard.pages.evals.prompts import _comparison

        chosen = {"from": "2026-11-20T10:00:00Z", "to": "2026-11-20T11:00:00Z", "tenant": "acme"}
        st.query_params.from_dict(chosen | {"tz": "local"})
        row = {"prompt_name": "support", "prompt_version": "1"}
        st.text(_comparison(row, {"support": "2"}).href)

    app = AppTest.from_function(script, default_timeout=240).run()
    assert not app.exception
    assert app.text[0].value == (
        "./compare?range=7d&tz=local&by=prompt&a=support%401&b=support%402&measure=e2e"
    )


def test_the_hour_of_the_newest_request_has_no_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the newest of all: with the filters, its hour would be empty, too."""

    def script() -> None:
        from evenkeel_dashboard.draw.window import Window
        from evenkeel_dashboard.frame.selection import Selection
        from evenkeel_dashboard.pages.health.page import _show_empty

        _show_empty(Selection(tenant="acme", zone="local"), Window(0, 1, 1))

    newest = [{"newest_ms": 1_790_000_000_000, "ahead_ms": None}]
    monkeypatch.setattr(reading, "rows", lambda *_: newest)
    app = AppTest.from_function(script, default_timeout=240).run()
    assert not app.exception
    link = app.get("html")[-1].proto.body
    assert "Show the hour before" in link and "tenant" not in link and "tz=local" in link


def test_an_alerts_requests_are_shown_in_the_readers_zone() -> None:
    notes = {"explore": "http://dash/explore?from=2026-11-20&to=2026-11-21&tenant=acme"}
    drawn = alert_columns(notes, "", {"range": "6h", "tz": "local"})
    assert "./explore?from=2026-11-20&amp;to=2026-11-21&amp;tenant=acme&amp;tz=local" in drawn
