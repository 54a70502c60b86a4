"""A loopback chat server that can go down, come back and refuse, and counts its answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import ThreadingHTTPServer
from typing import Any

from tests.fixtures.http_stub import QuietHandler

Refusal = tuple[int, Mapping[str, str]] | bool | None
MODELS = json.dumps({"data": [{"id": "m"}]}).encode()


def event(payload: object) -> bytes:
    return f"data: {json.dumps(payload)}\n\n".encode()


def spoken(text: str) -> bytes:
    return (
        event({"choices": [{"delta": {"content": text}}]})
        + event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        + event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
        + b"data: [DONE]\n\n"
    )


class FlakyServer:
    """Echoes each question, or answers with `speak(system prompt, question)`.

    `refusals` apply to the next requests: a status, `None` to break the connection, False for none.
    After `hold`, nothing is answered any more until the server has gone away.

    Args:
        delay_s: Delay before each answer, in seconds.
        on_answer: Called with the number of answers at each one, one after the other.
    """

    def __init__(
        self, delay_s: float = 0.0, on_answer: Callable[[int], None] = lambda number: None
    ) -> None:
        self.delay_s = delay_s
        self.on_answer = on_answer
        self.speak: Callable[[str, str], str] = lambda system, question: question
        self.refusals: list[Refusal] = []
        self.num_requests = 0
        self.keys: set[str | None] = set()
        self.answered: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._may_answer = threading.Event()
        self._may_answer.set()
        self._port = 0
        self._server: _Listening | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def come_back(self) -> None:
        self._server = _Listening(self, self._port)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def go_away(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.end()
        self._may_answer.set()

    def hold(self) -> None:
        self._may_answer.clear()

    def refuse_no_more(self) -> None:
        with self._lock:
            self.refusals.clear()

    def prepare(self) -> None:
        """Wait until it is time for an answer."""
        time.sleep(self.delay_s)
        self._may_answer.wait()

    def __enter__(self) -> FlakyServer:
        self.come_back()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_away()

    def next_refusal(self) -> Refusal:
        """Return the next refusal; False if there is none."""
        with self._lock:
            self.num_requests += 1
            return self.refusals.pop(0) if self.refusals else False

    def record(self, question: str) -> None:
        with self._lock:
            self.answered[question] += 1
            self.on_answer(sum(self.answered.values()))


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, flaky: FlakyServer, port: int) -> None:
        self.flaky = flaky
        self._open: set[Any] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def get_request(self) -> Any:
        request, address = super().get_request()
        self._open.add(request)
        return request, address

    def handle_error(self, *_: object) -> None:
        """Ignore cut connections; they are intended."""

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        for request in self._open:
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class _Handler(QuietHandler):
    server: _Listening
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.server.flaky.keys.add(self.headers["Authorization"])
        self._send(200, MODELS if self.path == "/v1/models" else b'{"version": "test-1"}')

    def do_POST(self) -> None:
        self.server.flaky.keys.add(self.headers["Authorization"])
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        flaky = self.server.flaky
        refusal = flaky.next_refusal()
        if refusal is None:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif isinstance(refusal, tuple):
            self._send(refusal[0], b"busy", refusal[1])
        else:
            flaky.prepare()
            turns = {turn["role"]: turn["content"] for turn in body["messages"]}
            # First, so that who has the answer finds it counted.
            flaky.record(f"{turns.get('system', '')}|{turns['user']}")
            self._send(200, spoken(flaky.speak(turns.get("system", ""), turns["user"])))

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
