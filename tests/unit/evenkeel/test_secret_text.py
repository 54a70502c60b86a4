"""Secrets: read from files, shown nowhere, missed on no command line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evenkeel.cli import build_parser, find_commands, main
from evenkeel.doctor.scrape_report import fetch_page
from evenkeel.errors import ConfigurationError, StoreError
from evenkeel.otlp_target import read_target
from evenkeel.secret_text import (
    SecretAddress,
    address_argument,
    hide_password,
    read_secret,
    write_secret,
)
from evenkeel.store import Store
from evenkeel_collector.intake.scraper import read_targets
from evenkeel_evals.ask.sides import base_url
from evenkeel_runtime.serve.server import read_api_keys


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        pytest.param(b"s3cret", "s3cret", id="without an end of line"),
        pytest.param(b"s3cret\r\n", "s3cret", id="as an editor ends it"),
        pytest.param(b"@other\n", "@other", id="what a file holds is not looked up again"),
    ],
)
def test_a_secret_is_read_from_a_file(tmp_path: Path, content: bytes, secret: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    assert read_secret(f"@{path}") == secret


def test_a_secret_that_is_none_of_a_file_stays_as_it_is() -> None:
    assert read_secret("s3cret@host ") == "s3cret@host "


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "No such file", id="missing"),
        pytest.param(b" \n", "is empty", id="empty"),
        pytest.param(b"\xff\xfe", "not UTF-8", id="not text"),
        pytest.param(b"s3cret" * 20_000, "larger than 65536 bytes", id="too large"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message) as refused:
        read_secret(f"@{path}")
    assert "s3cret" not in str(refused.value)


def test_a_path_with_a_null_byte_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_secret("@\0")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        pytest.param("http://reader:s3cret@store:8123/db", "http://store:8123/db", id="usual"),
        pytest.param("http://reader:s3c@ret@store:8123", "http://store:8123", id="an at sign"),
        pytest.param("http://reader:s3c/ret@store:8123", "http://store:8123", id="a slash"),
        pytest.param("http://reader:s3c#?ret@store", "http://store", id="a hash and a mark"),
        pytest.param("http://store:8123", "http://store:8123", id="no password"),
        pytest.param("none", "none", id="no address"),
        pytest.param("reader:s3cret@store:8123", "store:8123", id="no scheme"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert hide_password(url) == shown
    assert str(SecretAddress(url)) == shown
    assert SecretAddress(url).get_secret_value() == url


@pytest.mark.parametrize(
    ("text", "is_warned"),
    [
        pytest.param("http://reader:s3cret@127.0.0.1:9", True, id="a password"),
        pytest.param("http://127.0.0.1:9", False, id="no password"),
    ],
)
def test_a_password_in_an_argument_is_warned_about(
    text: str, is_warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert address_argument(text) == text
    err = capsys.readouterr().err
    assert ("@FILE" in err) == is_warned
    assert "s3cret" not in err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("why x --url", "url"),
        ("why x --store-url", "store_url"),
        ("whatif --without a --from 2026-11-24 --store-url", "store_url"),
        ("slo burned --slos f --name n --store-url", "url"),
        ("cache flush --all --url", "url"),
        ("cache calibrate dataset --url", "url"),
        ("prompts list --url", "url"),
        ("simulate --otlp-endpoint", "endpoint"),
    ],
)
def test_every_commands_address_may_be_in_a_file(words: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "address"
    path.write_text("http://reader:s3cret@127.0.0.1:9\n")
    argv = [*words.split(), f"@{path}"]
    parser = build_parser(find_commands(argv[:1]), argv[:1])
    args, _ = parser.parse_known_args(argv)
    assert getattr(args, name) == "http://reader:s3cret@127.0.0.1:9"


@pytest.mark.parametrize("source", [[], ["--store-url", "http://127.0.0.1:9"]])
def test_a_key_that_no_server_gets_is_refused(
    source: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", "x", "--api-key", "s3cret", *source]) == 2
    assert capsys.readouterr().err == "evenkeel: --api-key needs --url: the store has no key\n"


def test_vllms_api_key_may_be_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "key"
    path.write_text("s3cret\n")
    flags = ["--api-key", f"@{path}"]
    assert read_api_keys([f"@{path}"], flags) == ["s3cret"]
    assert capsys.readouterr().err == ""


def test_vllms_api_key_on_the_command_line_is_warned_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert read_api_keys(["s3cret"], ["--api-key=s3cret"]) == ["s3cret"]
    err = capsys.readouterr().err
    assert "VLLM_API_KEY" in err
    assert "s3cret" not in err


def test_vllms_api_key_in_its_configuration_file_is_not_warned_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert read_api_keys(["s3cret"], ["--config", "vllm.yaml"]) == ["s3cret"]
    assert read_api_keys(None, []) is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("do", "error"),
    [
        pytest.param(lambda: Store("ftp://u:s3cret@h"), ConfigurationError, id="no store"),
        pytest.param(lambda: Store("http://u:s3cret@127.0.0.1:9"), StoreError, id="store gone"),
        pytest.param(
            lambda: read_targets(["ftp://u:s3cret@h"], "vllm"), ConfigurationError, id="scrape"
        ),
        pytest.param(
            lambda: read_targets(["http://u:x/s3cret@h"], "vllm"),
            ConfigurationError,
            id="scrape, a slash",
        ),
        pytest.param(
            lambda: fetch_page("http://u:x/s3cret@h"), ConfigurationError, id="doctor, a slash"
        ),
        pytest.param(
            lambda: read_target({}, "ftp://u:s3cret@h"), ConfigurationError, id="OTLP endpoint"
        ),
        pytest.param(lambda: base_url("u:s3cret@h:8000"), ConfigurationError, id="no scheme"),
        pytest.param(lambda: base_url("http://u:s3cret/x@h"), ConfigurationError, id="a slash"),
        pytest.param(lambda: read_target({}, "http://u:s3cret/x@h"), ConfigurationError, id="OTLP"),
        pytest.param(
            lambda: read_target({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http://u:s3cret@h"),
            ConfigurationError,
            id="gRPC",
        ),
    ],
)
def test_no_error_shows_a_secret(do: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        do()
    assert "s3cret" not in str(raised.value)


def test_a_scraped_address_with_a_password_shows_it_to_no_log() -> None:
    (target,) = read_targets(["http://reader:s3c%40ret@vllm:8000"], "vllm")
    assert target.url == "http://vllm:8000/metrics"
    assert target.login == ("reader", "s3c@ret")
    assert "s3c" not in repr(target)


@pytest.mark.parametrize("secret", ["plain", "@", "@tail", "@@twice", "a@b", ""])
def test_a_secret_that_is_written_is_read_as_it_was(secret: str) -> None:
    assert read_secret(write_secret(secret)) == secret
