"""Users' texts in HTML: nothing becomes markup, nothing hides, nothing is endless."""

import ast
from pathlib import Path

import pytest

import evenkeel_dashboard
from evenkeel_dashboard.draw.escaping import MAX_TEXT, escape, exactly, visible
from evenkeel_dashboard.draw.markup import Cell, table

FOLDER = Path(evenkeel_dashboard.__file__).parent


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("acme\u200b", "acme[U+200B]", id="zero width: not the tenant acme"),
        pytest.param("\u202egnp.exe", "[U+202E]gnp.exe", id="override of the direction"),
        pytest.param("\u2066a\u2069", "[U+2066]a[U+2069]", id="isolates"),
        pytest.param("a\x00b\x1b[31m", "a[U+0000]b[U+001B][31m", id="control characters"),
        pytest.param("a\U000e0041", "a[U+E0041]", id="tags"),
        pytest.param("line\n\tnext", "line\n\tnext", id="white space stays"),
        pytest.param("می\u200cخواهم", "می\u200cخواهم", id="Persian needs its joiners"),
        pytest.param("👩\u200d💻 שלום", "👩\u200d💻 שלום", id="so do emoji; Hebrew is text"),
    ],
)
def test_what_cannot_be_seen_is_named(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_an_endless_text_is_cut_and_says_so() -> None:
    shown = escape("<" * 1_000_000)
    assert shown == "&lt;" * MAX_TEXT + "… (1,000,000 characters)"


def test_a_cell_shows_the_beginning_and_copies_all_of_it() -> None:
    name = "n" * 5_000 + "\u200b"
    html = table(["name"], [[Cell(name, copies=name)]], "t")
    assert f">{'n' * 120}…<" in html
    assert f'data-copy="{name}"' in html
    assert exactly('"\u200b') == "&quot;\u200b"


def test_pages_escape_in_no_other_way() -> None:
    """The start page has no text of users."""
    others = []
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if "html" in named or (isinstance(node, ast.ImportFrom) and node.module == "html"):
                others.append(path.relative_to(FOLDER).as_posix())
    assert sorted(others) == ["draw/escaping.py", "frame/start_page.py"]
