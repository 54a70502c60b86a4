"""What the rollups keep: sets the views that judge requests, and counts old requests anew.

The events of objectives are counted as requests are stored, by the rollup's own view: exact, once,
whatever comes late. When objectives change, the view is set anew and the requests already stored
are counted for what is new, under a key of its own. Meanwhile nothing may be inserted, so `Rollups`
takes the insert gate: senders go on to be answered, from the log.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from importlib.resources import files
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from evenkeel.errors import StoreError, first_line
from evenkeel.slo.good_events import fill
from evenkeel.slo.model import Slo
from evenkeel_collector.store.judgement import Counted, events_of, judged_view
from evenkeel_collector.store.migrations import Render, name_views_back, run_statement
from evenkeel_collector.store.objectives import (
    CountedSlo,
    counted_slos,
    parts_of,
    read_objectives,
    write_objectives,
)
from evenkeel_collector.store.sql import MAX_QUERY_SIZE

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

DIGESTS = (
    "ttft_s", "tpot_s", "itl_p50_s", "itl_p99_s", "stall_s", "e2e_s", "queue_s", "prefill_s",
    "decode_s",
)  # fmt: skip
KEYS = "minute, model, tenant, slo_class, route, prompt_name, prompt_version, service"
EVENTS = "slo_good, slo_bad"
_STATE = "quantilesTDigest(0.5, 0.95, 0.99)"


class InsertGate:
    """Lets any number of inserts pass at once, or none while rollups are counted anew."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._is_closed = False

    @contextlib.contextmanager
    def inserting(self) -> Iterator[None]:
        """Wait while the gate is closed; it does not close before the block ends."""
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
        """Close the gate, and wait until nobody is inside."""
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
        gate: Which inserts of requests pass.
        render: What to run in place of a statement, such as a cluster's form of it.

    Raises:
        StoreError: If the store is gone or refuses; the rollups are as they were.
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
                self._set_views(client, self._in_force)

    def use(self, slos: Sequence[Slo]) -> bool:
        """Count the events of these SLOs from now on, and of all that is stored.

        Returns whether anything had to be done; without any SLO that judges requests, nothing has.

        Raises:
            StoreError: If the store is gone or refuses; ask again.
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
                    # What is in force goes on being counted until the new set is written.
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

    def _set_views(self, client: Client, counted: Sequence[CountedSlo]) -> None:
        self._are_views_set = False
        name_views_back(client, self._render)
        for statement in view_statements(parts_of(counted)):
            run_statement(client, statement, self._render)
        self._are_views_set = True

    def _count_stored(self, client: Client, parts: Sequence[Counted]) -> None:
        """Add the events of the requests that are stored, a day at a time; hours follow by view."""
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
    """A client for the length of a block, whose errors are ours."""

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
    return StoreError(f"the rollups cannot be set: {first_line(error)}")


def view_statements(parts: Sequence[Counted]) -> list[str]:
    """Return what makes the views of a single store count these objectives."""
    return [
        f"ALTER TABLE requests_to_requests_{end} MODIFY QUERY\n{query}"
        for end, query in (("1m", _minute_query(parts)), ("1h", _hour_query()))
    ]


def _minute_query(parts: Sequence[Counted]) -> str:
    events = events_of(parts)
    return _fill(
        "rollup.sql",
        # The states of weighted and of plain digests are the same, their types are not.
        [
            f"CAST(CAST(quantilesTDigestWeightedState(0.5, 0.95, 0.99)(requests.{column},"
            f" whole_weight), 'String'), 'AggregateFunction({_STATE}, Nullable(Float64))')"
            f" AS {column}"
            for column in DIGESTS
        ],
        {"good": events.good, "bad": events.bad},
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
