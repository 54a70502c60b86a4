import io
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.cli import Command, main
from evenkeel.errors import CannotMeasureError
from evenkeel.outside_text import (
    drawn_on,
    for_spreadsheet,
    for_terminal,
    safe_output,
    write_any_character,
)

# Sets the window's title, moves the cursor up, reverses the direction of text.
HOSTILE = "acme\x1b]0;title\x07\x1b[2A\r\u202egood"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.text())
def test_a_line_for_the_terminal_is_one_line_of_printable_text(text: str) -> None:
    safe = for_terminal(text)
    assert len(safe) == len(text)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028-\u202e]", safe)
    assert for_terminal(safe) == safe


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_name_cannot_control_the_terminal_but_a_file_gets_it_unchanged(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for stream, expected in (
        (Terminal(), "acme\ufffd]0;title\ufffd\ufffd[2A\ufffd\ufffdgood\n"),
        (io.StringIO(), f"{HOSTILE}\n"),
    ):
        monkeypatch.setattr(sys, name, stream)
        with safe_output():
            print(HOSTILE, file=getattr(sys, name))
        assert stream.getvalue() == expected
        assert getattr(sys, name) is stream


def test_colours_of_a_table_and_a_progress_bar_get_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    with safe_output():
        print("\x1b[1;31mred\x1b[0m\tcell")
        drawn_on(sys.stdout).write("\x1b[2K")
    assert stream.getvalue() == "\x1b[1;31mred\x1b[0m\tcell\n\x1b[2K"


def test_an_error_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: object) -> int:
        raise CannotMeasureError(f"no tenant {HOSTILE}\ntry another")

    command = Command("fail", "fails", lambda parser: parser.set_defaults(run=fail))
    assert main(["fail"], [command]) == CannotMeasureError.exit_code
    said = capsys.readouterr().err
    assert said.endswith("good\ntry another\n")
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", said)


@pytest.mark.parametrize("value", ["=1+1", "+1", "-1", "@a", "\t=1", "\r=1"])
def test_text_that_would_be_a_formula_is_quoted(value: str) -> None:
    assert for_spreadsheet(value) == f"'{value}"


@pytest.mark.parametrize("value", ["acme", "", -1, 1.5, None])
def test_other_cells_stay_as_they_are(value: object) -> None:
    assert for_spreadsheet(value) == value


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_every_locale_can_print_every_character(
    monkeypatch: pytest.MonkeyPatch, encoding: str, is_terminal: bool
) -> None:
    class Stream(io.TextIOWrapper):
        def isatty(self) -> bool:
            return is_terminal

    raw = io.BytesIO()
    stream = Stream(raw, encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    write_any_character("")
    print("█ 75%", flush=True)
    can_show = encoding == "utf-8" or not is_terminal
    assert raw.getvalue().decode() == ("█ 75%\n" if can_show else "? 75%\n")


@pytest.mark.parametrize(
    ("chosen", "errors", "expected"),
    [
        ("latin-1", "strict", b"\xe9 ?"),
        ("latin-1:xmlcharrefreplace", "xmlcharrefreplace", b"\xe9 &#9608;"),
        (":strict", "strict", "é █".encode()),
    ],
)
def test_an_encoding_that_the_user_chose_stays(
    monkeypatch: pytest.MonkeyPatch, chosen: str, errors: str, expected: bytes
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1", errors=errors))
    write_any_character(chosen)
    print("é █", end="", flush=True)
    assert raw.getvalue() == expected


def test_a_file_name_that_is_no_text_is_printed_as_in_the_locale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="surrogateescape")
    monkeypatch.setattr(sys, "stdout", stream)
    write_any_character("")
    print(b"\xff".decode("ascii", "surrogateescape"), end="", flush=True)
    assert raw.getvalue() == b"\xff"
