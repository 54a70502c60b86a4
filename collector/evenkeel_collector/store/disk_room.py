"""Refuses what must not happen on a full disk, where the embedded engine loses data silently.

The engine ignores that the disk refused a table's new definition: the file is left empty, the
statement succeeds, and the store cannot be opened again (docs/decisions/0367).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

# Far more than any definition takes, because others write to the disk meanwhile.
CHANGE_BYTES = 16 << 20


def free_bytes_of(folder: Path) -> int:
    """Return how much space the disk of a folder has.

    Raises:
        OSError: If it cannot be asked.
    """
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def check_free(folder: Path, num_bytes: int, purpose: str) -> None:
    """Check that a folder's disk has this much free space.

    Raises:
        OSError: If it has less; the message ends with the purpose.
    """
    free_bytes = free_bytes_of(folder)
    if free_bytes < num_bytes:
        raise OSError(
            errno.ENOSPC,
            f"the disk has {free_bytes >> 20} MiB free, at least {num_bytes >> 20} MiB are needed"
            f" {purpose}",
        )


def check_room_to_change(client: Client) -> None:
    """Check that the embedded store's disk has room to change a table or view.

    Raises:
        OSError: If it has none.
    """
    folder = getattr(client, "path", None)
    if folder is not None:
        check_free(Path(folder), CHANGE_BYTES, "to change a table")
