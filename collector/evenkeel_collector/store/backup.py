"""Backs up a collector's folder to one file and restores it: store, log, alert state, identity."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from evenkeel.errors import ConfigurationError, first_line
from evenkeel.private_files import tighten
from evenkeel_collector.store.data_folder import ID_FILE, LOCK_FILE, hold

MANIFEST = "evenkeel-backup.json"
FORMAT = 1
# Where a backup is unpacked within a folder that exists, until it has been checked.
_DRAFT = "evenkeel-restoring"
# The file system's own, at the top of a volume; only its owner can read it.
_LOST = "lost+found"


@dataclass(frozen=True, slots=True)
class Copied:
    """What a backup or restore copied."""

    files: int
    bytes: int


def back_up(data_dir: Path, target: Path) -> Copied:
    """Back up the folder to `target`, which is complete and on disk when this returns.

    Raises:
        ConfigurationError: If there is no such folder, a collector runs on it, or the target
            exists, is inside it or cannot be written.
    """
    if not (data_dir / ID_FILE).exists():
        raise ConfigurationError(f"{data_dir} (--data-dir) is not a collector's folder")
    if target.exists():
        raise ConfigurationError(f"{target} exists; choose another name")
    if target.resolve().is_relative_to(data_dir.resolve()):
        # It would contain itself, and every later backup would contain it.
        raise ConfigurationError(f"{target} is inside {data_dir} (--data-dir); write it elsewhere")
    draft = target.with_name(target.name + ".draft")
    folder = hold(data_dir)
    try:
        checksums: dict[str, str] = {}
        size = 0
        with draft.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                for path in _files(data_dir):
                    name = path.relative_to(data_dir).as_posix()
                    checksums[name] = _add(tar, path, name)
                    size += path.stat().st_size
                for path in _paths(data_dir):
                    if path.is_dir() and not any(path.iterdir()):
                        tar.add(path, path.relative_to(data_dir).as_posix(), recursive=False)
                manifest = json.dumps({"format": FORMAT, "sha256": checksums}).encode()
                info = tarfile.TarInfo(MANIFEST)
                info.size = len(manifest)
                tar.addfile(info, io.BytesIO(manifest))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(target)
    except OSError as error:
        reason = first_line(error, folder=target)
        raise ConfigurationError(f"cannot write {target}: {reason}") from error
    finally:
        draft.unlink(missing_ok=True)
        folder.release()
    return Copied(len(checksums), size)


def restore(source: Path, data_dir: Path) -> Copied:
    """Restore a backup to a folder, after checking every file in it.

    An empty folder is filled, not replaced: it may be a volume, whose parent cannot be written.

    Raises:
        ConfigurationError: If the backup is incomplete, or `data_dir` is a file or not empty.
    """
    is_there = data_dir.exists()
    if is_there and not data_dir.is_dir():
        raise ConfigurationError(f"{data_dir} (--data-dir) is not a folder; restore into a new one")
    if is_there and any(path.name not in (_DRAFT, _LOST) for path in data_dir.iterdir()):
        raise ConfigurationError(f"{data_dir} (--data-dir) is not empty; restore into a new one")
    draft = data_dir / _DRAFT if is_there else data_dir.with_name(data_dir.name + ".restoring")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        with tarfile.open(source, "r:") as tar:
            tar.extractall(draft, filter="data")
        # The backup may come from a version that left files readable to others.
        tighten(draft)
        copied = _check(draft, source)
        if is_there:
            # The folder's identity last: without it, no command takes it for a collector's.
            for path in sorted(draft.iterdir(), key=lambda path: path.name == ID_FILE):
                path.rename(data_dir / path.name)
        else:
            draft.rename(data_dir)
    except (OSError, tarfile.TarError) as error:
        reason = first_line(error, folder=source)
        raise ConfigurationError(f"{source} cannot be restored: {reason}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return copied


def _check(folder: Path, source: Path) -> Copied:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        expected: dict[str, str] = manifest["sha256"]
        if manifest["format"] != FORMAT:
            raise ConfigurationError(f"{source} was made by a newer evenkeel; upgrade")
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{source} is not a complete backup: no {MANIFEST}") from error
    (folder / MANIFEST).unlink()
    found = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    if set(found) != set(expected):
        raise ConfigurationError(f"{source} is not a complete backup: missing or extra files")
    size = 0
    for name, path in found.items():
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected[name]:
                raise ConfigurationError(f"{source} is damaged: {name} has changed")
        size += path.stat().st_size
    return Copied(len(found), size)


def _paths(folder: Path) -> list[Path]:
    lost = folder / _LOST
    return sorted(path for path in folder.rglob("*") if lost not in (path, *path.parents))


def _files(folder: Path) -> Iterator[Path]:
    # Symbolic links are the store's readable aliases; their targets are in the folder.
    for path in _paths(folder):
        if path.is_file() and not path.is_symlink() and path.name != LOCK_FILE:
            yield path


class _Hashing(io.RawIOBase):
    """Hashes a file while reading it, so that the checksum is of the bytes in the backup."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def _add(tar: tarfile.TarFile, path: Path, name: str) -> str:
    with path.open("rb") as file:
        reading = _Hashing(file)
        tar.addfile(tar.gettarinfo(str(path), name), reading)
        return reading.digest.hexdigest()
