"""The page that the browser loads first."""

import re

import pytest

from evenkeel_dashboard.frame.start_page import start_page
from evenkeel_dashboard.pages import PAGES, page_missing


def test_a_page_starts_with_its_title_and_a_skeleton() -> None:
    html = start_page("SLO <1>")
    assert "<title>SLO &lt;1&gt; · evenkeel</title>" in html
    assert "BACKEND_BASE_URL" in html
    assert html.index('id="ek-skeleton"') < html.index('<div id="root">')


@pytest.mark.parametrize(
    ("path", "address", "base"),
    [
        ("", "/", "/"),
        ("", "/evenkeel/", "/evenkeel/"),
        ("", "/evenkeel", "/evenkeel/"),
        ("slo", "/slo", "/"),
        ("slo", "/evenkeel/slo/", "/evenkeel/"),
    ],
)
def test_a_prefix_stays_in_the_address_of_the_server(path: str, address: str, base: str) -> None:
    found = address
    html = start_page("Health", path)
    for pattern, to in re.findall(r'\.replace\(/(.*?)/, "(.*?)"\)', html[: html.index("BACKEND")]):
        found = re.sub(pattern, to, found, count=1)
    assert found == base


def test_no_style_sheet_holds_up_the_first_paint() -> None:
    html = start_page("Health")
    assert html.index('<link rel="stylesheet"') > html.index('id="ek-skeleton"')


def test_a_page_that_is_missing_names_the_one_that_was_meant() -> None:
    missing = page_missing("latancy")
    assert missing.path == "latancy" and missing.title == "Not found"
    assert missing.show.args[2] == "Latency"  # type: ignore[attr-defined]
    assert page_missing("zzz").show.args[2] == ""  # type: ignore[attr-defined]
    assert len(page_missing("zzz").show.args[1]) == len(PAGES)  # type: ignore[attr-defined]
