"""One HTTP port: a socket bound early, served by uvicorn with limited connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvicorn

from evenkeel.errors import ConfigurationError
from evenkeel.http_address import with_port
from evenkeel_collector.ports.connections import (
    HANDSHAKE_S,
    IDLE_S,
    BoundedProtocol,
    Connection,
    Connections,
    plain_answer,
)
from evenkeel_collector.ports.tls import Tls

logger = logging.getLogger(__name__)

BACKLOG = 2048
GRACE_S = 1
CHECK_S = 1.0
# The date in answers is of whole seconds.
TICK_S = 1.0
ACCEPTS_AT_ONCE = 64
# If no file descriptor is left, accepting is retried after this long.
ACCEPT_PAUSE_S = 0.1
_TOO_MANY = plain_answer(
    b"503 Service Unavailable", b"too many connections\n", b"retry-after: 1\r\n"
)


def listen(host: str, port: int, flag: str) -> socket.socket:
    """Bind a socket; port 0 takes a free one.

    Raises:
        ConfigurationError: If the port is in use or the host is not a local address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        reason = error.strerror or str(error)
        raise ConfigurationError(
            f"cannot listen on {with_port(host, port)} ({flag}): {reason}"
        ) from error
    sock.setblocking(False)
    return sock


class Acceptor:
    """Accepts connections on one listening socket, each with its own slot.

    Args:
        sock: Listens, and does not block.
        connections: Provides the slots.
        make_protocol: Returns the protocol for a connection with a slot.
        tls: The certificate; None for plain text.
    """

    def __init__(
        self,
        sock: socket.socket,
        connections: Connections,
        make_protocol: Callable[[Connection], BoundedProtocol],
        tls: Tls | None,
    ) -> None:
        self._sock = sock
        self._connections = connections
        self._make_protocol = make_protocol
        self._tls = tls
        self._opening: set[asyncio.Task[None]] = set()
        self._checking: asyncio.Task[None] | None = None
        self._resuming: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start accepting."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._sock, self._accept)
        self._checking = loop.create_task(self._check_forever())

    def stop(self) -> None:
        """Stop accepting; open connections stay open."""
        asyncio.get_running_loop().remove_reader(self._sock)
        if self._resuming is not None:
            self._resuming.cancel()
        for task in (self._checking, *self._opening):
            if task is not None:
                task.cancel()

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # No descriptor is left. The socket stays readable, so retry later.
                loop.remove_reader(self._sock)
                self._resuming = loop.call_later(ACCEPT_PAUSE_S, self._resume)
                return
            sock.setblocking(False)
            connection = self._connections.admit(str(address[0]))
            if connection is None:
                self._turn_away(sock)
                continue
            task = loop.create_task(self._open(sock, connection))
            connection.close = task.cancel
            self._opening.add(task)
            task.add_done_callback(partial(self._opened, sock, connection))

    def _resume(self) -> None:
        asyncio.get_running_loop().add_reader(self._sock, self._accept)

    async def _open(self, sock: socket.socket, connection: Connection) -> None:
        """Do the TLS handshake, if any, and pass the connection to its protocol."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self._make_protocol(connection),
            sock,
            ssl=self._tls.current.context if self._tls else None,
            ssl_handshake_timeout=HANDSHAKE_S if self._tls else None,
        )

    def _opened(
        self, sock: socket.socket, connection: Connection, task: asyncio.Task[None]
    ) -> None:
        self._opening.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        # The client left, was too slow or failed the handshake, so there is no response. The event
        # loop closes its own part of the socket.
        self._connections.release(connection)
        sock.close()
        if error is not None and not isinstance(error, OSError):
            logger.error("connection not opened error=%r", error)

    def _turn_away(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            if self._tls is None:
                sock.send(_TOO_MANY)

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self._connections.close_late()


class HttpServer:
    """An ASGI application on a bound socket, in plain text or TLS."""

    def __init__(
        self, app: Any, sock: socket.socket, connections: Connections, tls: Tls | None = None
    ) -> None:
        config = uvicorn.Config(
            app,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=int(IDLE_S),
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = _Server(config, sock, connections, tls)
        self._sock = sock
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return once requests are answered."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._sock]))
        while not self._server.started:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Stop taking requests and let running ones finish within the grace period."""
        self._server.exit()
        if self._task is not None:
            await self._task


class _Server(uvicorn.Server):
    """uvicorn's server, with limited connections and without signal handlers."""

    def __init__(
        self,
        config: uvicorn.Config,
        sock: socket.socket,
        connections: Connections,
        tls: Tls | None,
    ) -> None:
        super().__init__(config)
        self._tls = tls
        self._acceptor: Acceptor | None = None
        self._sock = sock
        self._connections = connections
        self._exit = asyncio.Event()

    def exit(self) -> None:
        """End `serve`."""
        self.should_exit = True
        self._exit.set()

    async def main_loop(self) -> None:
        """Keep the date of the answers; unlike uvicorn, end as soon as that is asked for."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exit.wait(), TICK_S)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections with our own limits: uvicorn has none before a request."""
        self.servers = []
        self._acceptor = Acceptor(self._sock, self._connections, self._make_protocol, self._tls)
        self._acceptor.start()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, then shut down like uvicorn, which takes 0.1 s or more."""
        if self._acceptor is not None:
            self._acceptor.stop()
        self._sock.close()
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)

    def _make_protocol(self, connection: Connection) -> BoundedProtocol:
        return BoundedProtocol(
            connection=connection,
            connections=self._connections,
            config=self.config,
            server_state=self.server_state,
            app_state={},
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the service, which stops the ports in order."""
        yield
