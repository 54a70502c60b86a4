"""Embeddings are computed once, cached privately and with a limit, and never cause a failure."""

import sqlite3
import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from evenkeel.embedding import DIMENSIONS, Vectors
from evenkeel_evals.production.embedding_cache import FILE_NAME, EmbeddingCache

MODEL, OTHER = "aa" * 32, "bb" * 32


def one_hot(texts: Sequence[str]) -> Vectors:
    """Return a unit vector per text, depending only on the text's length."""
    return np.eye(DIMENSIONS, dtype=np.float32)[[len(text) for text in texts]]


def kept(folder: Path, model: str = MODEL, max_kept: int = 100) -> EmbeddingCache:
    return EmbeddingCache(folder, model, one_hot, max_kept)


def test_a_text_is_computed_once_by_all_commands(tmp_path: Path) -> None:
    first = kept(tmp_path)
    rows = first.encode_all(["a", "bb", "a"])
    assert (first.num_computed, rows.shape) == (2, (3, DIMENSIONS))
    second = kept(tmp_path)
    assert np.array_equal(second.encode_all(["bb", "ccc", "a"]), one_hot(["bb", "ccc", "a"]))
    assert second.num_computed == 1
    assert kept(tmp_path).encode_all([]).shape == (0, DIMENSIONS)


def test_another_model_has_embeddings_of_its_own(tmp_path: Path) -> None:
    kept(tmp_path).encode_all(["a"])
    other = kept(tmp_path, OTHER)
    other.encode_all(["a"])
    assert other.num_computed == 1


def test_only_the_owner_can_read_it_and_no_text_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    (folder / FILE_NAME).touch(mode=0o644)
    kept(folder).encode_all(["where is my parcel"])
    assert stat.S_IMODE((folder / FILE_NAME).stat().st_mode) == 0o600
    assert b"parcel" not in (folder / FILE_NAME).read_bytes()
    kept(tmp_path / "new").encode_all(["a"])
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_beyond_the_bound_the_longest_unused_go(tmp_path: Path) -> None:
    kept(tmp_path, max_kept=2).encode_all(["a", "bb"])
    kept(tmp_path, max_kept=2).encode_all(["a"])
    kept(tmp_path, max_kept=2).encode_all(["ccc"])
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        assert connection.execute("SELECT count(*) FROM embeddings").fetchone() == (2,)
    again = kept(tmp_path, max_kept=2)
    again.encode_all(["a", "ccc"])
    assert again.num_computed == 0


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"no database at all " * 100, id="no database"),
        pytest.param(b"", id="empty"),
    ],
)
def test_a_damaged_file_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert np.array_equal(kept(tmp_path).encode_all(["a"]), one_hot(["a"]))
    kept(tmp_path).encode_all(["a"])
    again = kept(tmp_path)
    again.encode_all(["a"])
    assert again.num_computed == 0


@pytest.mark.parametrize(
    "vector",
    [
        pytest.param(b"short", id="too short"),
        pytest.param(bytes(4 * DIMENSIONS), id="of length 0"),
        pytest.param(np.full(DIMENSIONS, np.nan, "<f4").tobytes(), id="not a number"),
    ],
)
def test_what_is_no_embedding_is_computed_again(tmp_path: Path, vector: bytes) -> None:
    kept(tmp_path).encode_all(["a"])
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("UPDATE embeddings SET vector = ?", (vector,))
    assert np.array_equal(kept(tmp_path).encode_all(["a"]), one_hot(["a"]))


def test_a_folder_that_cannot_be_used_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere = kept(tmp_path / "file")
    assert np.array_equal(nowhere.encode_all(["a"]), one_hot(["a"]))
    outside = tmp_path / "outside"
    outside.write_text("not ours")
    (tmp_path / FILE_NAME).symlink_to(outside)
    kept(tmp_path).encode_all(["a"])
    assert outside.read_text() == "not ours"


def test_a_file_that_another_command_holds_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenkeel_evals.production.embedding_cache.WAIT_S", 0.01)
    kept(tmp_path).encode_all(["a"])
    holder = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert np.array_equal(kept(tmp_path).encode_all(["a", "bb"]), one_hot(["a", "bb"]))
    holder.execute("COMMIT")
    assert holder.execute("SELECT count(*) FROM embeddings").fetchone() == (1,)
    holder.close()
