"""Updates the rollups: changes the views that judge requests, and recounts stored requests.

The rollup's view counts the events of objectives as requests are stored: exactly once, late ones
included. When objectives change, the view is changed, and stored requests are counted for the new
objectives under their own keys. Nothing may be inserted meanwhile, so `Rollups` closes the insert
gate: the log keeps accepting requests.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from evenkeel.errors import StoreError, first_line
from evenkeel.request_record import REQUEST_FIELDS
from evenkeel.slo.good_events import fill
from evenkeel.slo.model import Slo
from evenkeel.store import read_query
from evenkeel_collector.store.judged_sql import (
    KeyedIndicator,
    events_of,
    judged_sessions_view,
    judged_view,
)
from evenkeel_collector.store.migrations import Render, name_views_back, run_statement
from evenkeel_collector.store.objectives import (
    CountedSlo,
    counted_slos,
    parts_of,
    read_objectives,
    write_objectives,
)
from evenkeel_collector.store.sql import MAX_QUERY_SIZE, quote

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

_HERE = Path(__file__).parent

DIGESTS = (
    "ttft_s", "tpot_s", "itl_p50_s", "itl_p99_s", "stall_s", "e2e_s", "queue_s", "prefill_s",
    "decode_s",
)  # fmt: skip
KEYS = "minute, model, tenant, slo_class, route, prompt_name, prompt_version, service, engine"
EVENTS = "slo_good, slo_bad"
COSTS = (
    "cost", "cancelled_cost", "failed_cost", "num_priced", "wasted_cost", "saved_prefix_cost",
    "saved_drafts_cost",
)  # fmt: skip
SESSION_COSTS = "tenant, session_id, kind, is_trace, day, source, start, end, cost, currency"
SUMS = (
    "num_requests", "num_ok", "num_error", "num_aborted", "num_shed", "input_tokens",
    "output_tokens", "cached_tokens", "wasted_tokens", "drafted_tokens", "accepted_tokens",
    "cacheable_tokens", "queue_sum_s", "prefill_sum_s", "decode_sum_s", "num_queue", "num_prefill",
    "num_decode", *COSTS,
)  # fmt: skip
_STATE = "quantilesTDigest(0.5, 0.95, 0.99)"
# A second of the engine costs what the request's own seconds cost. A request that was cancelled or
# failed is wasted as a whole: see cancelled_cost and failed_cost.
_PER_SECOND = "weight * requests.cost / nullIf(requests.engine_s, 0)"
_ENGINE_COSTS = {
    name: f"sumIf(ifNull({_PER_SECOND} * requests.{column}, 0), {condition})"
    if column in REQUEST_FIELDS
    else "0."
    for name, column, condition in (
        ("wasted", "engine_wasted_s", "status NOT IN ('aborted', 'error')"),
        ("saved_prefix", "engine_saved_prefix_s", "1"),
        ("saved_drafts", "engine_saved_drafts_s", "1"),
    )
}


class InsertGate:
    """Admits any number of concurrent inserts, or none while rollups are recounted."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._is_closed = False

    @contextlib.contextmanager
    def inserting(self) -> Iterator[None]:
        """Wait until the gate is open, and keep it open until the block ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._num_inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_inside -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Close the gate, and wait for running inserts to finish."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._is_closed = True
            self._changed.wait_for(lambda: not self._num_inside)
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()


class Rollups:
    """The rollups of one store.

    Args:
        connect: Returns a client of the store.
        gate: Blocks inserts of requests during a recount.
        render: Returns what to run instead of a statement, such as its cluster form.

    Raises:
        StoreError: If the store is unreachable or refuses; the rollups are unchanged.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        gate: InsertGate,
        render: Render = lambda statement: [statement],
    ) -> None:
        self._connect = connect
        self._gate = gate
        self._render = render
        self._lock = threading.Lock()
        self._are_views_set = False
        with self._lock, self._client() as client:
            self._number, self._in_force = read_objectives(client)
            with self._gate.closed():
                run_statement(client, judged_view(), self._render)
                run_statement(client, judged_sessions_view(), self._render)
                self._set_views(client, self._in_force)

    def use(self, slos: Sequence[Slo]) -> bool:
        """Count the events of these SLOs, in stored and in future requests.

        Returns whether anything changed; without any SLO that judges requests, nothing does.

        Raises:
            StoreError: If the store is unreachable or refuses; retry.
        """
        with self._lock:
            wanted = counted_slos(slos, self._in_force) or self._in_force
            if wanted == self._in_force and self._are_views_set:
                return False
            known = {each.key for each in self._in_force}
            new = [each for each in wanted if each.key not in known]
            began_s = time.monotonic()
            with self._client() as client, self._gate.closed():
                if wanted != self._in_force:
                    # The active set is counted until the new one is written.
                    self._set_views(client, [*self._in_force, *new])
                    if new:
                        self._count_stored(client, parts_of(new))
                    write_objectives(client, self._number + 1, wanted)
                    self._number += 1
                    self._in_force = wanted
                self._set_views(client, wanted)
            logger.info(
                "rollups count objectives slos=%d new=%d took_s=%.1f",
                len({each.slo for each in wanted}), len(new), time.monotonic() - began_s,
            )  # fmt: skip
            return True

    def recount_costs(self, condition: str) -> None:
        """Make rollups and sessions hold the costs of stored requests again, after a change.

        Adds the difference for each key of a minute that still has requests, and for each session
        and day that still has all of them: repeating it changes nothing.

        Args:
            condition: Selects requests by `time`; it must cover whole minutes.

        Raises:
            StoreError: If the store is unreachable or refuses; repeat it.
        """
        of_requests = _minute_query([]).replace(
            "FROM requests\n", f"FROM requests\nWHERE {condition}\n"
        )
        of_rollup = condition.replace("time", "toDateTime64(minute, 9, 'UTC')")
        sums = ", ".join(f"sum(sign * each.{name}) AS {name}" for name in COSTS)
        columns = f"{KEYS}, {', '.join(COSTS)}"
        with self._lock, self._client() as client, self._gate.closed():
            client.command(
                f"INSERT INTO requests_1m ({columns}) SELECT {KEYS}, {sums} FROM (\n"
                f"SELECT {columns}, 1 AS sign FROM (\n{of_requests})\nUNION ALL\n"
                f"SELECT {columns}, -1 AS sign FROM requests_1m WHERE {of_rollup}\n) AS each "
                f"GROUP BY {KEYS} HAVING max(sign) = 1 SETTINGS insert_deduplicate = 0",
                settings={"max_query_size": MAX_QUERY_SIZE},
            )
            self._recount_sessions(client, condition)

    def _recount_sessions(self, client: Client, condition: str) -> None:
        query = Template(read_query(_HERE / "session_costs.sql")).substitute(condition=condition)
        client.command(
            f"INSERT INTO session_parts ({SESSION_COSTS})\n{query}\nSETTINGS insert_deduplicate = 0"
        )
        # A store has one currency, but the maximum in a session may be that of before.
        first, currency = client.query(
            f"SELECT min(toDate(time)), max(currency) FROM requests WHERE {condition}"
        ).first_row
        if currency:
            others = f"day >= '{first}' AND currency NOT IN ('', {quote(currency)})"
            if client.query(f"SELECT 1 FROM session_parts WHERE {others} LIMIT 1").result_rows:
                run_statement(
                    client,
                    f"ALTER TABLE session_parts UPDATE currency = {quote(currency)}"
                    f" WHERE {others} SETTINGS mutations_sync = 1",
                    self._render,
                )

    def withdraw(
        self, table: str, condition: str, settings: Mapping[str, str], suffix: str = ""
    ) -> None:
        """Subtract requests from the sums of the rollups; percentiles keep what they saw.

        Args:
            table: Where the requests still are.
            condition: Selects them.
            settings: Of the insert, with its deduplication token: a second one changes nothing.
            suffix: Of the rollup's name.

        Raises:
            StoreError: If the store is unreachable or refuses; repeat it.
        """
        sums = ", ".join(f"-each.{name}" for name in SUMS)
        events = ", ".join(
            f"mapApply((key, num) -> (key, -num), each.{name})" for name in EVENTS.split(", ")
        )
        with self._lock, self._client() as client, self._gate.inserting():
            query = _minute_query(parts_of(self._in_force)).replace(
                "FROM requests\n", f"FROM {table} AS requests\nWHERE {condition}\n"
            )
            client.command(
                f"INSERT INTO requests_1m{suffix} ({KEYS}, {', '.join(SUMS)}, {EVENTS})"
                f" SELECT {KEYS}, {sums}, {events} FROM (\n{query}) AS each",
                settings=settings,
            )

    def _set_views(self, client: Client, counted: Sequence[CountedSlo]) -> None:
        self._are_views_set = False
        name_views_back(client, self._render)
        for statement in view_statements(parts_of(counted)):
            run_statement(client, statement, self._render)
        self._are_views_set = True

    def _count_stored(self, client: Client, parts: Sequence[KeyedIndicator]) -> None:
        """Count the events of stored requests, one day at a time; a view updates the hours."""
        num_rows, first, last = client.query(
            "SELECT count(), min(time), max(time) FROM requests"
        ).first_row
        if not num_rows:
            return
        day, query = _day(first), _minute_query(parts)
        while day <= last:
            span = f"BETWEEN '{day:%Y-%m-%d %H:%M:%S}' AND '{day:%Y-%m-%d} 23:59:59.999999999'"
            client.command(
                f"INSERT INTO requests_1m ({KEYS}, {EVENTS}) SELECT {KEYS}, {EVENTS} FROM (\n"
                + query.replace("FROM requests\n", f"FROM requests\nWHERE time {span}\n")
                + ") SETTINGS insert_deduplicate = 0",
                settings={"max_query_size": MAX_QUERY_SIZE},
            )
            day += timedelta(days=1)

    def _client(self) -> _Connection:
        return _Connection(self._connect)


class _Connection:
    """A client for the duration of a block, with errors raised as StoreError."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect

    def __enter__(self) -> Client:
        try:
            self._client = self._connect()
        except (ClickHouseError, OSError) as error:
            raise _refusal(error) from error
        return self._client

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._client.close()
        if isinstance(error, ClickHouseError | OSError):
            raise _refusal(error) from error


def _refusal(error: Exception) -> StoreError:
    return StoreError(f"cannot update the rollups: {first_line(error)}")


def view_statements(parts: Sequence[KeyedIndicator]) -> list[str]:
    """Return the statements that make a single store's views count these objectives."""
    return [
        f"ALTER TABLE requests_to_requests_{end} MODIFY QUERY\n{query}"
        for end, query in (("1m", _minute_query(parts)), ("1h", _hour_query()))
    ]


def _minute_query(parts: Sequence[KeyedIndicator]) -> str:
    events = events_of(parts)
    return _fill(
        "rollup.sql",
        # Weighted and plain digests have the same state but different types.
        [
            f"CAST(CAST(quantilesTDigestWeightedState(0.5, 0.95, 0.99)(requests.{column},"
            f" whole_weight), 'String'), 'AggregateFunction({_STATE}, Nullable(Float64))')"
            f" AS {column}"
            for column in DIGESTS
        ],
        {"good": events.good, "bad": events.bad, **_ENGINE_COSTS},
    )


def _hour_query() -> str:
    digests = [
        f"quantilesTDigestMergeState(0.5, 0.95, 0.99)(requests_1m.{column}) AS {column}"
        for column in DIGESTS
    ]
    return _fill("rollup_hour.sql", digests, {})


def _fill(name: str, digests: Sequence[str], events: Mapping[str, str]) -> str:
    text = (files("evenkeel_collector.store") / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("--")]
    return fill("".join(lines), digests=",\n    ".join(digests), **events)


def _day(time: datetime) -> datetime:
    return time.replace(hour=0, minute=0, second=0, microsecond=0)
