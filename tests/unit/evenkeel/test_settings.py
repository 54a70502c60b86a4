"""Order, refusal and masking of settings."""

import argparse
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from pydantic import Field, SecretStr

from evenkeel.errors import ConfigurationError
from evenkeel.secret_text import SecretAddress
from evenkeel.settings import (
    SECTIONS,
    Listed,
    Loaded,
    Settings,
    SplitAtCommas,
    handed_down,
    load,
    write_environment,
)
from evenkeel.settings_flags import add_flags, read_flags
from tools import reference


class Example(Settings):
    section: ClassVar[str] = "example"
    port: int = 1
    data_dir: Path = Path("data")
    token: SecretStr = SecretStr("")


class Mode(StrEnum):
    SLOW = "slow"
    FAST = "fast"


class Kinds(Settings):
    """One field of each kind."""

    section: ClassVar[str] = "kinds"
    flag_prefix: ClassVar[str] = "kinds-"
    size_bytes: int = Field(default=2 << 20, gt=0, description="how large")
    share: float = Field(default=0.5, description="50 % of it")
    is_on: bool = Field(default=True, description="whether")
    mode: Mode = Field(default=Mode.SLOW, description="how")
    names: Listed = Field(default=(), description="which")
    key: SecretStr | None = Field(default=None, description="the key")
    stores: Annotated[tuple[SecretAddress, ...], SplitAtCommas] = Field(
        default=(), description="where"
    )
    channel: str | None = handed_down(None, "set by us")


def load_flags(*argv: str) -> Loaded[Kinds]:
    parser = argparse.ArgumentParser()
    add_flags(parser, Kinds)
    return load(Kinds, read_flags(Kinds, parser.parse_args(argv)), {})


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


def test_a_variable_for_something_else_may_have_any_name(tmp_path: Path) -> None:
    others = {"EVENKEEL_EXAMPEL_ANYTHING": "1", "EVENKEEL_DEMO_PORT": "2", "EVENKEEL_SERVE": "3"}
    assert load(Example, {}, others, tmp_path).sources["port"] == "default"


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
        pytest.param(
            "",
            {"EVENKEEL_EXAMPEL_PORT": "1"},
            "there is no such section; did you mean EVENKEEL_EXAMPLE_PORT",
            id="mistyped section",
        ),
        pytest.param("", {"EVENKEEL_EXAMPLE_PORT": "x"}, "example.port from env", id="wrong type"),
        pytest.param("[example", {}, "is not TOML", id="broken file"),
        pytest.param(
            "[colector]\nslos = 'slos.yaml'",
            {},
            r"\[colector\] is not a section; did you mean \[collector\]",
            id="a section that is mistyped",
        ),
        pytest.param(
            "[serve]\nport = 8001",
            {},
            r"\[serve\] is not a section; expected one of \[collector\], ",
            id="a command instead of its section",
        ),
        pytest.param(
            "slos = 'slos.yaml'",
            {},
            "slos = … is outside all sections",
            id="a key without a section",
        ),
        pytest.param("collector = 3", {}, "collector = … is outside all sections", id="no table"),
    ],
)
def test_refusals(tmp_path: Path, toml: str, environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(Example, {}, environment, write(tmp_path, toml))


def test_secrets_are_masked(tmp_path: Path) -> None:
    loaded = load(Example, {"token": "hunter2"}, {}, tmp_path)
    assert "hunter2" not in loaded.describe()
    assert "port = 1  # default" in loaded.describe()


def test_each_kind_of_setting_has_a_flag() -> None:
    argv = "--kinds-size-bytes 3 --kinds-share 0.1 --no-kinds-is-on --kinds-mode fast".split()
    settings = load_flags(*argv, "--kinds-names", "a,b", "--kinds-names", "c").settings
    assert settings == Kinds(
        size_bytes=3, share=0.1, is_on=False, mode=Mode.FAST, names=("a", "b", "c")
    )


def test_flags_that_are_not_given_leave_the_default() -> None:
    assert set(load_flags().sources.values()) == {"default"}


def test_a_flag_of_the_wrong_type_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"kinds.size_bytes from flag: .*'x'"):
        load_flags("--kinds-size-bytes", "x")


def test_help_is_made_of_what_the_fields_say() -> None:
    parser = argparse.ArgumentParser(
        formatter_class=lambda prog: argparse.HelpFormatter(prog, 8, 200)
    )
    add_flags(parser, Kinds)
    text = " ".join(parser.format_help().split())
    assert "--kinds-size-bytes N how large (default 2 MiB)" in text
    assert "--kinds-share N 50 % of it (default 0.5)" in text
    assert "--kinds-mode {slow,fast} how (default slow)" in text
    assert "--kinds-stores URL where; @FILE reads it from a file" in text
    assert "channel" not in text


def test_a_secret_on_the_command_line_is_masked_and_warned_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["--kinds-key", "hunter2", "--kinds-stores", "http://reader:hunter3@h"]
    loaded = load_flags(*argv)
    assert loaded.settings.key == SecretStr("hunter2")
    err = capsys.readouterr().err
    assert "--kinds-key @FILE or the variable EVENKEEL_KINDS_KEY" in err
    assert "--kinds-stores @FILE or the variable EVENKEEL_KINDS_STORES" in err
    assert "hunter" not in err + loaded.describe()


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e400"])
def test_numbers_are_finite(number: str) -> None:
    with pytest.raises(ConfigurationError, match=r"kinds\.share from flag: .* finite number"):
        load_flags(f"--kinds-share={number}")
    with pytest.raises(ConfigurationError, match=r"kinds\.share from environment"):
        load(Kinds, {}, {"EVENKEEL_KINDS_SHARE": number})


@pytest.mark.parametrize("source", ["flag", "environment", "evenkeel.toml"])
def test_every_source_may_name_the_file_of_a_secret(
    tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key").write_text("hunter2\n")
    named = f"@{tmp_path / 'key'}"
    write(tmp_path, f"[kinds]\nkey = '{named}'\n" if source == "evenkeel.toml" else "")
    environment = {"EVENKEEL_KINDS_KEY": named} if source == "environment" else {}
    loaded = load(Kinds, {"key": named if source == "flag" else None}, environment, tmp_path)
    assert loaded.settings.key == SecretStr("hunter2")
    assert loaded.sources["key"] == source
    assert "hunter2" not in loaded.describe()
    assert capsys.readouterr().err == ""


def test_each_address_of_a_list_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("http://reader:hunter2@a\n")
    environment = {"EVENKEEL_KINDS_STORES": f"@{tmp_path / 'store'},http://b"}
    loaded = load(Kinds, {}, environment, tmp_path)
    shown = [address.get_secret_value() for address in loaded.settings.stores]
    assert shown == ["http://reader:hunter2@a", "http://b"]
    assert "hunter2" not in loaded.describe()


def test_a_secret_of_the_wrong_type_is_refused_without_showing_it(tmp_path: Path) -> None:
    write(tmp_path, "[kinds]\nkey = 1234567\n")
    with pytest.raises(ConfigurationError, match=r"kinds.key from evenkeel.toml") as refused:
        load(Kinds, {}, {}, tmp_path)
    assert "1234567" not in str(refused.value)


def test_a_secret_whose_file_is_missing_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"kinds.key from environment: .*No such file"):
        load(Kinds, {}, {"EVENKEEL_KINDS_KEY": f"@{tmp_path / 'key'}"}, tmp_path)


def test_a_process_reads_from_its_environment_what_was_written_there() -> None:
    settings = Kinds(
        is_on=False,
        mode=Mode.FAST,
        names=("a", "b"),
        key=SecretStr("hunter2"),
        stores=(SecretAddress("http://reader:hunter2@a"),),
        channel="ipc://x",
    )
    assert load(Kinds, {}, write_environment(settings)).settings == settings


def test_other_parts_sections_are_known(tmp_path: Path) -> None:
    write(tmp_path, "".join(f"[{section}]\n" for section in SECTIONS))
    assert load(Example, {}, {}, tmp_path).sources["port"] == "default"
    assert sorted(reference.settings_classes()) == sorted(SECTIONS)
