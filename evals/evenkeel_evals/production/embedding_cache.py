"""Caches embeddings across commands, so that each text is embedded only once."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from evenkeel.embedding import DIMENSIONS, Vectors
from evenkeel.private_files import FILE_MODE, FOLDER_MODE

FILE_NAME = "embeddings.db"
# 1.5 KiB each: 30 MiB.
MAX_KEPT = 20_000
WAIT_S = 2.0
# SQLite limits the number of parameters per statement.
ASKED_AT_ONCE = 500
BYTES_OF_ONE = DIMENSIONS * 4
_SCHEMA = """
CREATE TABLE IF NOT EXISTS embeddings (
    model BLOB NOT NULL, text BLOB NOT NULL, vector BLOB NOT NULL, used INTEGER NOT NULL,
    PRIMARY KEY (model, text)
) WITHOUT ROWID, STRICT
"""

EncodeAll = Callable[[Sequence[str]], Vectors]


class EmbeddingCache:
    """Embeds texts, calling the model only for those not embedded before.

    The cache file is readable only by its owner and holds hashes of texts, not texts. If it cannot
    be read or written, texts are just embedded again.

    Args:
        folder: The folder for the file; created if it does not exist.
        model: Content hash of the model, as from `evenkeel.embedding.hash_model`.
        encode_all: Returns embeddings, shape (texts, 384).
        max_kept: Maximum number of embeddings; beyond it, the least recently used are evicted.

    Attributes:
        num_computed: Texts that the model embedded.
    """

    def __init__(
        self, folder: Path, model: str, encode_all: EncodeAll, max_kept: int = MAX_KEPT
    ) -> None:
        self._path = folder / FILE_NAME
        self._model = bytes.fromhex(model)
        self._encode_all = encode_all
        self._max_kept = max_kept
        self.num_computed = 0

    def encode_all(self, texts: Sequence[str]) -> Vectors:
        """Return the embeddings of texts, shape (texts, 384); texts may repeat."""
        by_key = {_key(text): text for text in texts}
        found = self._read(list(by_key))
        missing = {key: text for key, text in by_key.items() if key not in found}
        if missing:
            self.num_computed += len(missing)
            computed = self._encode_all(list(missing.values()))
            found |= dict(zip(missing, computed, strict=True))
        self._keep({key: found[key] for key in missing}, list(by_key))
        rows = [found[_key(text)] for text in texts]
        return np.stack(rows) if rows else np.zeros((0, DIMENSIONS), dtype=np.float32)

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, Vectors]:
        found: dict[bytes, Vectors] = {}
        connection = self._open()
        if connection is None:
            return found
        try:
            for start in range(0, len(keys), ASKED_AT_ONCE):
                part = keys[start : start + ASKED_AT_ONCE]
                rows = connection.execute(
                    "SELECT text, vector FROM embeddings WHERE model = ? AND text IN "
                    f"({', '.join('?' * len(part))})",
                    (self._model, *part),
                )
                found |= {
                    key: np.frombuffer(vector, dtype="<f4")
                    for key, vector in rows
                    if len(vector) == BYTES_OF_ONE
                }
        except sqlite3.OperationalError:
            found = {}
        except sqlite3.Error:
            self._drop(connection)
            return {}
        connection.close()
        # An invalid vector would match nothing, or everything.
        return {k: v for k, v in found.items() if abs(float(v @ v) - 1.0) < 1e-3}

    def _keep(self, fresh: dict[bytes, Vectors], used: Sequence[bytes]) -> None:
        connection = self._open()
        if connection is None:
            return
        try:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                newest = connection.execute("SELECT max(used) FROM embeddings").fetchone()[0]
                now = (newest or 0) + 1
                connection.executemany(
                    "UPDATE embeddings SET used = ? WHERE model = ? AND text = ?",
                    [(now, self._model, key) for key in used if key not in fresh],
                )
                connection.executemany(
                    "INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?, ?)",
                    [
                        (self._model, key, np.asarray(vector, dtype="<f4").tobytes(), now)
                        for key, vector in fresh.items()
                    ],
                )
                connection.execute(
                    "DELETE FROM embeddings WHERE (model, text) IN (SELECT model, text FROM "
                    "embeddings ORDER BY used DESC, text LIMIT -1 OFFSET ?)",
                    (self._max_kept,),
                )
        except sqlite3.OperationalError:
            # The disk is full or another command holds the lock: leave the cache unchanged.
            pass
        except sqlite3.Error:
            self._drop(connection)
            return
        connection.close()

    def _open(self) -> sqlite3.Connection | None:
        try:
            self._path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            # SQLite gives its side files the same permissions; a link may point anywhere.
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
            try:
                os.fchmod(descriptor, FILE_MODE)
            finally:
                os.close(descriptor)
            connection = sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None)
        except (OSError, sqlite3.Error):
            return None
        try:
            connection.execute(_SCHEMA)
        except sqlite3.OperationalError:
            connection.close()
            return None
        except sqlite3.Error:
            self._drop(connection)
            return None
        return connection

    def _drop(self, connection: sqlite3.Connection) -> None:
        """Remove a damaged file; everything in it can be recomputed."""
        connection.close()
        with suppress(OSError):
            self._path.unlink()


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
