"""The app without a store: it says what to do and shows no exception."""

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.server import APP
from dashboard.views import PAGES


def said(app: AppTest) -> str:
    return " ".join(element.proto.body for element in app.get("html"))


def test_a_store_that_is_gone_is_one_message_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVENKEEL_DASHBOARD_QUERY_URL", "http://127.0.0.1:9")
    app = AppTest.from_file(str(APP), default_timeout=20).run()
    assert not app.exception
    assert "The store is not reachable" in said(app)
    assert "evenkeel collect" in said(app)


def test_each_page_has_a_place_of_its_own() -> None:
    paths = [page.path for page in PAGES]
    assert paths[0] == ""
    assert len(set(paths)) == len(paths)
