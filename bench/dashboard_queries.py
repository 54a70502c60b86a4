"""Record the dashboard's queries with a proxy in front of the query port."""

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import evenkeel_dashboard
from evenkeel.store import QUERIES

_HOP = ("connection", "transfer-encoding", "content-length", "host")


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of the dashboard.

    Attributes:
        name: Its file, without its suffix; "" for what is no query of ours.
        begin_s: By the clock of `time.perf_counter`; `end_s` when all of its answer had come.
    """

    name: str
    begin_s: float
    end_s: float

    @property
    def took_s(self) -> float:
        """How long it took, in seconds."""
        return self.end_s - self.begin_s


@contextlib.contextmanager
def noting(query_url: str) -> Iterator[tuple[str, list[Asked]]]:
    """A proxy before a query port: its URL, and the queries that came through it."""
    asked: list[Asked] = []
    target = urlsplit(query_url)
    assert target.hostname is not None
    host, port = target.hostname, target.port or 80

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.upstream = http.client.HTTPConnection(host, port, timeout=60)

        def finish(self) -> None:
            self.upstream.close()
            super().finish()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            kept = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
            begin_s = time.perf_counter()
            try:
                self.upstream.request(self.command, self.path, body, kept)
                answer = self.upstream.getresponse()
            except (ConnectionError, http.client.HTTPException):
                # The port closed a connection that was idle: it is opened again.
                self.upstream.close()
                self.upstream.request(self.command, self.path, body, kept)
                answer = self.upstream.getresponse()
            data = answer.read()
            asked.append(Asked(name_of(body), begin_s, time.perf_counter()))
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


def name_of(body: bytes) -> str:
    """Return which query of the dashboard a body holds."""
    # Queries begin with a comment that names them; some clients wrap them in a form.
    return next((name for first, name in _first_lines().items() if first in body), "")


@cache
def _first_lines() -> dict[bytes, str]:
    return {
        path.read_bytes().splitlines()[0]: path.stem
        for folder in (Path(evenkeel_dashboard.__file__).parent, QUERIES)
        for path in folder.rglob("*.sql")
    }
