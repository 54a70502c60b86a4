"""A webhook receiver on loopback that answers as told and remembers what it got."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# No test leaves a thread behind for ever.
HELD_AT_MOST_S = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """How one request is answered: with a status and headers, once `held` is set, or never."""

    status: int = 200
    held: threading.Event | None = None
    is_lost: bool = False
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived, and how it was answered."""

    notification_id: str
    body: dict[str, Any]
    status: int
    is_answer_lost: bool = False


class AlertReceiver:
    """Answers from a script, then with 200; `received` is in the order of arrival."""

    def __init__(self, script: Sequence[Answer] = ()) -> None:
        self.received: list[Received] = []
        self._script = list(script)
        self._lock = threading.Lock()
        self.url = ""

    def take(self, notification_id: str, body: dict[str, Any]) -> Answer:
        """Note a request and return its answer."""
        with self._lock:
            answer = self._script.pop(0) if self._script else Answer()
            self.received.append(Received(notification_id, body, answer.status, answer.is_lost))
            return answer

    def mend(self) -> None:
        """Forget the script: from now on answer with 200."""
        with self._lock:
            self._script.clear()

    def accepted(self) -> list[Received]:
        """Return what was answered with 200."""
        with self._lock:
            return [received for received in self.received if received.status == 200]

    def wait_for(self, is_met: Callable[[list[Received]], bool], timeout_s: float = 120.0) -> None:
        """Wait until what was accepted meets a condition.

        Raises:
            AssertionError: If it does not in time; says what had arrived.
        """
        deadline = time.monotonic() + timeout_s
        while not is_met(self.accepted()):
            assert time.monotonic() < deadline, [
                (r.status, r.body["status"], r.body["commonLabels"]) for r in self.received
            ]
            time.sleep(0.02)


@contextmanager
def serve_alerts(script: Sequence[Answer] = ()) -> Iterator[AlertReceiver]:
    """Run a receiver on a free port for the length of the block."""
    receiver = AlertReceiver(script)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            content = self.rfile.read(length)
            if len(content) < length:
                self.close_connection = True
                return  # the sender was killed
            body = json.loads(content)
            answer = receiver.take(self.headers["Idempotency-Key"], body)
            if answer.held is not None:
                answer.held.wait(HELD_AT_MOST_S)
            if answer.is_lost:
                self.close_connection = True
                return
            try:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:
                pass  # the client gave up waiting, which is what holding an answer is for

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
