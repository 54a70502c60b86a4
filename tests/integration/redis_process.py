"""A real redis-server on a free port, in memory only."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.integration.served_model import free_port


@dataclass(frozen=True, slots=True)
class RedisProcess:
    """A running Redis."""

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def run_redis() -> Iterator[RedisProcess]:
    """Start Redis and end it with the block."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1"]
    process = subprocess.Popen(
        [*command, "--save", "", "--appendonly", "no"], stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not _answers(port):
            assert time.monotonic() < deadline and process.poll() is None, "Redis did not start"
            time.sleep(0.02)
        yield RedisProcess(f"redis://127.0.0.1:{port}/0", process)
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(5) == b"+PONG"
    except OSError:
        return False
