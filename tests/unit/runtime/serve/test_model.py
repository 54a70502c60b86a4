"""What the word MODEL may be."""

import os
from http.server import HTTPServer
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_runtime.serve.model import find_model
from tests.fixtures.http_stub import QuietHandler, serving
from tests.fixtures.python_process import run_python


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


class Hub(QuietHandler):
    """A hub that shows a model to nobody without a token: it answers as if there were none."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()


def test_a_name_that_the_hub_does_not_show_may_need_a_token(tmp_path: Path) -> None:
    program = "from evenkeel_runtime.serve.model import find_model\nfind_model('acme/secret-7b')"
    with serving(HTTPServer(("127.0.0.1", 0), Hub)) as url:
        hub = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path)}
        done = run_python(
            "-c", program, env={**os.environ, **hub, "HF_HUB_OFFLINE": "0", "no_proxy": "127.0.0.1"}
        )
    last = done.stderr.splitlines()[-1]
    assert "the Hugging Face hub has no such model, or shows it only with a token" in last
    assert "HF_TOKEN" in last
