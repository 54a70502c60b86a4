"""Sides read from TOML."""

from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_evals.ask.sides import base_url, load_side
from evenkeel_evals.dataset.dataset import Item, Message
from evenkeel_evals.scorers.base import make_scorer

FULL = """
name = "full"
model = "support"
[prompt]
name = "support"
version = 2
system = "Be brief."
[sampling]
temperature = 0
max_tokens = 64
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "side.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_whole_side(tmp_path: Path) -> None:
    side = load_side(write(tmp_path, FULL), "http://127.0.0.1:8000/v1/")
    assert (side.name, side.model, side.url) == ("full", "support", "http://127.0.0.1:8000")
    assert side.prompt_label == "support@2"
    assert dict(side.sampling) == {"temperature": 0.0, "max_tokens": 64}


def test_a_file_without_keys_is_a_side_with_defaults(tmp_path: Path) -> None:
    side = load_side(write(tmp_path, "# All by default.\n"), "http://h")
    assert (side.name, side.model, side.system, side.prompt_label) == (
        "side",
        None,
        None,
        "default@0",
    )


def test_its_own_url_wins(tmp_path: Path) -> None:
    assert load_side(write(tmp_path, 'url = "http://other:1"'), "http://h").url == "http://other:1"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("nme = 'x'", "nme is not a known key"),
        ("[sampling]\ntemprature = 1", "sampling.temprature is not a known key"),
        ("[sampling]\nmax_tokens = 0", "sampling.max_tokens"),
        ("url = 'ftp://x'", "url"),
        ("name = ", "is not TOML"),
    ],
)
def test_a_wrong_key_or_value_is_named(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        load_side(write(tmp_path, text), "http://h")


def test_a_missing_file_and_a_bad_url_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_side(tmp_path / "none.toml", "http://h")
    with pytest.raises(ConfigurationError, match="url is '127"):
        base_url("127.0.0.1:8000")
    with pytest.raises(ConfigurationError, match="url is 'http://h:port', expected one such as"):
        load_side(write(tmp_path, "url = 'http://h:port'"), "http://h")
    with pytest.raises(ConfigurationError, match="url: ") as raised:
        load_side(write(tmp_path, "url = 'u:s3cret@h'"), "http://h")
    assert "s3cret" not in str(raised.value)


def test_the_sides_system_message_stands_in_place_of_the_items_own(tmp_path: Path) -> None:
    messages = (Message("system", "old"), Message("user", "q"))
    item = Item("i", messages, "x", make_scorer("exact", "x"), (), "i")
    side = load_side(write(tmp_path, FULL), "http://h")
    assert side.messages_for(item) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "q"},
    ]
    plain = load_side(write(tmp_path, "# All by default.\n"), "http://h")
    assert plain.messages_for(item)[0] == {"role": "system", "content": "old"}


def test_the_hash_changes_with_what_changes_answers(tmp_path: Path) -> None:
    one = load_side(write(tmp_path, FULL), "http://h").content_hash
    other = load_side(write(tmp_path, FULL.replace("brief", "long")), "http://h").content_hash
    assert one != other
    assert one == load_side(write(tmp_path, FULL), "http://h").content_hash


def test_a_side_that_the_run_serves_itself(tmp_path: Path) -> None:
    text = '[serve]\nmodel = "demo"\nflags = ["--speculate", "none"]\n'
    side = load_side(write(tmp_path, text), "http://h")
    assert side.serve is not None
    assert (side.url, side.serve.arguments) == ("", ("demo", "--speculate", "none"))
    other = load_side(write(tmp_path, '[serve]\nmodel = "demo"\n'), "http://h")
    assert side.content_hash != other.content_hash


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('url = "http://h"\n[serve]\nmodel = "demo"\n', "cannot be combined"),
        ('[serve]\nmodel = "demo"\nflags = ["--port", "8000"]\n', "--port"),
        ('[serve]\nmodel = "demo"\nflags = ["--host=0.0.0.0"]\n', "--host"),
        ("[serve]\nflags = []\n", "serve.model"),
    ],
)
def test_a_server_of_its_own_has_limits(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load_side(write(tmp_path, text), "http://h")
