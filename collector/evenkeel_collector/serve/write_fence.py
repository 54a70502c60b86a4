"""Confines the collector's writes to its own folders, whatever a query does.

The rules of the query port (`query/guard.py`) already refuse queries that use files. If they miss
one, the kernel still refuses the write (docs/decisions/0194).
"""

from __future__ import annotations

import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from evenkeel.errors import ConfigurationError
from evenkeel.landlock import confine_writes, find_gap, why_unavailable
from evenkeel.private_files import FOLDER_MODE
from evenkeel.settings import hand_down
from evenkeel_collector.serve.settings import CollectorSettings
from evenkeel_collector.store.data_folder import TEMPORARY

logger = logging.getLogger(__name__)

# Programs open it for writing to discard output.
_FILES = (Path("/dev/null"),)
_THREADS = Path("/proc/self/task")


@dataclass(frozen=True, slots=True)
class Confinement:
    """Where a process may write.

    Attributes:
        folders: The process may write only below these, unless `reason` is set.
        reason: Why the process is not confined; None if it is.
        num_free: Threads that were already running and are not confined.
    """

    folders: tuple[Path, ...]
    reason: str | None
    num_free: int

    def log(self) -> None:
        """Log whether and where writes are confined."""
        if self.reason is not None:
            text = "writes are not confined to the collector's folders: %s"
            logger.warning(text, self.reason)
            return
        if self.num_free:
            logger.warning(
                "writes are not confined in %d threads that were already running", self.num_free
            )
        logger.info("writes are confined to %s%s", ", ".join(map(str, self.folders)), find_gap())


def writable_folders(settings: CollectorSettings) -> dict[str, Path]:
    """Return the folders that a collector with these settings writes to, by flag."""
    folders = {"--data-dir": settings.data_dir}
    if settings.prompts_dir is not None:
        folders["--prompts-dir"] = settings.prompts_dir
    return {flag: folder.resolve() for flag, folder in folders.items()}


def confine(settings: CollectorSettings) -> Confinement:
    """Confine writes of this process, its threads and children to the folders of `settings`.

    Call this before the first thread starts.

    Raises:
        ConfigurationError: If one of the folders cannot be created.
    """
    folders = writable_folders(settings)
    for flag, folder in folders.items():
        try:
            folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write to {folder} ({flag}): {error.strerror or error}"
            ) from error
    # Temporary files cannot be created elsewhere, by Python, SQLite or a child process.
    data_dir = folders["--data-dir"]
    hand_down("TMPDIR", str(data_dir / TEMPORARY))
    # Inserts pass such a file to the engine, which would treat a name with `*` or `{` as a pattern.
    # So the folder is referred to by its descriptor, which stays open.
    data_dir_fd = os.open(data_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    tempfile.tempdir = f"/proc/self/fd/{data_dir_fd}/{TEMPORARY}"
    reason = why_unavailable()
    if reason is None:
        try:
            confine_writes(folders.values(), _FILES)
        except OSError as error:
            reason = f"Landlock refuses ({error.strerror})"
    num_free = len(os.listdir(_THREADS)) - 1 if reason is None else 0
    return Confinement(tuple(folders.values()), reason, num_free)
