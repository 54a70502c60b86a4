"""`evenkeel dashboard`: settings, a taken port, and what Streamlit is told."""

import socket
from pathlib import Path

import pytest
from pydantic import SecretStr

from evenkeel.cli import _run
from evenkeel.errors import ConfigurationError
from evenkeel.secret_text import SecretAddress
from evenkeel.settings import load
from evenkeel_dashboard.frame.command import DASHBOARD
from evenkeel_dashboard.frame.configuration import DashboardSettings, SignIn
from evenkeel_dashboard.frame.server import (
    HTTP_APP,
    arguments,
    child_environment,
    refuse_taken_port,
)


def test_print_config_names_values_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run([DASHBOARD], ["dashboard", "--port", "8600", "--print-config"]) == 0
    out = capsys.readouterr().out
    assert "port = 8600  # flag" in out
    assert "query_url = http://127.0.0.1:8123  # default" in out


def test_a_taken_port_is_refused_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigurationError, match="choose another with --port"):
            refuse_taken_port("127.0.0.1", taken.getsockname()[1])


def test_the_app_reads_the_settings_that_it_was_started_with() -> None:
    settings = DashboardSettings(port=8600, query_url=SecretAddress("http://store:8123"))
    assert load(DashboardSettings, {}, child_environment(settings)).settings == settings


def test_a_password_in_the_address_is_never_shown(capsys: pytest.CaptureFixture[str]) -> None:
    url = "https://reader:s3cret@store:8443"
    assert DashboardSettings(query_url=SecretAddress(url)).shown_url == "https://store:8443"
    assert _run([DASHBOARD], ["dashboard", "--query-url", url, "--print-config"]) == 0
    assert "s3cret" not in capsys.readouterr().out
    assert DashboardSettings().shown_url == "http://127.0.0.1:8123"


def test_streamlit_is_told_to_stay_local_and_silent() -> None:
    flags = arguments(DashboardSettings())
    assert str(HTTP_APP) in flags
    assert "--server.address=127.0.0.1" in flags
    assert "--browser.gatherUsageStats=false" in flags
    assert "--server.headless=true" in flags
    assert any(flag.startswith("--theme.dark.backgroundColor=") for flag in flags)


def test_an_address_that_is_none_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigurationError, match="the store's address is 'junk'"):
        _run([DASHBOARD], ["dashboard", "--query-url", "junk"])


def test_a_token_in_the_collectors_address_is_refused_before_a_page_shows_it() -> None:
    with pytest.raises(ConfigurationError, match="'http://c:4318' with a user") as refused:
        _run([DASHBOARD], ["dashboard", "--collector-url", "http://any:s3cret@c:4318"])
    assert "s3cret" not in str(refused.value)


def test_every_setting_reaches_the_app(tmp_path: Path) -> None:
    settings = DashboardSettings(
        collector_url="http://c:1", slos=tmp_path / "slos.yaml", sign_in=SignIn.TOKEN,
        token=SecretStr("s3cret"), users=tmp_path / "users.toml",
    )  # fmt: skip
    read = load(DashboardSettings, {}, child_environment(settings)).settings
    assert read == settings
    assert "s3cret" not in str(read)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        pytest.param(["--slos", "nowhere.yaml"], "nowhere.yaml", id="an SLO file that is missing"),
        pytest.param(["--sign-in", "oidc"], "--users", id="a provider without users"),
        pytest.param(
            ["--collector-url", "junk"],
            "the collector's address is 'junk'.*4318",
            id="a collector nowhere",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(flags: list[str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        _run([DASHBOARD], ["dashboard", *flags])


def test_the_providers_secrets_are_handed_to_streamlit(tmp_path: Path) -> None:
    flags = arguments(DashboardSettings(oidc_secrets=tmp_path / "s.toml"))
    assert f"--secrets.files={tmp_path / 's.toml'}" in flags
