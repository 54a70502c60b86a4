"""Keeps acknowledged requests until the store has them: append, fdatasync, seal, delete.

One thread writes. Requests that arrive while it waits for the disk share the next fdatasync. A
segment is sealed when it is old or large enough, and is then inserted as one block under its own
name, so that inserting it again after a crash changes nothing. While the store is busy with another
segment, the open one grows: each insert has a fixed cost, whatever its size.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from evenkeel.error_guard import ErrorGuard
from evenkeel.private_files import FILE_MODE, FOLDER_MODE
from evenkeel_collector.log.isolation import Isolated
from evenkeel_collector.log.quarantine import keep_refused
from evenkeel_collector.log.recovery import (
    OPEN_SUFFIX,
    Checked,
    SealedSegment,
    check_segment,
    recover,
    rename_sealed,
)
from evenkeel_collector.log.repeats import SeenBodies, mark, repeats_of
from evenkeel_collector.log.seal_policy import LogLimits, SealPolicy
from evenkeel_collector.log.segment_format import (
    HEADER,
    RECORD,
    encode_header,
    encode_record,
    encode_segment,
    read_bodies,
)
from evenkeel_collector.log.segment_name import make_name, marker_of
from evenkeel_collector.log.synced_files import attempt, sync_folder, write_all, write_synced

logger = logging.getLogger(__name__)


class LogFullError(Exception):
    """The log is full: the request was not accepted; retry later."""


class LogWriteError(Exception):
    """The disk refused the write: the request was not accepted; retry later."""


@dataclass(slots=True)
class _OpenSegment:
    name: str
    path: Path
    fd: int
    created_ns: int
    begun_s: float
    marker: bytes
    num_bytes: int = HEADER.size
    num_records: int = 0
    num_spans: int = 0


@dataclass(slots=True)
class _Pending:
    body: bytes
    num_spans: int
    digest: bytes | None
    done: Future[None] = field(default_factory=Future)


class WriteAheadLog:
    """The log in one folder, used by one process.

    Args:
        folder: The segments' folder; created if missing.
        node: Part of each segment's name, so that two collectors never share one.
        limits: See `LogLimits`.

    Attributes:
        folder, limits: As given.
        recovered: The result of recovery at start.

    Raises:
        OSError: If the folder cannot be read or written.
    """

    def __init__(self, folder: Path, node: str, limits: LogLimits | None = None) -> None:
        self.folder = folder
        self._node = node
        self.limits = limits or LogLimits()
        self._lock = threading.Lock()
        # Two conditions, so that an arriving request wakes only the writer.
        self._changed = threading.Condition(self._lock)
        self._sealing = threading.Condition(self._lock)
        self._leaving = threading.Condition(self._lock)
        self._pending: list[_Pending] = []
        self._pending_bytes = 0
        self._sealed: deque[SealedSegment] = deque()
        self._open: _OpenSegment | None = None
        self._is_closing = False
        self._policy = SealPolicy(self.limits)
        self._taken_s = 0.0
        self._hung_name = ""
        self._refusals = ErrorGuard(logger.error, "log write failed error=%s", expected=OSError)
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        self.recovered = recovered = recover(folder)
        self._sealed.extend(recovered.segments)
        self._segment_bytes = sum(segment.num_bytes for segment in recovered.segments)
        self.repeats = SeenBodies(repeats_of(folder))
        for each in recovered.segments:
            self.repeats.remember_marks(read_bodies(each.path.read_bytes(), each.name))
        self._writer = threading.Thread(target=self._write_forever, name="log-writer", daemon=True)
        self._writer.start()

    def append(self, body: bytes, num_spans: int, digest: bytes | None = None) -> Future[None]:
        """Queue a body; the future completes once it is on disk, or fails with LogWriteError.

        From then on `repeats` knows its digest, if it has one.

        Raises:
            LogFullError: If the log has no room; nothing was queued.
        """
        if digest is not None:
            body = mark(body, digest)
        size = len(body) + RECORD.size
        with self._changed:
            if self._is_closing:
                raise LogFullError("the collector is shutting down")
            if self._segment_bytes + self._pending_bytes + size > self.limits.max_log_bytes:
                # No reader is waited for.
                self._policy.is_requested = self._open is not None
                self._changed.notify()
                raise LogFullError(f"the log is full: limit {self.limits.max_log_bytes} bytes")
            if self._pending_bytes + size > self.limits.max_pending_bytes:
                raise LogFullError("the disk cannot keep up with incoming requests")
            entry = _Pending(body, num_spans, digest)
            self._pending.append(entry)
            self._pending_bytes += size
            self._changed.notify()
        return entry.done

    def next_sealed(self, timeout_s: float) -> SealedSegment | None:
        """Return the oldest sealed segment, or None after the timeout.

        The segment stays first in the queue until `delete` removes it.
        """
        with self._sealing:
            self._sealing.wait_for(lambda: bool(self._sealed), timeout_s)
            return self._sealed[0] if self._sealed else None

    def delete(self, segment: SealedSegment) -> None:
        """Delete a segment that the store has."""
        # From here on its digests are known from the journal.
        self.repeats.save()
        segment.path.unlink(missing_ok=True)
        self.leave(segment)

    def leave(self, segment: SealedSegment) -> None:
        """Remove a segment from the queue; its file, if any, is retried at the next start."""
        with self._changed:
            self._sealed.remove(segment)
            self._policy.insert_s = time.monotonic() - self._taken_s
            self._taken_s = time.monotonic()
            self._segment_bytes -= segment.num_bytes
            self._changed.notify()
            self._leaving.notify_all()

    def check(self, segment: SealedSegment) -> Checked:
        """Return what is left of a segment, read again: the disk may have damaged it since.

        Raises:
            OSError: If it cannot be read; it is then unchanged.
        """
        checked = check_segment(self.folder, segment.path)
        if checked.segment is None:
            self.leave(segment)
            return checked
        left = replace(checked.segment, is_small=segment.is_small)
        self._replace(segment, left)
        return replace(checked, segment=left)

    def part(self, segment: SealedSegment, isolated: Isolated) -> SealedSegment | None:
        """Quarantine the refused bodies of a segment; return the rest, None if nothing is left.

        The segment keeps its name: if the store already has a part of it, storing the rest adds
        nothing twice.

        Raises:
            OSError: If the disk refuses; the segment is then unchanged.
        """
        self.repeats.save()  # A body's digest goes with its first half, which may not stay.
        for poison in isolated.poison:
            path = keep_refused(
                self.folder, segment.name, segment.created_ns, poison.bodies, poison.reason
            )
            logger.error("store refused part of a segment kept=%s", path)
        if not isolated.good:
            self.delete(segment)
            return None
        data = encode_segment(segment.name, segment.created_ns, isolated.good)
        write_synced(segment.path, data)
        smaller = replace(segment, num_bytes=len(data))
        self._replace(segment, smaller)
        return smaller

    def is_drained(self) -> bool:
        """Return whether the store has everything that was accepted."""
        with self._lock:
            return not self._pending_bytes and not self._sealed and self._open is None

    def num_bytes(self) -> int:
        """Return how many bytes wait for the store."""
        with self._lock:
            return self._segment_bytes + self._pending_bytes

    def is_full(self) -> bool:
        """Return whether the next small request would be refused."""
        return self.num_bytes() >= self.limits.max_log_bytes

    def oldest_ns(self) -> int | None:
        """Return when the oldest segment not yet stored was started; None if there is none."""
        with self._lock:
            if self._sealed:
                return self._sealed[0].created_ns
            return self._open.created_ns if self._open else None

    def make_visible(self, timeout_s: float, rest_s: float | None = None) -> None:
        """Store the open segment for a reader, and wait for it.

        Afterwards the store has everything acknowledged `rest_s` ago. Returns at once if it
        already has, or is busy with a large segment: it then works as fast as it can.

        Args:
            timeout_s: Longest wait.
            rest_s: How long ago the last segment must have been sealed; None: as for small ones.
        """
        rest_s = self.limits.rest_s if rest_s is None else rest_s
        until_s = time.monotonic() + timeout_s
        with self._changed:
            segment = self._open
            self._wait_for_sealed(until_s)
            if segment is not None and segment is self._open and not self._sealed:
                if self._policy.request(segment.begun_s, rest_s, time.monotonic()):
                    self._changed.notify()
                    self._wait_for(segment.name, until_s)
            else:
                # Another reader may have had it sealed meanwhile.
                self._wait_for_sealed(until_s)

    def close(self) -> None:
        """Write and seal accepted requests and refuse new ones; inserts may continue."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._writer.join()

    def _wait_for_sealed(self, until_s: float) -> None:
        """Wait until the store has all sealed segments, if they are small."""
        if self._sealed and all(segment.is_small for segment in self._sealed):
            self._wait_for(self._sealed[-1].name, until_s)

    def _wait_for(self, name: str, until_s: float) -> None:
        """Wait until the store has a segment; after one timeout, no reader waits for it again."""
        if name != self._hung_name and not self._leaving.wait_for(
            lambda: name not in [s.name for s in (self._open, *self._sealed) if s is not None],
            until_s - time.monotonic(),
        ):
            self._hung_name = name

    def _replace(self, segment: SealedSegment, changed: SealedSegment) -> None:
        with self._changed:
            self._sealed[self._sealed.index(segment)] = changed
            self._segment_bytes += changed.num_bytes - segment.num_bytes

    # The writer thread

    def _write_forever(self) -> None:
        while True:
            with self._changed:
                while not self._has_work():
                    # Computed each time: what is due may have changed when this thread wakes.
                    self._changed.wait(self._seconds_to_seal())
                batch, self._pending = self._pending, []
                is_last = self._is_closing
            if batch:
                self._write(batch)
            if self._open is not None and (is_last or self._is_ripe(self._open)):
                self._seal(self._open)
            if is_last:
                return

    def _has_work(self) -> bool:
        return (
            bool(self._pending)
            or self._is_closing
            or (self._open is not None and self._is_ripe(self._open))
        )

    def _seconds_to_seal(self) -> float | None:
        """Return when to wake up if nothing happens; None if nothing is due."""
        if self._open is None or self._sealed:
            return None
        due_s = self._policy.due_s(self._open.begun_s, self._open.num_spans)
        return max(due_s - time.monotonic(), 0.0)

    def _is_ripe(self, segment: _OpenSegment) -> bool:
        if segment.num_bytes >= self.limits.seal_bytes:
            return True
        if self._sealed:
            # The store is busy: one larger insert is cheaper than two small ones. This thread wakes
            # when the last sealed segment is removed.
            return False
        return time.monotonic() >= self._policy.due_s(segment.begun_s, segment.num_spans)

    def _write(self, batch: list[_Pending]) -> None:
        size = sum(len(entry.body) + RECORD.size for entry in batch)
        # Requests of senders that gave up are written too; from here on none can cancel.
        waiting = [entry for entry in batch if entry.done.set_running_or_notify_cancel()]
        try:
            segment = self._open or self._begin()
            parts: list[bytes] = []
            for number, entry in enumerate(batch, segment.num_records):
                parts += (encode_record(segment.marker, number, entry.body), entry.body)
            write_all(segment.fd, parts)
            os.fdatasync(segment.fd)
        except OSError as error:
            self._abandon(waiting, size, error)
            return
        self._refusals.clear()
        segment.num_bytes += size
        segment.num_records += len(batch)
        segment.num_spans += sum(entry.num_spans for entry in batch)
        with self._changed:
            self._pending_bytes -= size
            self._segment_bytes += size
        self.repeats.remember(entry.digest for entry in batch if entry.digest is not None)
        for entry in waiting:
            entry.done.set_result(None)

    def _abandon(self, waiting: list[_Pending], size: int, error: OSError) -> None:
        """Refuse a batch that did not reach the disk, and cut off any part that did."""
        self._refusals.record(error)
        segment = self._open
        if segment is not None:
            attempt("truncate", segment.path, partial(os.ftruncate, segment.fd, segment.num_bytes))
            # After a failed fdatasync the page cache cannot be trusted: use another file.
            self._seal(segment)
        with self._changed:
            self._pending_bytes -= size
        for entry in waiting:
            entry.done.set_exception(LogWriteError(f"cannot write to the log: {error}"))

    def _begin(self) -> _OpenSegment:
        created_ns = time.time_ns()
        name = make_name(created_ns, self._node)
        path = self.folder / f"{name}{OPEN_SUFFIX}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        header = encode_header(name, created_ns)
        try:
            write_all(fd, [header])
            sync_folder(self.folder)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        self._open = _OpenSegment(name, path, fd, created_ns, time.monotonic(), marker_of(name))
        with self._lock:
            self._segment_bytes += len(header)
        return self._open

    def _seal(self, segment: _OpenSegment) -> None:
        attempt("close", segment.path, partial(os.close, segment.fd))
        if segment.num_bytes == HEADER.size:
            # The disk refused the segment's first record. The next start removes what is left.
            attempt("remove", segment.path, partial(segment.path.unlink, missing_ok=True))
            with self._changed:
                self._open = None
                self._segment_bytes -= segment.num_bytes
                self._leaving.notify_all()
            return
        # The suffix only marks the segment as complete; it is inserted anyway.
        renamed = attempt("rename", segment.path, partial(rename_sealed, segment.path))
        path = renamed or segment.path
        with self._changed:
            self._open = None
            if not self._sealed:
                self._taken_s = time.monotonic()
            self._policy.record_sealed(time.monotonic())
            is_small = segment.num_spans < self.limits.small_spans
            self._sealed.append(
                SealedSegment(segment.name, path, segment.num_bytes, segment.created_ns, is_small)
            )
            self._sealing.notify()
