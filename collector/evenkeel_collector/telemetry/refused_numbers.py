"""Exports the number of refused numbers on `/metrics`, from the store's table `refused_numbers`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from evenkeel.store import read_query

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

READ_EVERY_S = 5.0
# At shutdown, a running read is waited for up to this long.
IN_HAND_S = 5.0
NAME = "evenkeel_collector_numbers_refused_total"
_QUERY = Path(__file__).parent / "numbers_refused.sql"


def refused_family(counts: Mapping[tuple[str, str, str], int]) -> CounterMetricFamily:
    """Return the metric of refused numbers, counted by table, column and reason."""
    family = CounterMetricFamily(
        NAME,
        "Numbers from senders that were not stored: not finite, or out of range.",
        labels=["table", "column", "reason"],
    )
    for labels, count in counts.items():
        family.add_metric(labels, count)
    return family


class RefusedNumbers(Collector):
    """A thread that reads the counts while the collector runs.

    `/metrics` shows the last counts read, so it never waits for the store.

    Args:
        connect: Returns a client of the store for the calling thread.
        num_stored: Returns how many segments were stored; a change triggers a new read.
        registry: Where the counts are exported.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        num_stored: Callable[[], float],
        registry: CollectorRegistry,
    ) -> None:
        self._connect = connect
        self._num_stored = num_stored
        self._counts: dict[tuple[str, str, str], int] = {}
        self._stop = threading.Event()
        registry.register(self)
        self._thread = threading.Thread(target=self._run, name="refused-numbers", daemon=True)
        self._thread.start()

    def collect(self) -> Iterable[CounterMetricFamily]:
        """Return the most recent counts."""
        yield refused_family(self._counts)

    def close(self) -> None:
        """Stop reading; afterwards the store may be closed."""
        self._stop.set()
        self._thread.join(IN_HAND_S)

    def _run(self) -> None:
        num_read = -1.0
        while True:
            num_stored = self._num_stored()
            if num_stored != num_read and self._read():
                num_read = num_stored
            if self._stop.wait(READ_EVERY_S):
                return

    def _read(self) -> bool:
        try:
            client = self._connect()
            try:
                rows = client.query(read_query(_QUERY)).result_rows
            finally:
                client.close()
        except (ClickHouseError, OSError) as error:
            # The inserter already logs that the store is unavailable.
            logger.debug("cannot read refused numbers error=%s", error)
            return False
        self._counts = {(str(t), str(c), str(r)): int(n) for t, c, r, n in rows}
        return True
