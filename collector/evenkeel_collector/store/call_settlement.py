"""Counts requests that clients trace, once it is known which of a call's records is the request.

A thread reads the held requests that have waited long enough, and settles them (settler.py). Of
several collectors of one store, one does so at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING
from uuid import uuid4

from clickhouse_connect.driver.exceptions import ClickHouseError

from evenkeel.errors import StoreError, first_line
from evenkeel_collector.store.cluster import LOCAL_SUFFIX
from evenkeel_collector.store.settler import LATE_EVERY_S, Settler, store_ms
from evenkeel_collector.store.storage import Storage
from evenkeel_collector.telemetry.metrics import SelfMetrics

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

# At the longest; a tenth of the hold if that is shorter, but not without a pause.
POLL_S, LEAST_POLL_S = 1.0, 0.05
IN_HAND_S = 5.0
# At the end, no batch begins after this long.
REST_S = 2.0
# In a slot of ten seconds, batches begin only in the middle, so that two turns never overlap.
SLOT_MS, FROM_MS, UNTIL_MS = 10_000, 1_000, 6_000


class CallSettlement:
    """One thread with its own client of the store.

    Args:
        storage: The store.
        metrics: Counts requests and views.
        hold_s: How long a client's request waits for a record nearer to the server.
        cluster: Whether the store is a cluster, whose held requests are read per shard.
    """

    def __init__(
        self, storage: Storage, metrics: SelfMetrics, hold_s: float, cluster: str | None = None
    ) -> None:
        self._storage = storage
        self._metrics = metrics
        self._settler = Settler(storage, metrics, hold_s, cluster)
        suffix = LOCAL_SUFFIX if cluster else ""
        is_alone = storage.embedded_path is not None
        self._poll_s = min(max(hold_s / 10, LEAST_POLL_S), POLL_S) if is_alone else POLL_S
        self._turns = None if is_alone else "settlement_turns" + suffix
        self._id = uuid4().hex
        self._stop = threading.Event()
        self._client: Client | None = None
        self._thread = threading.Thread(target=self._run, name="call-settlement", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Settle what is held, and stop; what an error or a kill leaves is settled at the start.

        It does not wait for the hold: held requests are kept for a day, and a stop may be longer. A
        server's record that comes after the start still replaces a client's. Of several collectors
        of one store, the others settle it.
        """
        self._stop.set()
        self._thread.join(timeout=IN_HAND_S)

    def _run(self) -> None:
        num_seen, is_held, settled_s = -1.0, True, 0.0
        while not self._stop.wait(self._poll_s):
            num_stored = self._metrics.num_segments_stored()
            # A server's record may be late, so what counts is looked at again after a while.
            is_idle = not is_held and num_stored == num_seen
            if is_idle and time.monotonic() - settled_s < LATE_EVERY_S:
                continue
            try:
                if self._client is None:
                    self._client = self._storage.connect()
                if self._turns is None or self._has_turn(self._client, self._turns):
                    is_held = self._settler.settle(self._client)
                    num_seen, settled_s = num_stored, time.monotonic()
            except (ClickHouseError, OSError, StoreError) as error:
                is_held = True
                logger.warning("requests not settled, retrying error=%s", first_line(error))
        if self._turns is None:
            self._settle_rest(is_held or self._metrics.num_segments_stored() != num_seen)
        if self._client is not None:
            self._client.close()

    def _settle_rest(self, is_held: bool) -> None:
        until_s = time.monotonic() + REST_S
        try:
            while is_held and time.monotonic() < until_s:
                self._client = self._client or self._storage.connect()
                is_held = self._settler.settle(self._client, is_last=True)
        except (ClickHouseError, OSError, StoreError) as error:
            logger.warning(
                "requests not settled, retrying at the next start error=%s", first_line(error)
            )

    def _has_turn(self, client: Client, turns: str) -> bool:
        """Whether this collector settles in this slot: the first to write it down."""
        slot, within_ms = divmod(store_ms(client), SLOT_MS)
        if not FROM_MS <= within_ms < UNTIL_MS:
            return False
        client.insert(
            turns,
            [[slot, self._id]],
            column_names=["slot", "collector"],
            settings={"insert_deduplication_token": str(slot)},
        )
        found = client.query(f"SELECT collector FROM {turns} WHERE slot = {slot} LIMIT 1")
        return [str(name) for (name,) in found.result_rows] == [self._id]
