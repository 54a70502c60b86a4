"""Stops the embedded store's merges while its disk is nearly full.

The engine ignores that the disk refuses a merge's writes: the broken part replaces the whole ones,
which are deleted minutes later (docs/decisions/0368).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from evenkeel.errors import first_line
from evenkeel_collector.store.disk_room import CHANGE_BYTES, free_bytes_of
from evenkeel_collector.store.storage import Storage

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2
# A merge that was cut off may need the same space again.
LEAST_PAUSE_S = 60.0


class MergePause:
    """A thread that stops merges below a number of free bytes, and the running ones.

    Args:
        storage: The store; nothing is done for a server.
        min_free_bytes: Merges need as much as inserts, and at least what a change of a table needs.
        least_pause_s: How long a pause lasts, whatever space there is.
    """

    def __init__(
        self, storage: Storage, min_free_bytes: int, least_pause_s: float = LEAST_PAUSE_S
    ) -> None:
        self._storage = storage
        self._min_free_bytes = max(min_free_bytes, CHANGE_BYTES)
        self._least_pause_s = least_pause_s
        self._paused_s: float | None = None
        self._client: Client | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="merge-pause", daemon=True)
        if storage.embedded_path is not None:
            self._thread.start()

    def close(self) -> None:
        """End a pause, since changes of rows wait for it, and stop looking."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            try:
                self._look()
            except (ClickHouseError, OSError) as error:
                logger.warning("merges not stopped or started error=%s", first_line(error))
        try:
            if self._paused_s is not None:
                self._tell("SYSTEM START MERGES")
            if self._client is not None:
                self._client.close()
        except ClickHouseError as error:
            logger.warning("merges not started error=%s", first_line(error))

    def _look(self) -> None:
        if self._storage.embedded_path is None:
            return
        is_low = free_bytes_of(self._storage.embedded_path) < self._min_free_bytes
        now_s = time.monotonic()
        if self._paused_s is None and is_low:
            self._tell("SYSTEM STOP MERGES")
            self._paused_s = now_s
            logger.warning(
                "merges stopped until the disk has MiB=%d free", self._min_free_bytes >> 20
            )
        elif self._paused_s is not None and is_low:
            self._paused_s = now_s
        elif self._paused_s is not None and now_s - self._paused_s >= self._least_pause_s:
            self._tell("SYSTEM START MERGES")
            self._paused_s = None
            logger.info("merges started again")

    def _tell(self, statement: str) -> None:
        self._client = self._client or self._storage.connect()
        self._client.command(statement)
