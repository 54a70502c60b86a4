"""The collector's folder: its layout, its identity, and the lock against other processes."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from evenkeel.errors import ConfigurationError
from evenkeel.private_files import FILE_MODE, FOLDER_MODE, make_private_folder
from evenkeel.settings import COLLECTOR_MARKER
from evenkeel_collector.log.synced_files import write_synced

logger = logging.getLogger(__name__)

ID_FILE = COLLECTOR_MARKER
LOCK_FILE = "collector.lock"
_NODE = re.compile(r"\w{1,64}")
# The folder for temporary files; leftovers of a killed process are removed at the next start.
TEMPORARY = "tmp"


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A folder that this process has locked until it ends.

    Attributes:
        path: The folder.
        node: This collector's name in segment names; stable across restarts.
        lock_fd: The open lock file; closing it releases the lock.
    """

    path: Path
    node: str
    lock_fd: int

    @property
    def store(self) -> Path:
        """The folder of the embedded store."""
        return self.path / "store"

    @property
    def log(self) -> Path:
        """The folder of the write-ahead log."""
        return self.path / "log"

    def release(self) -> None:
        """Release the folder for another collector."""
        os.close(self.lock_fd)


def hold(path: Path) -> DataFolder:
    """Create the folder if needed, and lock it.

    Raises:
        ConfigurationError: If it cannot be written, or another collector has it.
    """
    try:
        make_private_folder(path, ID_FILE)
        fd = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
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
        shutil.rmtree(path / TEMPORARY, ignore_errors=True)
        (path / TEMPORARY).mkdir(FOLDER_MODE)
        return DataFolder(path, _read_node(path / ID_FILE), fd)
    except OSError as error:
        os.close(fd)
        raise ConfigurationError(
            f"cannot write to {path} (--data-dir): {error.strerror}"
        ) from error


def _read_node(path: Path) -> str:
    if path.exists():
        node = path.read_text(encoding="ascii", errors="replace").strip()
        if _NODE.fullmatch(node):
            return node
        logger.error("node name file is damaged, generating a new name file=%s", path)
    node = uuid.uuid4().hex[:12]
    write_synced(path, f"{node}\n".encode())
    return node
