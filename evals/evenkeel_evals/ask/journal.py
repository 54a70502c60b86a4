"""An append-only JSON Lines file that survives kill -9 and power loss.

Every line is `{"sum": …, "record": …}`; the sum is the first 16 hex digits of the SHA-256 of the
record's JSON, so half-written lines are detected. Only the end of the file can be torn, and it
is cut off; damage anywhere else is an error, never repaired by guessing.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from evenkeel.errors import CannotMeasureError, ConfigurationError, first_line
from evenkeel.private_files import FILE_MODE

FILE_NAME = "journal.jsonl"
# What a finished run leaves beside its journal, see `report.files`.
REPORT_NAMES = ("run.json", "manifest.json", "report.md", "report.html", "junit.xml")


class Journal:
    """A journal opened for reading and appending, by one process at a time.

    Args:
        path: The file; created if it does not exist.

    Attributes:
        path: The file.
        records: The records it held when it was opened.
        num_torn_bytes: Bytes cut off its end.

    Raises:
        ConfigurationError: If it cannot be opened, another process has it open, or a line before
            the last is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, FILE_MODE)
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
        try:
            _lock(self._fd, path)
            self.records, good = _read(path)
        except ConfigurationError:
            os.close(self._fd)
            raise
        # It contains answers; an earlier version created it world-readable.
        with suppress(PermissionError):
            os.fchmod(self._fd, FILE_MODE)
        self.num_torn_bytes = os.fstat(self._fd).st_size - good
        if self.num_torn_bytes:
            os.ftruncate(self._fd, good)
        self._written = self._synced = 0
        self._sync_lock = asyncio.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a record; once this returns, it survives the end of this process.

        Raises:
            CannotMeasureError: If it cannot be written.
        """
        line = encode(record)
        try:
            if os.write(self._fd, line) != len(line):
                raise CannotMeasureError(f"{self.path} cannot be written: the disk is full")
        except OSError as error:
            raise CannotMeasureError(f"{self.path} cannot be written: {error.strerror}") from error
        self._written += 1

    async def sync(self) -> None:
        """Wait until everything appended so far survives a power loss.

        Concurrent callers share one fdatasync. It runs in a thread, so that a slow disk does not
        distort the latencies being measured.
        """
        wanted = self._written
        async with self._sync_lock:
            if self._synced < wanted:
                covered = self._written
                await asyncio.to_thread(os.fdatasync, self._fd)
                self._synced = covered


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep other processes from opening a journal, damaged or not, during the block.

    Raises:
        ConfigurationError: If another process has it open.
    """
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    try:
        _lock(fd, path)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigurationError(f"{path} is in use by another run") from error


def encode(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f'{{"sum":"{_checksum(text)}","record":{text}}}\n'.encode()


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the intact records and their size in bytes."""
    records: list[dict[str, Any]] = []
    good = 0
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        record = _decode(line)
        if record is None:
            if number < len(lines):
                raise ConfigurationError(
                    f"{path}:{number} is damaged, and not only at its end; "
                    "give another --report folder, or --fresh"
                )
            break
        records.append(record)
        good += len(line)
    return records, good


def _decode(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, or None if it is torn."""
    try:
        parsed = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict) or not isinstance(parsed.get("record"), dict):
        return None
    record: dict[str, Any] = parsed["record"]
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return record if parsed.get("sum") == _checksum(text) else None


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def open_journal(folder: Path | None, *, is_fresh: bool) -> Journal | None:
    """Open the journal in a report folder, creating it if needed; None without a folder.

    Args:
        folder: The folder; checked before the run, so that an unwritable one fails early.
        is_fresh: Whether to move an existing journal and its reports aside, under new names.

    Raises:
        ConfigurationError: If the folder cannot be written or the journal cannot be read.
    """
    if folder is None:
        return None
    path = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if is_fresh and path.exists():
            with held(path):
                _set_aside(folder, path.stat().st_mtime_ns)
    except OSError as error:
        raise ConfigurationError(
            f"--report {folder} cannot be written: {first_line(error, folder=folder)}"
        ) from error
    return Journal(path)


def _set_aside(folder: Path, stamp: int) -> None:
    # The reports first: without a journal, the next try would leave them.
    for name in (*REPORT_NAMES, FILE_NAME):
        old = folder / name
        if old.exists():
            old.rename(old.with_stem(f"{old.stem}-{stamp}"))
