"""A TOML file that is wrong: one line with file, line and key, and no secret in it."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from evenkeel.errors import ConfigurationError
from evenkeel.toml_file import read_toml_file


class _Route(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    limits: tuple[int, ...] = ()
    token: int = 0


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int = 1
    route: tuple[_Route, ...] = ()


ROUTES = """\
# size of nothing
size = 3

[[route]]
name = "a"

[[route]]
name = "b"
limits = [
  1,
  2,
]
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            ROUTES.replace("size = 3", "size = 'big'"),
            ":2: size: Input should be a valid integer, unable to parse string as an integer "
            "(value 'big')",
            id="a value, below a comment that names its key",
        ),
        pytest.param(ROUTES + "size = 3\n", ":13: route.1.size is not a known key", id="a key"),
        pytest.param(
            ROUTES.replace('name = "b"', ""), ":7: route.1.name is missing", id="the second table"
        ),
        pytest.param(
            ROUTES.replace("2,", "'x',"),
            ":9: route.1.limits.1: Input should be a valid integer, unable to parse string as an "
            "integer (value 'x')",
            id="an array of several lines",
        ),
        pytest.param(
            "route = [{token = 'abc', name = 'a'}]",
            ":1: route.0.token: Input should be a valid integer, unable to parse string as an "
            "integer",
            id="a secret is not shown",
        ),
        pytest.param("size", " is not TOML: ", id="not TOML"),
        pytest.param(
            ROUTES.replace("2,", "-inf,"),
            ":9: route.1.limits.1 is -inf, expected a finite number",
            id="infinite",
        ),
        pytest.param("size = nan", ":1: size is nan, expected a finite number", id="no number"),
        pytest.param("size = 1e400", ":1: size is inf, expected a finite number", id="too large"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        read_toml_file(path, _File, secrets=frozenset({"token"}))
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)
    assert message.startswith(" ") or str(caught.value) == f"{path}{message}"


def test_the_flag_that_names_the_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a\.toml \(--routes\) cannot be read: No such"):
        read_toml_file(tmp_path / "a.toml", _File, "--routes")
    (tmp_path / "a.toml").write_text("size = []")
    with pytest.raises(ConfigurationError, match=r"a\.toml:1 \(--routes\): size: Input should"):
        read_toml_file(tmp_path / "a.toml", _File, "--routes")
