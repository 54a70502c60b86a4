"""The collector's folder: its layout, its identity, and the lock that keeps others out."""

from __future__ import annotations

import fcntl
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from evenkeel.errors import ConfigurationError

ID_FILE = "collector-id"
LOCK_FILE = "collector.lock"


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A folder that this process holds until it ends.

    Attributes:
        path: The folder.
        node: This collector's name in segment names; stays the same over restarts.
        lock_fd: The open lock file; the lock goes with it.
    """

    path: Path
    node: str
    lock_fd: int

    @property
    def store(self) -> Path:
        """Where the embedded store lies."""
        return self.path / "store"

    @property
    def log(self) -> Path:
        """Where the write-ahead log lies."""
        return self.path / "log"

    def release(self) -> None:
        """Let another collector have the folder."""
        os.close(self.lock_fd)


def hold(path: Path) -> DataFolder:
    """Make the folder if needed, and lock it.

    Raises:
        ConfigurationError: If it cannot be written, or another collector has it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        fd = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write to {path} (--data-dir): {error.strerror or error}"
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise ConfigurationError(
            f"another collector is using {path}; stop it, or choose another --data-dir"
        ) from error
    try:
        return DataFolder(path, _read_node(path / ID_FILE), fd)
    except OSError as error:
        os.close(fd)
        raise ConfigurationError(
            f"cannot write to {path} (--data-dir): {error.strerror}"
        ) from error


def _read_node(path: Path) -> str:
    if not path.exists():
        path.write_text(uuid.uuid4().hex[:12] + "\n", encoding="ascii")
    return path.read_text(encoding="ascii").strip()
