"""Order, refusal and masking of settings."""

from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import SecretStr

from evenkeel.errors import ConfigurationError
from evenkeel.settings import Settings, load


class Example(Settings):
    section: ClassVar[str] = "example"
    port: int = 1
    data_dir: Path = Path("data")
    token: SecretStr = SecretStr("")


def write(directory: Path, text: str) -> Path:
    (directory / "evenkeel.toml").write_text(text)
    return directory


def test_a_flag_beats_the_environment_beats_the_file(tmp_path: Path) -> None:
    write(tmp_path, "[example]\nport = 2\ndata_dir = 'file'\n")
    loaded = load(Example, {"port": 4}, {"EVENKEEL_EXAMPLE_PORT": "3"}, tmp_path)
    assert loaded.settings.port == 4
    assert loaded.settings.data_dir == Path("file")
    assert loaded.sources == {"port": "flag", "data_dir": "evenkeel.toml", "token": "default"}


def test_the_data_folder_has_one_variable_for_all_parts(tmp_path: Path) -> None:
    loaded = load(Example, {}, {"EVENKEEL_DATA_DIR": "/d"}, tmp_path)
    assert loaded.settings.data_dir == Path("/d")


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    write(tmp_path, "[example]\nport = 2\n")
    loaded = load(Example, {}, {"EVENKEEL_EXAMPLE_PORT": "", "EVENKEEL_DATA_DIR": ""}, tmp_path)
    assert loaded.sources["port"] == "evenkeel.toml"
    assert loaded.settings.data_dir == Path("data")


@pytest.mark.parametrize(
    ("toml", "environment", "message"),
    [
        pytest.param("[example]\nprot = 2", {}, "no setting 'prot'", id="unknown key in the file"),
        pytest.param("", {"EVENKEEL_EXAMPLE_PROT": "1"}, "no such setting", id="unknown variable"),
        pytest.param("", {"EVENKEEL_EXAMPLE_PORT": "x"}, "example.port from env", id="wrong type"),
        pytest.param("[example", {}, "cannot be read", id="broken file"),
    ],
)
def test_refusals(tmp_path: Path, toml: str, environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(Example, {}, environment, write(tmp_path, toml))


def test_secrets_are_masked(tmp_path: Path) -> None:
    loaded = load(Example, {"token": "hunter2"}, {}, tmp_path)
    assert "hunter2" not in loaded.describe()
    assert "port = 1  # default" in loaded.describe()
