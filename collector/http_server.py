"""One HTTP port: a socket that is bound early, and a uvicorn server that leaves signals alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import uvicorn

from collector.tls import Tls
from evenkeel.errors import ConfigurationError

BACKLOG = 2048
KEEP_ALIVE_S = 75
GRACE_S = 1


def listen(host: str, port: int, flag: str) -> socket.socket:
    """Bind a socket; port 0 takes a free one.

    Raises:
        ConfigurationError: If the port is taken or the host is not ours.
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
        raise ConfigurationError(f"cannot listen on {host}:{port} ({flag}): {reason}") from error
    sock.setblocking(False)
    return sock


class HttpServer:
    """An ASGI application on a bound socket, in plain text or TLS."""

    def __init__(self, app: Any, sock: socket.socket, tls: Tls | None = None) -> None:
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=tls.certificate if tls else None,
            ssl_keyfile=tls.key if tls else None,
            ssl_ca_certs=str(tls.client_ca) if tls and tls.client_ca else None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.client_ca else ssl.CERT_NONE,
        )
        self._server = _Server(config)
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
        """Take no more requests, and let running ones end within the grace period."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the service, which stops the ports in order."""
        yield
