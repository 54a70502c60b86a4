"""What the word MODEL may be."""

from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_runtime.serve.model import find_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def test_a_folder_with_a_config_is_a_model(folder: Path) -> None:
    source = find_model(str(folder))
    assert (source.model, source.is_local, source.flags) == (str(folder), True, ())


def test_the_demo_model_has_its_name_and_speculates_unless_told_not_to() -> None:
    drafting, plain = find_model("demo"), find_model("demo", "none")
    assert drafting.model == plain.model
    assert plain.flags[:2] == ("--served-model-name", "support")
    assert "--speculative-config.model" in drafting.flags
    assert "--speculative-config.model" not in plain.flags


@pytest.mark.parametrize(
    ("word", "message"),
    [
        pytest.param("/no/such/folder", "no model at '/no/such/folder'", id="no such folder"),
        pytest.param("./here", "no model at './here'", id="a relative one"),
        pytest.param("a b", "no model at 'a b'", id="neither folder nor name"),
    ],
)
def test_what_is_no_model_is_one_line(word: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        find_model(word)
    assert "\n" not in str(raised.value)


def test_a_folder_without_a_model_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.json is missing"):
        find_model(str(tmp_path))


def test_the_draft_model_belongs_to_the_demo(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="--speculative-config"):
        find_model(str(folder), "draft")
