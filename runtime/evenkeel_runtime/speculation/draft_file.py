"""Save past answers to one checksummed file and load them in the next run."""

from __future__ import annotations

import json
import logging
import os
import threading
import zlib
from pathlib import Path

from evenkeel.private_files import FILE_MODE, FOLDER_MODE
from evenkeel_runtime.speculation.draft_store import DraftStore

logger = logging.getLogger(__name__)

_MAGIC = b"EKDS1\n"


def save_store(store: DraftStore, path: Path) -> bool:
    """Write the store to `path`, readable by its owner only; return whether that succeeded.

    The file is replaced atomically. A failure logs one warning.
    """
    return _write(*store.export(), path)


def save_store_aside(store: DraftStore, path: Path) -> threading.Thread:
    """Copy the store, start a thread that writes the copy to `path`, and return the thread."""
    head, parts = store.export()
    copies = [memoryview(bytes(part)) for part in parts]
    writer = threading.Thread(target=_write, args=(head, copies, path), daemon=True)
    writer.start()
    return writer


def _write(head: dict[str, int], parts: list[memoryview], path: Path) -> bool:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    line = json.dumps(head | {"crc": crc}).encode() + b"\n"
    new = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_MAGIC)
            file.write(line)
            for part in parts:
                file.write(part)
        new.replace(path)
    except OSError as error:
        logger.warning("cannot save past answers: %s: %s", path, error.strerror)
        return False
    return True


def load_store(path: Path, max_bytes: int, vocabulary: int) -> DraftStore | None:
    """Return the store saved in `path`; None if it is missing or unusable.

    A file that is damaged, of another size or from another model logs one warning; a missing file
    logs nothing.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning(
            "cannot read past answers, starting with an empty store: %s: %s", path, error
        )
        return None
    try:
        return _decode(data, max_bytes, vocabulary)
    except (ValueError, KeyError, TypeError) as error:
        logger.warning(
            "cannot read past answers, starting with an empty store: %s: %s", path, error
        )
        return None


def _decode(data: bytes, max_bytes: int, vocabulary: int) -> DraftStore:
    if not data.startswith(_MAGIC):
        raise ValueError("not a past-answers file")
    end = data.index(b"\n", len(_MAGIC))
    head = json.loads(data[len(_MAGIC) : end])
    body = memoryview(data)[end + 1 :]
    if zlib.crc32(body) != head["crc"]:
        raise ValueError("the file is damaged (checksum mismatch)")
    store = DraftStore(max_bytes, seed=int(head["seed"]))
    store.restore(head, body, vocabulary)
    return store
