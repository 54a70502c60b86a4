"""Limits an HTTP port's connections: their number, the share per address, and their duration.

An idle connection costs a file descriptor, which the log and the store need too. If a port is full,
the connection that has kept it waiting longest is closed for the next one.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import time
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from evenkeel_collector.telemetry.metrics import SelfMetrics

logger = logging.getLogger(__name__)

# Requested at start: the store alone may have thousands of files open.
WANTED_DESCRIPTORS = 65_536
# Connections get at most half of them; the rest is for the log and the store.
CONNECTIONS_SHARE = 2
NUM_PORTS = 3

HANDSHAKE_S = 10.0
HEAD_S = 10.0
HEAD_BYTES = 64 << 10
# A body may take this long, and longer while it arrives at this rate or faster.
BODY_S = 30.0
BODY_BYTES_PER_S = 64 << 10
ANSWER_S = 60.0
IDLE_S = 75.0


def plain_answer(status: bytes, text: bytes, headers: bytes = b"") -> bytes:
    """Return a complete response for a connection that is closed afterwards."""
    return (
        b"HTTP/1.1 %s\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
        b"%sconnection: close\r\n\r\n%s" % (status, len(text), headers, text)
    )


_HEAD_TOO_LARGE = plain_answer(
    b"431 Request Header Fields Too Large", b"the headers are larger than %d bytes\n" % HEAD_BYTES
)


def raise_descriptor_limit() -> int:
    """Raise the process's open-file limit as far as permitted, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, WANTED_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return WANTED_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def connections_per_port(wanted: int, num_descriptors: int) -> int:
    """Return the connection limit per port, leaving descriptors for the log and the store."""
    return max(min(wanted, num_descriptors // CONNECTIONS_SHARE // NUM_PORTS), 1)


class Wait(IntEnum):
    """What a connection is waiting for, in the order in which connections are evicted."""

    HANDSHAKE = 0
    HEAD = 1
    BODY = 2
    READER = 3  # the response is ready, but the client does not read it
    IDLE = 4
    US = 5  # its request is being answered: never closed


LIMIT_S = {
    Wait.HANDSHAKE: HANDSHAKE_S,
    Wait.HEAD: HEAD_S,
    Wait.BODY: BODY_S,
    Wait.READER: ANSWER_S,
    Wait.IDLE: IDLE_S,
}


@dataclass(slots=True, eq=False)
class Connection:
    """One accepted connection, from before its handshake until it is closed.

    Attributes:
        peer: The address it came from, without the port.
        close: Closes it at once; set when it is opened.
        wait: What it waits for, and `since_s` when that began, on the monotonic clock.
        num_body_bytes: Bytes received of the current body.
    """

    peer: str
    close: Callable[[], Any] = lambda: None
    wait: Wait = Wait.HANDSHAKE
    since_s: float = field(default_factory=time.monotonic)
    num_body_bytes: int = 0

    def waits_for(self, wait: Wait) -> None:
        """Record what the connection is waiting for from now on."""
        self.wait = wait
        self.since_s = time.monotonic()

    def is_late(self, now_s: float) -> bool:
        """Return whether the connection has exceeded its time limit."""
        limit_s = LIMIT_S.get(self.wait)
        if limit_s is None:
            return False
        if self.wait is Wait.BODY:
            limit_s += self.num_body_bytes / BODY_BYTES_PER_S
        return now_s - self.since_s > limit_s


class Connections:
    """The connections of one port; used by the event loop's thread alone.

    Args:
        port: The port's name on `/metrics`.
        max_connections: The limit; up to half of it from one address.
        metrics: Where they are counted.
    """

    def __init__(self, port: str, max_connections: int, metrics: SelfMetrics) -> None:
        self._port = port
        self._max = max_connections
        self._max_of_peer = max(max_connections // 2, 1)
        self._metrics = metrics
        self._all: set[Connection] = set()
        self._num_of: Tally[str] = Tally()
        metrics.connections.labels(port).set_function(self.num_open)

    def num_open(self) -> int:
        """Return the number of open connections."""
        return len(self._all)

    def admit(self, peer: str) -> Connection | None:
        """Return a slot for a connection, or None if active requests hold all slots."""
        if self._num_of[peer] >= self._max_of_peer:
            self._make_room([c for c in self._all if c.peer == peer])
            if self._num_of[peer] >= self._max_of_peer:
                self._count("refused")
                return None
        elif len(self._all) >= self._max:
            [(largest, _)] = self._num_of.most_common(1)
            self._make_room([c for c in self._all if c.peer == largest])
            if len(self._all) >= self._max:
                self._make_room(list(self._all))
            if len(self._all) >= self._max:
                self._count("refused")
                return None
        connection = Connection(peer)
        self._all.add(connection)
        self._num_of[peer] += 1
        return connection

    def release(self, connection: Connection) -> None:
        """Release a connection's slot; repeated calls do nothing."""
        if connection not in self._all:
            return
        self._all.remove(connection)
        self._num_of[connection.peer] -= 1
        if not self._num_of[connection.peer]:
            del self._num_of[connection.peer]

    def close_late(self) -> None:
        """Close the connections that have exceeded their time limit."""
        now_s = time.monotonic()
        for connection in [c for c in self._all if c.is_late(now_s)]:
            self._close(connection, connection.wait.name.lower())

    def _make_room(self, candidates: list[Connection]) -> None:
        """Close the candidates that have waited longest, a few at a time.

        Closing several avoids a search of all connections for each new one.
        """
        waiting = sorted(
            (c for c in candidates if c.wait is not Wait.US),
            # A new connection is not worse than one that began its request long ago.
            key=lambda c: (max(c.wait, Wait.HEAD), c.since_s),
        )
        for connection in waiting[: max(len(candidates) // 16, 1)]:
            self._close(connection, "room")

    def _close(self, connection: Connection, reason: str) -> None:
        self._count(reason)
        self.release(connection)
        connection.close()

    def count_malformed(self) -> None:
        """Count a connection that sent something else than HTTP."""
        self._count("malformed")

    def _count(self, reason: str) -> None:
        self._metrics.connections_closed.labels(self._port, reason).inc()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which also records what the connection is waiting for.

    Args:
        connection: Its slot.
        connections: The port's connections, which own the slot.
    """

    def __init__(self, *, connection: Connection, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self._connection = connection
        self._connections = connections
        # The part of a request being read: its head, its body, or None.
        self._reading: Wait | None = None
        self._had_request = False
        self._num_head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._connection.close = transport.abort
        self._update_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the slot."""
        self._connections.release(self._connection)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Continue reading; refuse a head that is too long."""
        super().data_received(data)
        if self._reading is not Wait.HEAD:
            self._num_head_bytes = 0
            return
        self._num_head_bytes += len(data)
        if self._num_head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._connections.count_malformed()
        super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """Wait for the rest of the head."""
        super().on_message_begin()
        self._reading = Wait.HEAD
        self._update_wait()

    def on_headers_complete(self) -> None:
        """Wait for the body."""
        self._reading = Wait.BODY
        self._had_request = True
        self._connection.num_body_bytes = 0
        super().on_headers_complete()
        self._update_wait()

    def on_body(self, body: bytes) -> None:
        """Count received bytes: a body that keeps arriving may take longer."""
        self._connection.num_body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Start waiting for the answer, or for the next request if the answer was sent."""
        self._reading = None
        super().on_message_complete()
        self._update_wait()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._update_wait()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._update_wait()

    def resume_writing(self) -> None:
        """Resume answering."""
        super().resume_writing()
        self._update_wait()

    def _update_wait(self) -> None:
        wait = self._find_wait()
        if wait is not self._connection.wait:
            self._connection.waits_for(wait)

    def _find_wait(self) -> Wait:
        if self.flow.write_paused:
            return Wait.READER
        if self.cycle is not None and not self.cycle.response_complete:
            # A pipelined request does not count as awaited yet.
            is_own_body = self._reading is Wait.BODY and not self.pipeline
            return Wait.BODY if is_own_body else Wait.US
        if self._reading is not None:
            return self._reading
        return Wait.IDLE if self._had_request else Wait.HEAD
