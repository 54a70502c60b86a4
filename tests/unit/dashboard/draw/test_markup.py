"""HTML built from callers' names: none of it becomes markup."""

import pytest

from evenkeel_dashboard.draw.appearance import DARK, LIGHT, palette, style
from evenkeel_dashboard.draw.markup import (
    SHORT_ROWS,
    Cell,
    badge,
    change_cell,
    facts,
    hint,
    moment_cell,
    notice,
    number_tiles,
    page_link,
    pager,
    phase_bar,
    plain,
    slo_tiles,
    table,
    verdict_banner,
)
from evenkeel_dashboard.draw.tiles import StateSummary, Tile
from evenkeel_dashboard.draw.wasted import WastedTokens, wasted_markup

EVIL = '<img src=x onerror="alert(1)">'


@pytest.mark.parametrize(
    "html",
    [
        pytest.param(notice(EVIL), id="notice"),
        pytest.param(
            table([Cell(EVIL, href=EVIL)], [[Cell("a", copies=EVIL, sorts_as=EVIL)]], "t"),
            id="what is copied and sorted by",
        ),
        pytest.param(pager(0, 1, 2, EVIL, EVIL), id="pager"),
        pytest.param(table([EVIL], [[Cell(EVIL, href=EVIL)]], EVIL), id="table"),
        pytest.param(badge(EVIL, "bad"), id="badge"),
        pytest.param(facts([(EVIL, EVIL)]), id="facts"),
        pytest.param(hint(EVIL, EVIL, EVIL), id="hint"),
        pytest.param(number_tiles([Tile(EVIL, EVIL, EVIL, EVIL)], EVIL), id="tiles"),
        pytest.param(verdict_banner(StateSummary("bad", EVIL, EVIL), EVIL), id="verdict"),
        pytest.param(phase_bar([(EVIL, "#000", 1.0)], 1.0), id="bar"),
    ],
)
def test_values_are_escaped(html: str) -> None:
    assert "<img" not in html
    assert 'onerror="' not in html


def test_links_carry_what_is_set_and_quote_it() -> None:
    assert page_link("request", {"request_id": "a b&c", "model": ""}) == (
        "./request?request_id=a+b%26c"
    )
    assert page_link("", {}) == "./"


@pytest.mark.parametrize(("num_rows", "is_cut"), [(SHORT_ROWS, False), (SHORT_ROWS + 1, True)])
def test_a_short_table_shows_its_first_rows_and_the_rest_on_demand(
    num_rows: int, is_cut: bool
) -> None:
    html = table(["n"], [[Cell(str(n))] for n in range(num_rows)], "t", is_short=True)
    assert html.count("<tr>") == num_rows + 1, "all are there: sorting moves any of them to the top"
    assert ("ek-short" in html) == ("show all 9" in html) == is_cut
    # The style sheet hides what is beyond them.
    assert f".ek-short:not(.ek-all) tbody tr:nth-child(n+{SHORT_ROWS + 1})" in style(LIGHT)


def test_a_bar_without_length_is_not_drawn() -> None:
    assert phase_bar([("queue", "#000", 0.0)], 0.0) == ""


def test_a_bar_is_read_out_as_it_is_drawn() -> None:
    parts = [("queue", "#000", 0.5), ("prefill", "#111", 1.5), ("decode", "#222", 0.0)]
    assert 'aria-label="queue 500 ms, prefill 1.5 s"' in phase_bar(parts, 2.0)
    wasted = WastedTokens({"rejected drafts": 43_200.0}, 86_400.0)
    assert 'aria-label="rejected drafts 43,200"' in wasted_markup(wasted, LIGHT)


def test_the_theme_decides_the_colours_and_light_is_the_default() -> None:
    assert palette("dark") is DARK
    assert palette(None) is LIGHT
    assert f"--ek-page:{DARK.page};" in style(DARK)


def test_a_pager_says_which_rows_of_how_many() -> None:
    assert "<span>40 of 2,848</span>" in pager(0, 40, 2848, "", "./explore?page=2")
    assert ">next</a>" in pager(0, 40, 2848, "", "./explore?page=2")
    second = pager(40, 40, 2848, "./explore", "./explore?page=3")
    assert "<span>41–80 of 2,848</span>" in second and ">previous</a>" in second
    assert "<a" not in pager(0, 3, 3, "", "")


def test_the_style_sheet_holds_no_markup() -> None:
    """The browser's sanitizer drops a whole style sheet that has a tag in it."""
    assert "<" not in style(LIGHT).removeprefix("<style>").removesuffix("</style>")


def test_text_in_a_label_is_no_markdown() -> None:
    assert plain("![x](http://a)") == r"\!\[x\]\(http\://a\)"
    assert plain("how are you, 2 of 3?") == "how are you, 2 of 3?"


def test_changes_and_moments_sort_by_what_they_say() -> None:
    cells = [change_cell(now, 10.0) for now in (11.2, 31.0, 5.0)]
    assert [cell.text for cell in cells] == ["▲ 12%", "▲ 3.1×", "▼ 50%"]
    assert [cell.sorts_as for cell in cells] == pytest.approx([1.12, 3.1, 0.5])
    none = change_cell(1.0, None, "–")
    assert (none.text, none.sorts_as) == ("–", None)
    november, december = moment_cell(1_795_742_400_000), moment_cell(1_796_119_200_000)
    assert december.text < november.text and december.sorts_as > november.sorts_as  # type: ignore


@pytest.mark.parametrize(
    ("chosen", "where"), [("", "on the SLO page"), ("chat", "in the field above")]
)
def test_slos_that_are_left_out_are_named_where_they_are(chosen: str, where: str) -> None:
    """On the SLO page itself, "on the SLO page" leads nowhere."""
    assert f"6 more are listed {where}." in slo_tiles([], palette("light"), chosen, 6)
