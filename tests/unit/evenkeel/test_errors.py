from pathlib import Path

import pytest

from evenkeel.errors import StoreError, first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (StoreError("the store is gone"), "the store is gone"),
        (ValueError("\n  Code: 62. Syntax error\r\nat line 7"), "Code: 62. Syntax error"),
        (TimeoutError(), "TimeoutError"),
        (OSError(" \n "), "OSError"),
        (KeyError("tenant"), "'tenant'"),
    ],
    ids=["one line", "blank lines before it", "no message", "only white space", "a missing key"],
)
def test_an_error_is_its_first_line_or_its_type(error: Exception, line: str) -> None:
    assert first_line(error) == line


def test_the_file_of_an_oserror_is_named_unless_the_caller_does(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory") as caught:
        (tmp_path / "inner").read_text(encoding="utf-8")
    assert first_line(caught.value) == "No such file or directory"
    assert first_line(caught.value, folder=tmp_path / "inner") == "No such file or directory"
    inner = f"{tmp_path}/inner: No such file or directory"
    assert first_line(caught.value, folder=tmp_path) == inner
    assert first_line(OSError("no space"), folder=tmp_path) == "no space"


def test_a_line_is_cut_only_where_that_is_asked() -> None:
    error = StoreError("x" * 5000)
    assert len(first_line(error)) == 5000
    assert first_line(error, max_chars=300) == "x" * 300
