"""A cache is opened with the labels that its file names, or not at all."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from evenkeel.embedding import hash_model
from evenkeel.errors import ConfigurationError
from evenkeel_runtime.response_cache.hit_class import CLASSES_VERSION, KNOWN_WORDS
from evenkeel_runtime.response_cache.setup import open_cache

CACHE = 'labels = "labels.json"\n[[routes]]\nroute = "faq"\nmode = "serve"\n'


def labels(**collected: Any) -> str:
    made_with = {"embedder": hash_model(), "classes": CLASSES_VERSION, "model": None} | collected
    return json.dumps({"collected": made_with, "pairs": [[KNOWN_WORDS, 0.9, 0.4, False]] * 20})


async def open_with(folder: Path, text: str = CACHE) -> Path | None:
    (folder / "cache.toml").write_text(text)
    opened = open_cache(folder / "cache.toml", folder)
    await opened.cache.close()
    return opened.cache.controls.labels


async def test_labels_of_the_embedding_model_are_used(tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text(labels(model="weights known only later"))
    assert await open_with(tmp_path) == tmp_path / "labels.json"


@pytest.mark.parametrize("collected", [{"embedder": "other"}, {"classes": 0}])
async def test_labels_of_an_earlier_version_do_not_stop_an_upgrade(
    collected: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "labels.json").write_text(labels(**collected))
    assert await open_with(tmp_path) == tmp_path / "labels.json"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(labels()[:-20], "Input data was truncated", id="cut off"),
        pytest.param("", "Input data was truncated", id="empty"),
        pytest.param("# Read me", "JSON is malformed", id="no JSON"),
        pytest.param("{}", "missing required field `collected`", id="another shape"),
    ],
)
async def test_named_labels_that_cannot_be_used_stop_the_start(
    text: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "labels.json").write_text(text)
    with pytest.raises(ConfigurationError, match=reason) as raised:
        await open_with(tmp_path)
    assert "\n" not in str(raised.value)
    assert str(tmp_path / "labels.json") in str(raised.value)


async def test_named_labels_that_are_no_file_or_a_huge_one_stop_the_start(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    with pytest.raises(ConfigurationError, match="not a file"):
        await open_with(tmp_path)
    path.mkdir()
    with pytest.raises(ConfigurationError, match="not a file"):
        await open_with(tmp_path)
    path.rmdir()
    path.touch()
    os.truncate(path, 200_000_000)
    with pytest.raises(ConfigurationError, match="larger than"):
        await open_with(tmp_path)


async def test_without_a_name_the_folders_labels_are_no_condition(tmp_path: Path) -> None:
    (tmp_path / "cache-labels.json").write_text("damaged")
    assert await open_with(tmp_path, CACHE.partition("\n")[2]) is None


@pytest.mark.parametrize(
    ("key", "address"),
    [
        pytest.param("redis_url", "localhost:6379", id="no scheme"),
        pytest.param("redis_url", "redis://:s3cret/x@host:6379", id="a password with a slash"),
        pytest.param("redis_url", "redis://host:99999", id="no port"),
        pytest.param("redis_url", "unix:///run/redis?db=cache", id="no number of a database"),
        pytest.param("redis_url", "redis://:s3cret@host/cache", id="a name of a database"),
        pytest.param("qdrant_url", "localhost:99999", id="no port of Qdrant"),
        pytest.param("qdrant_url", "ftp://ann:s3cret@host", id="no scheme of Qdrant"),
    ],
)
def test_an_address_that_is_none_stops_the_start(key: str, address: str, tmp_path: Path) -> None:
    text = f'backend = "{key.partition("_")[0]}"\n{key} = "{address}"\n'
    (tmp_path / "cache.toml").write_text(text + "[[routes]]\nsemantic = false\n")
    with pytest.raises(ConfigurationError, match=f"{key} is not an address") as raised:
        open_cache(tmp_path / "cache.toml", tmp_path)
    assert "\n" not in str(raised.value) and "s3cret" not in str(raised.value)


@pytest.mark.parametrize("option", ["tiemout=1", "protocol=4"])
def test_an_option_that_redis_has_not_stops_the_start(option: str, tmp_path: Path) -> None:
    text = f'backend = "redis"\nredis_url = "redis://:s3cret@host/0?{option}"\n'
    (tmp_path / "cache.toml").write_text(text + "[[routes]]\nsemantic = false\n")
    with pytest.raises(ConfigurationError, match=r"redis_url has an option \(after \?\)") as raised:
        open_cache(tmp_path / "cache.toml", tmp_path)
    assert "s3cret" not in str(raised.value)
