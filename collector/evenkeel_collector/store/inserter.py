"""Inserts sealed log segments into the store in order, with retries."""

from __future__ import annotations

import io
import itertools
import logging
import threading
import time
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError
from isal import isal_zlib

from evenkeel.errors import first_line
from evenkeel.retry_delay import RetryDelay
from evenkeel_collector.log.isolation import Isolated, first_part, isolate
from evenkeel_collector.log.recovery import SealedSegment
from evenkeel_collector.log.segment_format import encode_segment, read_bodies
from evenkeel_collector.log.write_ahead_log import WriteAheadLog
from evenkeel_collector.store.check import CheckStore, is_out_of_memory, is_refusal
from evenkeel_collector.store.disk_room import check_free
from evenkeel_collector.store.merge_pause import MergePause
from evenkeel_collector.store.storage import Storage, insert_segment, insert_segment_file
from evenkeel_collector.telemetry.metrics import SelfMetrics

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

# How late a stop is noticed; a sealed segment ends the wait.
POLL_S = 0.05
FIRST_RETRY_S = 0.1
MAX_RETRY_S = 5.0
# Longest wait at shutdown for a running insert; a server that hangs is abandoned.
IN_HAND_S = 5.0
# Retries after a refusal by the store before the segment is suspected.
MAX_REFUSALS = 3
# Retries of an insert that the store has no memory for, over about ten minutes, before the segment
# is suspected to be too large: other queries may have the memory meanwhile.
MAX_MEMORY_FAILURES = 120


class Inserter:
    """One thread with its own client of the store.

    Args:
        log: The source of sealed segments.
        storage: The store.
        metrics: Counts inserts.
        min_free_bytes: Free space that the embedded store's disk needs before an insert.
        max_memory_failures: Retries for lack of memory before a segment is divided.
    """

    def __init__(
        self,
        log: WriteAheadLog,
        storage: Storage,
        metrics: SelfMetrics,
        min_free_bytes: int = 0,
        max_memory_failures: int = MAX_MEMORY_FAILURES,
    ) -> None:
        self._max_memory_failures = max_memory_failures
        self._min_free_bytes = min_free_bytes
        self._log = log
        self._storage = storage
        self._metrics = metrics
        self._stop = threading.Event()
        self._client: Client | None = None
        self._merges = MergePause(storage, min_free_bytes)
        self._thread = threading.Thread(target=self._run, name="inserter", daemon=True)
        self._thread.start()

    def close(self, drain_s: float) -> bool:
        """Insert the remaining segments for up to `drain_s`; return whether the log is empty.

        A running insert is then waited for: closing the engine during one would crash it.
        """
        deadline = time.monotonic() + drain_s
        while time.monotonic() < deadline and not self._log.is_drained():
            time.sleep(0.01)
        self._stop.set()
        self._merges.close()
        self._thread.join(timeout=IN_HAND_S)
        return self._log.is_drained()

    def _run(self) -> None:
        while not self._stop.is_set():
            segment = self._log.next_sealed(POLL_S)
            if segment is not None:
                self._store(segment)
        if self._client is not None:
            self._client.close()

    def _store(self, segment: SealedSegment) -> None:
        """Return once the store has the segment, or the thread must stop."""
        num_refusals, num_memory_failures, num_halvings = 0, 0, 0
        delay = RetryDelay(FIRST_RETRY_S, MAX_RETRY_S)
        left: SealedSegment | None = segment
        while left is not None and not self._stop.is_set():
            left = self._check(left)
            try:
                if left is not None and num_refusals >= MAX_REFUSALS:
                    num_refusals = 0
                    left = self._part(left)
                if left is not None and num_memory_failures >= self._max_memory_failures:
                    num_memory_failures = 0
                    # Once more if its part fails, too.
                    num_halvings += 1
                    parted, left = self._store_first_part(left, num_halvings - 1)
                    if parted or num_halvings > 1:
                        num_halvings = 0
                    if parted:
                        num_memory_failures = self._max_memory_failures
                        continue
                if left is None:
                    return
                self._insert(left)
                self._log.delete(left)
                self._metrics.segments_stored.inc()
                return
            except (ClickHouseError, OSError) as error:
                self._metrics.insert_failures.inc()
                num_refusals += is_refusal(error)
                num_memory_failures += is_out_of_memory(error)
                wait_s = delay.next_s()
                logger.warning(
                    "insert failed segment=%s retry_s=%.1f error=%s",
                    segment.name, wait_s, first_line(error, max_chars=300),
                )  # fmt: skip
                self._stop.wait(wait_s)

    def _check(self, segment: SealedSegment) -> SealedSegment | None:
        """Return the intact part of a segment on disk; None if nothing is left or readable.

        An unreadable segment must not block those behind it.
        """
        for attempt in range(1, MAX_REFUSALS + 1):
            try:
                checked = self._log.check(segment)
                break
            except OSError as error:
                logger.error(
                    "cannot read log segment segment=%s attempt=%d error=%s",
                    segment.path, attempt, error,
                )  # fmt: skip
                self._stop.wait(FIRST_RETRY_S)
        else:
            self._metrics.segments_damaged.inc()
            self._log.leave(segment)
            return None
        if checked.is_damaged:
            self._metrics.segments_damaged.inc()
            self._metrics.damaged_bytes.inc(checked.num_damaged_bytes)
        return checked.segment

    def _insert(self, segment: SealedSegment) -> None:
        self._check_disk()
        if self._client is None:
            self._client = self._storage.connect()
        schema, name = self._storage.insert_settings, segment.name
        with self._storage.gate.inserting(), self._metrics.insert_seconds.time():
            if self._storage.embedded_path is not None:
                insert_segment_file(self._client, schema, name, segment.path.resolve())
                return
            with segment.path.open("rb") as file:
                insert_segment(self._client, schema, name, file)

    def _check_disk(self) -> None:
        """Check for free space: the engine may keep a broken part if a write is cut short.

        Raises:
            OSError: If the disk has too little free space.
        """
        path = self._storage.embedded_path
        if path is not None:
            check_free(path, self._min_free_bytes, "to store rows (min_free_bytes)")

    def _part(self, segment: SealedSegment) -> SealedSegment | None:
        """Quarantine what cannot be stored; return the rest of the segment, if any."""
        if self._client is None:
            self._client = self._storage.connect()
        with CheckStore(self._client, self._storage.insert_settings) as check:
            bodies = read_bodies(segment.path.read_bytes(), segment.name)
            isolated = self._isolate(check, segment, bodies)
        return self._log.part(segment, isolated) if isolated.poison else segment

    def _isolate(self, check: CheckStore, segment: SealedSegment, bodies: list[bytes]) -> Isolated:
        """Split bodies of a segment into those that the store takes and those that it refuses."""
        name, created_ns = segment.name, segment.created_ns
        isolated = isolate(
            bodies, lambda some: check.refusal(encode_segment(name, created_ns, some))
        )
        self._metrics.segments_quarantined.inc(len(isolated.poison))
        return isolated

    def _store_first_part(
        self, segment: SealedSegment, num_halvings: int
    ) -> tuple[bool, SealedSegment | None]:
        """Store as much of a segment as the store has memory for; return the rest.

        The part is the segment halved so often at least: near its limit the store may have memory
        for the copy of its tables, but not for the tables themselves. What the store refuses of
        that part is quarantined first, and nothing is stored yet. False if the store has memory for
        the whole segment, or for none of it: it is then as it was.
        Tables that an earlier attempt filled before the memory ran out get the part a second time
        (docs/decisions/0338).
        """
        self._check_disk()
        if self._client is None:
            self._client = self._storage.connect()
        settings, created_ns = self._storage.insert_settings, segment.created_ns
        bodies = read_bodies(segment.path.read_bytes(), segment.name)
        checks = itertools.count()
        with CheckStore(self._client, settings) as check:
            part, rest = first_part(
                bodies,
                lambda some: (
                    next(checks) >= num_halvings
                    and check.fits(encode_segment(segment.name, created_ns, some))
                ),
            )
            if not rest:
                return False, segment
            isolated = self._isolate(check, segment, part)
        if isolated.poison:
            isolated.good += rest
            return True, self._log.part(segment, isolated)
        # Of its contents, so that a part that is stored again after a failure is recognised.
        name = f"{segment.name}.{isal_zlib.crc32(b''.join(part)):08x}"
        with self._storage.gate.inserting():
            insert_segment(
                self._client, settings, name, io.BytesIO(encode_segment(name, created_ns, part))
            )
        logger.warning(
            "stored a part of a segment, for lack of memory segment=%s bodies=%d left=%d",
            segment.name, len(part), len(rest),
        )  # fmt: skip
        return True, self._log.part(segment, Isolated(good=rest))
