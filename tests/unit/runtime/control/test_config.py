"""The control file: what it may say, and the line that names what is wrong."""

from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_runtime.control.config import (
    ControlConfig,
    ControlMode,
    read_control_file,
)
from tests.fixtures.control_files import control_of


def test_an_empty_file_has_the_usual_classes() -> None:
    config = control_of("")
    assert config == ControlConfig()
    assert config.default_class == "chat"
    assert config.mode is ControlMode.ACT


def test_a_class_has_its_own_limits() -> None:
    text = """
        default_class = "slow"
        [classes.slow]
        ttft_s = 10
        [classes.fast]
        ttft_s = 0.5
        queue_deadline_s = 1
    """
    config = control_of(text)
    assert config.classes["fast"].longest_wait_s == 1
    assert config.classes["slow"].longest_wait_s == 100


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param("", "chat", id="no classes of one's own"),
        pytest.param("[classes.chat]\nttft_s = 1\n[classes.a]\nttft_s = 0.1", "chat", id="chat"),
        pytest.param("[classes.slow]\nttft_s = 9\n[classes.fast]\nttft_s = 1", "fast", id="none"),
        pytest.param("default_class = 'b'\n[classes.b]\nttft_s = 1", "b", id="named"),
    ],
)
def test_requests_without_a_class_have_one_that_is_there(text: str, name: str) -> None:
    assert control_of(text).default_class == name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mode = 'on'", "1 (--control-file): mode: Input should be 'act', 'dry-run' or 'off'"),
        ("[classes.chat]\nttft_s = 0", "2 (--control-file): classes.chat.ttft_s"),
        ("[classes.chat]\nttft_s = 1\ntarget = 1.0", "classes.chat.target"),
        ("[classes.chat]\nttft = 1", "classes.chat.ttft_s is missing"),
        ("[classes.chat]\nttft_s = 1\nttft = 1", "classes.chat.ttft is not a known key"),
        ("[classes.chat]\nttft_s = '1'", "classes.chat.ttft_s"),
        ("max_active = true", "max_active"),
        ("colour = 'blue'", "colour is not a known key"),
        ("default_class = 'x'", "known: code, interactive, chat, batch"),
        (
            "default_class = 'chat'\n[classes.fast]\nttft_s = 1",
            "'chat' is not a class; known: fast",
        ),
        ("[classes]", "classes: expected at least one class"),
        ("[tenant]\nactive = 0", "tenant.active"),
        ("[tenants.acme]\nrequests = 1", "tenants.acme.requests is not a known key"),
        ("[tenants.a]\nactive = 1\n[tenants.b]\nactive = 0", "tenants.b.active"),
        ("[routes.agent]\nkv_share = 2", "routes.agent.kv_share"),
        ("[routes]\nagent = 2", "routes.agent"),
        ("[classes.chat]\nttft_s = inf", "classes.chat.ttft_s"),
        ("[classes.chat]\nttft_s = nan", "classes.chat.ttft_s"),
        ("[classes.chat]\nttft_s = 1\nqueue_deadline_s = inf", "queue_deadline_s"),
        ("[classes.chat]\nttft_s = 1e300", "classes.chat.ttft_s"),
        ("[tenant]\nrequests_per_minute = inf", "tenant.requests_per_minute"),
        ("window_s = 1e400", "window_s"),
        # Numbers that vLLM's messages or Retry-After cannot hold would fail each request.
        (f"max_active = 1{400 * '0'}", "max_active"),
        (f"long_prompt_tokens = 1{400 * '0'}", "long_prompt_tokens"),
        ("[tenant]\ndraft_tokens = 99999999999999999999", "tenant.draft_tokens"),
        ("[routes.agent]\ncontext_tokens = 99999999999999999999", "routes.agent.context_tokens"),
        ("[tenants.a]\nrequests_per_minute = 1e-320", "tenants.a.requests_per_minute"),
        ("window_s = 1e-320", "window_s"),
        ("escalate_burn = inf", "escalate_burn"),
        ("mode = ", "is not TOML: Invalid value"),
        # Python reads no number of so many digits, in a reload either.
        (f"max_active = {5000 * '9'}", "has a number of thousands of digits"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "control.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_control_file(path)
    assert words in str(caught.value)
    assert "control.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "control.toml"
    path.write_text('mode = "off"', encoding="utf-8-sig")
    assert read_control_file(path).mode is ControlMode.OFF


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml .* cannot be read: No such"):
        read_control_file(tmp_path / "none.toml")
