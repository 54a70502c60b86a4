"""The app without a store says what to do and shows no exception."""

import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from evenkeel_dashboard.frame.selection import DEFAULT_PRESET
from evenkeel_dashboard.frame.server import APP
from evenkeel_dashboard.pages import PAGES


def said(app: AppTest) -> str:
    return " ".join(element.proto.body for element in app.get("html"))


@pytest.mark.parametrize("path", [page.path for page in PAGES])
def test_a_store_that_is_gone_is_one_message_with_the_command(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def show(path: str) -> None:
        from evenkeel_dashboard.frame.signing_in import require
        from evenkeel_dashboard.pages import PAGES

        assert require()
        next(page for page in PAGES if page.path == path).show()

    monkeypatch.setenv("EVENKEEL_DASHBOARD_QUERY_URL", "http://127.0.0.1:9")
    app = AppTest.from_function(show, args=(path,), default_timeout=240).run()
    assert not app.exception
    assert "The store is not reachable" in said(app)
    assert "evenkeel collect" in said(app)


def test_the_app_starts_without_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENKEEL_DASHBOARD_QUERY_URL", "http://127.0.0.1:9")
    app = AppTest.from_file(str(APP), default_timeout=240).run()
    assert not app.exception
    assert "The store is not reachable" in said(app)


def test_a_moment_that_was_written_stays_when_time_goes_on() -> None:
    def form(minute: int) -> None:
        from zoneinfo import ZoneInfo

        import streamlit as st

        from evenkeel_dashboard.draw.zones import use_zone
        from evenkeel_dashboard.pages.slo.records import moment_field

        use_zone(ZoneInfo("Europe/Berlin"))
        with st.form("f"):
            now_ms = 1_767_319_425_000 + minute * 60_000
            st.session_state["sent"] = moment_field("from", "from", now_ms)()
            st.form_submit_button("send")

    app = AppTest.from_function(form, args=(0,), default_timeout=240).run()
    assert app.text_input[0].label == "from (CET)"
    assert app.text_input[0].value == "2026-01-02 03:03:00"
    app.text_input[0].set_value("2026-01-01 00:00")
    app.args = (5,)
    app.button[0].click().run()
    assert app.session_state["sent"] == 1_767_222_000_000
    app.text_input[0].set_value("yesterday")
    app.button[0].click().run()
    assert app.session_state["sent"] is None


def test_each_page_has_a_place_of_its_own() -> None:
    paths = [page.path for page in PAGES]
    assert paths[0] == ""
    assert len(set(paths)) == len(paths)


def test_no_page_hides_a_module() -> None:
    """Streamlit puts the app's folder first on the import path."""
    names = {path.stem for path in Path(APP).parent.iterdir() if path.suffix in ("", ".py")}
    names -= {"__init__", "__pycache__"}
    assert len(names) > len(PAGES)
    assert names & {*sys.stdlib_module_names, *packages_distributions()} == set()


def test_followed_links_know_the_range_of_an_address_without_one() -> None:
    script = (Path(APP).parents[1] / "draw" / "assets" / "links.js").read_text(encoding="utf-8")
    assert f'const RANGE = "{DEFAULT_PRESET}";' in script


@pytest.mark.parametrize(("num", "is_open"), [(50, True), (49, False)])
def test_a_tenant_that_is_not_among_the_most_frequent_can_be_typed(num: int, is_open: bool) -> None:
    def field(num: int) -> None:
        from evenkeel_dashboard.frame.page import _filter_field
        from evenkeel_dashboard.frame.selection import Selection

        _filter_field("tenant", [f"t{i}" for i in range(num)], Selection())

    app = AppTest.from_function(field, args=(num,), default_timeout=240).run()
    (box,) = app.selectbox
    assert (box.value, box.proto.accept_new_options) == ("", is_open)
