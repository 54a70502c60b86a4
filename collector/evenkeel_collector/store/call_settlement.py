"""Counts requests that clients trace, once it is known which of a call's records is the request.

A thread reads the held requests that have waited long enough, decides (calls.py), writes down the
decisions, and copies the counted requests into `requests`, whose views fill the rollups. A batch
has a token: one that a crash interrupts is copied again at the next start, and counts once.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from clickhouse_connect.driver.exceptions import ClickHouseError

from evenkeel.errors import first_line
from evenkeel.store import read_query
from evenkeel_collector.store.calls import HeldRecord, KnownCalls, decide
from evenkeel_collector.store.cluster import LOCAL_SUFFIX
from evenkeel_collector.store.held_requests import CLIENT_SOURCES, HELD, REQUESTS, request_columns
from evenkeel_collector.store.sql import quote, quote_name
from evenkeel_collector.store.storage import Storage
from evenkeel_collector.telemetry.metrics import SelfMetrics

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

_HERE = Path(__file__).parent
POLL_S = 1.0
IN_HAND_S = 5.0
MAX_BATCH = 20_000
# Spans and records read for one batch; more are errors of a sender's.
MAX_READ = 2_000_000
# A record that arrives later than this after its call's decision counts again.
REMEMBERED_S = 3_600
# Held rows are kept for a day; after a longer stop, nothing is left to settle.
FIRST_LOOK_S = 86_400
# The records of a call start within this time of each other, different clocks included.
APART_MS = 300_000
# In a slot of ten seconds, batches begin only in the middle, so that two turns never overlap.
SLOT_S, FROM_S, UNTIL_S = 10, 1, 6


@dataclass(frozen=True, slots=True)
class _Batch:
    name: str
    from_ms: int
    to_ms: int


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
        self._hold_ms = round(hold_s * 1000)
        suffix = LOCAL_SUFFIX if cluster else ""
        self._tables = {"held": HELD + suffix, "settled": "settled_requests" + suffix}
        self._turns = None if storage.embedded_path else "settlement_turns" + suffix
        self._id = uuid4().hex
        self._stop = threading.Event()
        self._client: Client | None = None
        self._since_ms = _now_ms() - FIRST_LOOK_S * 1000
        self._num_seen = -1.0
        self._has_held = True
        self._is_mended = False
        self._thread = threading.Thread(target=self._run, name="call-settlement", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; what is still held is settled after the next start."""
        self._stop.set()
        self._thread.join(timeout=IN_HAND_S)

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            num_stored = self._metrics.num_segments_stored()
            if not self._has_held and num_stored == self._num_seen:
                continue
            try:
                if self._client is None:
                    self._client = self._storage.connect()
                if self._turns is None or self._has_turn(self._client, self._turns):
                    self._has_held = self._settle(self._client)
                    self._num_seen = num_stored
            except (ClickHouseError, OSError) as error:
                logger.warning("requests not settled, retrying error=%s", first_line(error))
        if self._client is not None:
            self._client.close()

    def _has_turn(self, client: Client, turns: str) -> bool:
        """Whether this collector settles in this slot: the first to write it down."""
        slot, second = divmod(time.time(), SLOT_S)
        if not FROM_S <= second < UNTIL_S:
            return False
        client.insert(
            turns,
            [[int(slot), self._id]],
            column_names=["slot", "collector"],
            settings={"insert_deduplication_token": f"{slot:.0f}"},
        )
        found = client.query(f"SELECT collector FROM {turns} WHERE slot = {slot:.0f} LIMIT 1")
        return [str(name) for (name,) in found.result_rows] == [self._id]

    def _settle(self, client: Client) -> bool:
        """Settle what is due; return whether anything is still held."""
        if not self._is_mended:
            self._copy_newest(client)
            self._is_mended = True
        now_ms = _now_ms()
        rows = self._rows(
            client, "held_unsettled", {"since_ms": self._since_ms, "limit": MAX_BATCH}
        )
        due_ms = now_ms - self._hold_ms
        held = [
            HeldRecord(trace, span, request, is_due=held_ms <= due_ms)
            for trace, span, request, held_ms, _ in rows
        ]
        if any(record.is_due for record in held):
            times_ms = [time_ms for *_, time_ms in rows]
            around = {
                "from_ms": min(held_ms for *_, held_ms, _ in rows),
                "to_ms": max(held_ms for *_, held_ms, _ in rows),
                "limit": MAX_READ,
            }
            known = KnownCalls(
                parents=self._rows(client, "held_parents", around),
                served=self._rows(
                    client,
                    "held_servers",
                    {
                        **around,
                        "begin_ms": min(times_ms) - APART_MS,
                        "end_ms": max(times_ms) + APART_MS,
                        "client_sources": list(CLIENT_SOURCES),
                    },
                ),
                counted=[
                    (trace, span)
                    for trace, span, is_counted in self._rows(
                        client,
                        "held_settled",
                        {**around, "since_ms": now_ms - REMEMBERED_S * 1000},
                    )
                    if is_counted
                ],
            )
            self._write(client, around, decide(held, known))
        if len(rows) < MAX_BATCH:
            self._since_ms = min(
                [now_ms - REMEMBERED_S * 1000, *(held_ms for *_, held_ms, _ in rows)]
            )
        return bool(rows)

    def _write(
        self, client: Client, around: Mapping[str, int], decided: Mapping[tuple[str, str], bool]
    ) -> None:
        keys = sorted(decided)
        name = hashlib.sha256(repr((around["from_ms"], keys)).encode()).hexdigest()[:32]
        batch = _Batch(name, around["from_ms"], around["to_ms"])
        moment = datetime.now(UTC)
        client.insert(
            self._tables["settled"],
            [
                [moment, name, _moment(batch.from_ms), _moment(batch.to_ms), *key, decided[key]]
                for key in keys
            ],
            column_names=[
                "settled_at", "batch", "held_from", "held_to", "trace_id", "span_id", "is_counted",
            ],
            settings={"insert_deduplication_token": f"settled-{name}"},
        )  # fmt: skip
        self._copy(client, batch)
        num_counted = sum(decided.values())
        self._metrics.calls_settled.labels("counted").inc(num_counted)
        self._metrics.calls_settled.labels("view").inc(len(decided) - num_counted)

    def _copy_newest(self, client: Client) -> None:
        for name, from_ms, to_ms in self._rows(client, "held_batch", {}):
            self._copy(client, _Batch(name, from_ms, to_ms))

    def _copy(self, client: Client, batch: _Batch) -> None:
        """Copy a batch's counted requests into `requests`; a second copy changes nothing."""
        target = REQUESTS + (LOCAL_SUFFIX if self._tables["held"] != HELD else "")
        names = ", ".join(quote_name(name) for name, _ in request_columns(client))
        with self._storage.gate.inserting():
            client.command(
                f"INSERT INTO {target} ({names}) SELECT {names} FROM {self._tables['held']}"
                f" WHERE held_at BETWEEN fromUnixTimestamp64Milli({batch.from_ms}, 'UTC')"
                f" AND fromUnixTimestamp64Milli({batch.to_ms}, 'UTC')"
                " AND (trace_id, span_id) IN (SELECT trace_id, span_id"
                f" FROM {self._tables['settled']} WHERE batch = {quote(batch.name)} AND is_counted)"
                " ORDER BY trace_id, span_id LIMIT 1 BY trace_id, span_id",
                settings={
                    "insert_deduplication_token": f"settled-{batch.name}",
                    "deduplicate_blocks_in_dependent_materialized_views": "1",
                    # One block, one token.
                    "max_threads": "1",
                    "min_insert_block_size_rows": "1048576",
                    "min_insert_block_size_bytes": "1073741824",
                },
            )

    def _rows(self, client: Client, name: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        query = read_query(_QUERIES[name])
        found: Sequence[Any] = client.query(
            query, parameters={**self._tables, **parameters}
        ).result_rows
        return found


_QUERIES: Mapping[str, Path] = {
    "held_unsettled": _HERE / "held_unsettled.sql",
    "held_parents": _HERE / "held_parents.sql",
    "held_servers": _HERE / "held_servers.sql",
    "held_settled": _HERE / "held_settled.sql",
    "held_batch": _HERE / "held_batch.sql",
}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _moment(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, tz=UTC)
