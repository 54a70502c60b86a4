"""Decides which of clients' requests count, counts them, and withdraws those that others cover.

Decisions are written down as a batch before they are carried out, and the batch gets a last row
without ids once they are. A batch that a crash or an error interrupts is carried out again: its
name is the deduplication token of what it inserts, so it counts once.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from evenkeel.store import read_query
from evenkeel_collector.store.calls import CallKey, HeldRecord, KnownCalls, decide
from evenkeel_collector.store.cluster import LOCAL_SUFFIX
from evenkeel_collector.store.disk_room import check_room_to_change
from evenkeel_collector.store.held_requests import CLIENT_SOURCES, HELD, REQUESTS, request_columns
from evenkeel_collector.store.sql import MAX_QUERY_SIZE, quote, quote_name
from evenkeel_collector.store.storage import Storage
from evenkeel_collector.telemetry.metrics import SelfMetrics

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

_HERE = Path(__file__).parent
MAX_BATCH = 20_000
# Spans and records read for one batch, and of one trace; more are errors of a sender's.
MAX_READ, MAX_OF_TRACE = 1_000_000, 100_000
# How long after its decision a request is taken back if a server's record of its call comes, or a
# wrapper's record is known to be a view of it.
REMEMBERED_S = 3_600
# The newest requests of clients, and how often they are compared with servers' records.
MAX_REMEMBERED, LATE_EVERY_S = 200_000, 30
# Held rows are kept for a day; after a longer stop, nothing is left to settle.
FIRST_LOOK_S = 86_400
# The records of a call start within this time of each other, or when a span of its trace does. So
# many of these other times are read at most, whatever a sender makes up.
APART_S, MAX_FAR = 300, 288
COUNTED, WITHDRAWN = "counted-", "withdrawn-"


@dataclass(frozen=True, slots=True)
class _Batch:
    name: str
    from_ms: int
    to_ms: int

    @property
    def settings(self) -> dict[str, str]:
        return {
            "insert_deduplication_token": f"settled-{self.name}",
            "deduplicate_blocks_in_dependent_materialized_views": "1",
            # One block, one token.
            "max_threads": "1",
            "min_insert_block_size_rows": "1048576",
            "min_insert_block_size_bytes": "1073741824",
            "max_query_size": str(MAX_QUERY_SIZE),
        }


class Settler:
    """Settles the held requests of one store.

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
        self._suffix = LOCAL_SUFFIX if cluster else ""
        self._tables = {"held": HELD + self._suffix, "settled": "settled_requests" + self._suffix}
        # Another collector of the store may have been killed in the middle of its turn.
        self._has_others = storage.embedded_path is None
        self._may_be_unfinished = True
        self._is_first = True
        self._since_ms: int | None = None
        self._looked_ms = 0

    def settle(self, client: Client, is_last: bool = False) -> bool:
        """Settle what is due; return whether anything was held.

        Args:
            client: A client of the store.
            is_last: Whether everything is due, because nothing will be settled for a while.

        Raises:
            ClickHouseError: If the store is unreachable or refuses; the next call goes on.
        """
        now_ms = store_ms(client)
        if self._may_be_unfinished:
            self._finish_batches(client, now_ms)
        self._may_be_unfinished = True
        is_held = self._settle_due(client, now_ms, now_ms - (0 if is_last else self._hold_ms))
        if now_ms - self._looked_ms >= LATE_EVERY_S * 1000:
            self._take_back_late(client, now_ms)
            self._looked_ms = now_ms
        self._may_be_unfinished = self._has_others
        return is_held

    def _settle_due(self, client: Client, now_ms: int, due_ms: int) -> bool:
        if self._since_ms is None:
            self._since_ms = now_ms - FIRST_LOOK_S * 1000
        rows = self._rows(
            client, "held_unsettled", {"since_ms": self._since_ms, "limit": MAX_BATCH}
        )
        held = [
            HeldRecord(trace, span, request, tenant, held_ms <= due_ms, start_ns, end_ns)
            for trace, span, request, tenant, start_ns, end_ns, held_ms, _ in rows
        ]
        if any(record.is_due for record in held):
            around = _around(rows)
            counted = self._rows(
                client,
                "held_settled",
                {**around, **_LIMITS, "since_ms": now_ms - REMEMBERED_S * 1000},
            )
            decided = decide(held, self._known(client, rows, counted))
            self._carry_out(client, COUNTED, around, decided)
        if len(rows) < MAX_BATCH:
            self._since_ms = min(
                [now_ms - REMEMBERED_S * 1000, *(held_ms for *_, held_ms, _ in rows)]
            )
        return bool(rows)

    def _take_back_late(self, client: Client, now_ms: int) -> None:
        """Withdraw counted requests of clients whose server's record came after the decision."""
        rows = self._rows(
            client,
            "held_late",
            {
                "since_ms": now_ms - REMEMBERED_S * 1000,
                "held_since_ms": now_ms - 2 * REMEMBERED_S * 1000,
                "limit": MAX_REMEMBERED,
                "most": MAX_BATCH,
                "client_sources": list(CLIENT_SOURCES),
            },
        )
        if not rows:
            return
        held = [HeldRecord(*row[:4]) for row in rows]
        decided = decide(held, self._known(client, rows))
        views = {key: False for key, is_counted in decided.items() if not is_counted}
        if views:
            self._carry_out(client, WITHDRAWN, _around(rows), views)

    def _known(
        self, client: Client, rows: Sequence[Any], counted: Iterable[tuple[str, str, str]] = ()
    ) -> KnownCalls:
        around = {**_around(rows), **_LIMITS}
        parents = self._rows(client, "held_parents", around)
        return KnownCalls(
            parents=[row[:4] for row in parents],
            served=self._rows(
                client,
                "held_servers",
                {
                    **around,
                    "around": _five_minutes(
                        (time_s for *_, time_s in rows), (time_s for *_, time_s in parents)
                    ),
                    "client_sources": list(CLIENT_SOURCES),
                },
            ),
            counted=counted,
        )

    def _carry_out(
        self, client: Client, kind: str, around: Mapping[str, int], decided: Mapping[CallKey, bool]
    ) -> None:
        keys = sorted(decided)
        digest = hashlib.sha256(repr((around["from_ms"], keys)).encode()).hexdigest()[:32]
        batch = _Batch(kind + digest, around["from_ms"], around["to_ms"])
        self._write(client, batch, "decided", [(*key, decided[key]) for key in keys])
        self._finish(client, batch)
        num_counted = sum(decided.values())
        if kind == WITHDRAWN:
            self._metrics.calls_settled.labels("withdrawn").inc(len(decided))
            return
        self._metrics.calls_settled.labels("counted").inc(num_counted)
        self._metrics.calls_settled.labels("view").inc(len(decided) - num_counted)

    def _write(
        self, client: Client, batch: _Batch, what: str, rows: Sequence[tuple[str, str, str, bool]]
    ) -> None:
        moment = _moment(store_ms(client))
        between = _moment(batch.from_ms), _moment(batch.to_ms)
        client.insert(
            self._tables["settled"],
            [[moment, batch.name, *between, *row] for row in rows],
            column_names=[
                "settled_at", "batch", "held_from", "held_to", "trace_id", "span_id", "tenant",
                "is_counted",
            ],
            settings={"insert_deduplication_token": f"{what}-{batch.name}"},
        )  # fmt: skip

    def _finish_batches(self, client: Client, now_ms: int) -> None:
        """Carry out what was decided and perhaps not carried out."""
        if self._is_first:
            for row in self._rows(client, "held_batch", {}):
                self._count(client, _Batch(*row))
        back_s = FIRST_LOOK_S if self._is_first else REMEMBERED_S
        since = {"since_ms": now_ms - back_s * 1000}
        for row in self._rows(client, "held_unfinished", since):
            self._finish(client, _Batch(*row))
        self._is_first = False

    def _finish(self, client: Client, batch: _Batch) -> None:
        if batch.name.startswith(WITHDRAWN):
            self._withdraw(client, batch)
        else:
            self._count(client, batch)
        self._write(client, batch, "finished", [("", "", "", False)])

    def _count(self, client: Client, batch: _Batch) -> None:
        """Copy a batch's counted requests into `requests`; a second copy changes nothing."""
        names = ", ".join(quote_name(name) for name, _ in request_columns(client))
        with self._storage.gate.inserting():
            client.command(
                f"INSERT INTO {REQUESTS}{self._suffix} ({names})"
                f" SELECT {names} FROM {self._tables['held']}"
                f" WHERE held_at BETWEEN fromUnixTimestamp64Milli({batch.from_ms}, 'UTC')"
                f" AND fromUnixTimestamp64Milli({batch.to_ms}, 'UTC')"
                f" AND {self._is_in(batch)}"
                " ORDER BY trace_id, span_id, tenant LIMIT 1 BY trace_id, span_id, tenant",
                settings=batch.settings,
            )

    def _withdraw(self, client: Client, batch: _Batch) -> None:
        """Take a batch's requests out of `requests`, rollups and sessions."""
        check_room_to_change(client)
        table = REQUESTS + self._suffix
        clients = f"source IN ({', '.join(map(quote, CLIENT_SOURCES))})"
        condition = f"{clients} AND {self._is_in(batch, 'NOT is_counted')}"
        # Where a query has another `source`.
        of_table = f"requests.{condition}"
        self._storage.rollups.withdraw(table, of_table, batch.settings, self._suffix)
        text = read_query(_HERE / "session_withdrawal.sql")
        query = Template(text).substitute(table=table, condition=of_table)
        columns = ", ".join(_SESSION_COLUMNS)
        with self._storage.gate.inserting():
            client.command(
                f"INSERT INTO session_parts{self._suffix} ({columns})\n{query}",
                settings=batch.settings,
            )
            client.command(f"DELETE FROM {table} WHERE {condition}")

    def _is_in(self, batch: _Batch, condition: str = "is_counted") -> str:
        of_batch = (
            f"FROM {self._tables['settled']} WHERE batch = {quote(batch.name)}"
            f" AND trace_id != '' AND {condition}"
        )
        # Versions before migration 42 did not write down the tenant.
        return (
            "((trace_id, span_id, ifNull(tenant, '')) IN"
            f" (SELECT trace_id, span_id, assumeNotNull(tenant) {of_batch} AND isNotNull(tenant))"
            f" OR (trace_id, span_id) IN (SELECT trace_id, span_id {of_batch} AND isNull(tenant)))"
        )

    def _rows(self, client: Client, name: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        found: Sequence[Any] = client.query(
            read_query(_QUERIES[name]), parameters={**self._tables, **parameters}
        ).result_rows
        return found


_QUERIES: Mapping[str, Path] = {
    "held_batch": _HERE / "held_batch.sql",
    "held_late": _HERE / "held_late.sql",
    "held_parents": _HERE / "held_parents.sql",
    "held_servers": _HERE / "held_servers.sql",
    "held_settled": _HERE / "held_settled.sql",
    "held_unfinished": _HERE / "held_unfinished.sql",
    "held_unsettled": _HERE / "held_unsettled.sql",
}
_LIMITS = {"of_one": MAX_OF_TRACE, "limit": MAX_READ}
_SESSION_COLUMNS = (
    "tenant", "session_id", "kind", "is_trace", "day", "source", "start", "end", "num", "num_ok",
    "num_error", "num_aborted", "num_shed", "input_tokens", "output_tokens", "cached_tokens",
    "wasted_tokens", "sum_s", "queue_s", "prefill_s", "decode_s", "recompute_s", "num_evicted",
    "cost",
)  # fmt: skip


def store_ms(client: Client) -> int:
    """Return the store's time, by which requests are held: a collector's clock may differ."""
    return int(client.query("SELECT toUnixTimestamp64Milli(now64(3))").first_row[0])


def _around(rows: Sequence[Any]) -> dict[str, int]:
    times_ms = [held_ms for *_, held_ms, _ in rows]
    return {"from_ms": min(times_ms), "to_ms": max(times_ms)}


def _five_minutes(held_s: Iterable[int], spans_s: Iterable[int]) -> list[datetime]:
    """Return the five minutes in which other records of these calls may start.

    Args:
        held_s: When the held records started.
        spans_s: When spans of their traces started, by clocks that may differ by hours.
    """
    starts = {
        (time_s + apart_s) // APART_S * APART_S
        for time_s in held_s
        for apart_s in (-APART_S, 0, APART_S)
    }
    far = Counter(time_s // APART_S * APART_S for time_s in spans_s)
    for start in starts | {0}:
        del far[start]
    starts.update(start for start, _ in far.most_common(MAX_FAR))
    return [datetime.fromtimestamp(start, tz=UTC) for start in sorted(starts)]


def _moment(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, tz=UTC)
