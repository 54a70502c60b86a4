"""Limits how many of the gRPC port's connections one address may hold.

gRPC accepts its connections itself and limits only all of them together. They are found among the
process's descriptors; the kernel knows where each came from, and for how long it has been silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import struct
import time
from collections import defaultdict
from typing import NamedTuple

from evenkeel_collector.telemetry.metrics import SelfMetrics

PORT = "grpc"
CHECK_EVERY_S = 1.0
_DESCRIPTORS = "/proc/self/fd"
# `tcpi_state` and `tcpi_last_data_recv`, in milliseconds, of Linux's tcp_info
# (include/uapi/linux/tcp.h).
_STATE_AND_SILENT_MS = struct.Struct("=B51xI")
# TCP_ESTABLISHED and TCP_CLOSE_WAIT (include/net/tcp_states.h): this end has not closed it.
_OPEN_STATES = frozenset({1, 8})


class _Connection(NamedTuple):
    heard_at: float
    fd: int
    address: str
    port: int


class GrpcConnections:
    """The connections of the gRPC port.

    Args:
        port: The port that gRPC has bound.
        max_connections: Its limit; up to half of it from one address.
        metrics: Where they are counted.
    """

    def __init__(self, port: int, max_connections: int, metrics: SelfMetrics) -> None:
        self._port = port
        self._max_of_address = max(max_connections // 2, 1)
        self._closed = metrics.connections_closed.labels(PORT, "room")
        self._num_open = metrics.connections.labels(PORT)

    async def follow(self) -> None:
        """Check every second, until cancelled."""
        while True:
            await asyncio.to_thread(self.check)
            await asyncio.sleep(CHECK_EVERY_S)

    def check(self) -> None:
        """Close what an address holds beyond its share, beginning with the longest silent."""
        of_address: dict[str, list[_Connection]] = defaultdict(list)
        for fd in _descriptors():
            copy = _copy(fd, self._port)
            if copy is not None:
                with copy, contextlib.suppress(OSError):
                    found = _describe(fd, copy)
                    of_address[found.address].append(found)
        self._num_open.set(sum(map(len, of_address.values())))
        for connections in of_address.values():
            num_surplus = max(len(connections) - self._max_of_address, 0)
            for connection in sorted(connections)[:num_surplus]:
                self._close(connection)

    def _close(self, connection: _Connection) -> None:
        copy = _copy(connection.fd, self._port)
        if copy is not None:
            with copy, contextlib.suppress(OSError):
                if _describe(connection.fd, copy)[1:] == connection[1:]:
                    # gRPC reads the end of its connection, and closes it.
                    copy.shutdown(socket.SHUT_RDWR)
                    self._closed.inc()


def _descriptors() -> list[int]:
    # A sandbox may hide them, and none may be left to read their list.
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(_DESCRIPTORS)]
    return []


def _copy(fd: int, port: int) -> socket.socket | None:
    """Return a copy of a descriptor that is a socket of the port; None if it is something else.

    Meanwhile gRPC may close the descriptor, and something else open it anew, but not the copy.
    """
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            copy = os.dup(fd)
            try:
                found = socket.socket(fileno=copy)
            except OSError:
                os.close(copy)
                raise
            if found.family in (socket.AF_INET, socket.AF_INET6):
                if found.getsockname()[1] == port:
                    return found
            found.close()
    return None


def _describe(fd: int, connection: socket.socket) -> _Connection:
    """Return what the kernel knows of a connection.

    Raises:
        OSError: If it is not connected: it listens, or was closed. What was closed here keeps its
            address until gRPC has read the end.
    """
    address, port = connection.getpeername()[:2]
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _STATE_AND_SILENT_MS.size)
    state, silent_ms = _STATE_AND_SILENT_MS.unpack(info)
    if state not in _OPEN_STATES:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
    # Silences measured one after the other do not compare: a busy machine may stop in between.
    return _Connection(time.monotonic() - silent_ms / 1e3, fd, address, port)
