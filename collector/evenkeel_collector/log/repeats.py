"""Recognises retries of recently accepted bodies, so that they are not stored twice.

An exporter that lost the response sends the same bytes again (OTLP: the server may deduplicate). A
body is identified by a 128-bit hash over its signal, its tenant and its bytes. The hash is written
to the log in front of the body, so both reach the disk together, and to a journal once the segment
leaves the log; a restarted collector reads both.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from evenkeel.private_files import FILE_MODE, FOLDER_MODE

logger = logging.getLogger(__name__)

DIGEST_BYTES = 16
# (1005 << 3) | 2 as a varint, and the length. Neither OTLP nor the store's schema has this field.
_FIELD = b"\xea\x3e" + bytes([DIGEST_BYTES])
MARK_BYTES = len(_FIELD) + DIGEST_BYTES

WINDOW_S = 600.0
# About 60 bytes each: up to 30 MiB for two windows.
MAX_DIGESTS = 262_144
_SUFFIX = ".digests"


def repeats_of(log: Path) -> Path:
    """Return the folder of a log's journal."""
    return log.with_name("repeats")


def digest_of(path: str, tenant: str | None, body: bytes) -> bytes:
    """Return a body's digest: equal only for the same signal, tenant and bytes."""
    # Lengths first, so that different tenants and bodies cannot concatenate to the same bytes.
    sender = b"" if tenant is None else b"t" + tenant.encode()
    head = f"{path} {len(sender)} ".encode() + sender
    found = hashlib.sha256(head)
    found.update(body)
    return found.digest()[:DIGEST_BYTES]


def mark(payload: bytes, digest: bytes) -> bytes:
    """Return a log payload with its digest in front."""
    return _FIELD + digest + payload


def read_mark(payload: bytes) -> bytes | None:
    """Return the digest in front of a payload; None if there is none."""
    if not payload.startswith(_FIELD) or len(payload) < MARK_BYTES:
        return None
    return payload[len(_FIELD) : MARK_BYTES]


class SeenBodies:
    """The digests of the current and the previous window; thread-safe.

    A digest is kept for at least `window_s`, unless more than `max_digests` bodies arrive in a
    window, and forgotten some windows later.

    Args:
        folder: The journal's folder; created at the first save.
        window_s: How long a body is remembered.
        max_digests: Most digests kept per window.
        clock: Unix seconds.

    Raises:
        OSError: If the journal cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        window_s: float = WINDOW_S,
        max_digests: int = MAX_DIGESTS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._window_s = window_s
        self._max_digests = max_digests
        self._clock = clock
        self._lock = threading.Lock()
        self._unsaved: list[bytes] = []
        self._began_s = clock()
        self._new: set[bytes] = set()
        self._old: set[bytes] = set()
        self._load()

    def knows(self, digest: bytes) -> bool:
        """Return whether a body with this digest was accepted within the window."""
        with self._lock:
            self._turn()
            return digest in self._new or digest in self._old

    def remember(self, digests: Iterable[bytes]) -> None:
        """Remember bodies that are on disk."""
        with self._lock:
            self._turn()
            for digest in digests:
                self._new.add(digest)
                self._unsaved.append(digest)
            del self._unsaved[: -self._max_digests]

    def remember_marks(self, payloads: Iterable[bytes]) -> None:
        """Remember those bodies of a segment on disk that carry a digest."""
        marks = (read_mark(payload) for payload in payloads)
        self.remember(digest for digest in marks if digest is not None)

    def save(self) -> None:
        """Append unsaved digests to the journal; called before the log deletes a segment."""
        with self._lock:
            self._turn()
            unsaved, self._unsaved = self._unsaved, []
            path = self._path(self._began_s)
            if not unsaved:
                return
            try:
                self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
                try:
                    # A crash may have torn the last digest.
                    os.ftruncate(fd, os.fstat(fd).st_size // DIGEST_BYTES * DIGEST_BYTES)
                    os.write(fd, b"".join(unsaved))
                    os.fdatasync(fd)
                finally:
                    os.close(fd)
            except OSError as error:
                # Accepted data is safe; only a retry after a restart would count twice.
                logger.warning("cannot save digests of bodies path=%s error=%s", path, error)

    def _turn(self) -> None:
        """Start a new window if the current one is over or full."""
        age_s = self._clock() - self._began_s
        if 0 <= age_s < self._window_s and len(self._new) < self._max_digests:
            return
        if age_s < 2 * self._window_s:
            self._old = self._new
        else:
            # Nothing arrived for so long that the unsaved digests have expired too.
            self._old = set()
            self._unsaved.clear()
        self._new = set()
        self._began_s = self._clock()
        self._clean()

    def _clean(self) -> None:
        """Delete all journals except those of the last two saved windows."""
        for _, path in self._journals()[:-2]:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                # Called before each body is taken, and by the thread that writes them.
                logger.warning("cannot delete digests of bodies path=%s error=%s", path, error)

    def _load(self) -> None:
        now_s = self._clock()
        journals = [
            (began_s, path)
            for began_s, path in self._journals()
            if now_s - began_s < 2 * self._window_s
        ]
        for began_s, path in journals[-2:]:
            data = path.read_bytes()[-self._max_digests * DIGEST_BYTES :]
            whole = len(data) // DIGEST_BYTES * DIGEST_BYTES
            self._old = self._new
            self._new = {
                data[begin : begin + DIGEST_BYTES] for begin in range(0, whole, DIGEST_BYTES)
            }
            # A clock set back must not keep a window open.
            self._began_s = min(began_s, now_s)

    def _journals(self) -> list[tuple[float, Path]]:
        """Return the journals and the Unix seconds at which their windows began, oldest first.

        Those that begin after now are from before a clock was set back, so they are the oldest.
        """
        now_s = self._clock()
        return sorted(
            (
                (int(path.stem), path)
                for path in self._folder.glob(f"*{_SUFFIX}")
                if path.stem.isdecimal()
            ),
            key=lambda journal: (journal[0] <= now_s, journal),
        )

    def _path(self, began_s: float) -> Path:
        return self._folder / f"{int(began_s):012d}{_SUFFIX}"
