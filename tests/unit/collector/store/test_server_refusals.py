"""What the collector says of a ClickHouse server that answers, and cannot be used."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_collector.store.storage import open_server


class Refusing(BaseHTTPRequestHandler):
    """Answers everything with one exception of ClickHouse."""

    text: bytes

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(500)
        self.send_header("X-ClickHouse-Exception-Code", "1")
        self.send_header("Content-Length", str(len(self.text)))
        self.end_headers()
        self.wfile.write(self.text)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            b"Code: 516. DB::Exception: u: Authentication failed. (AUTHENTICATION_FAILED)",
            "refuses the login: u: Authentication failed; correct user and password",
        ),
        (b"Code: 243. DB::Exception: No space. (NOT_ENOUGH_SPACE)", "cannot be used: .*No space"),
    ],
)
def test_a_server_that_answers_is_not_called_absent(text: bytes, reason: str) -> None:
    handler = type("Refusing", (Refusing,), {"text": text})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with pytest.raises(ConfigurationError, match=reason) as refused:
            open_server(f"http://u:hunter2@127.0.0.1:{server.server_port}")
        server.shutdown()
    assert "hunter2" not in str(refused.value)
    assert "running" not in str(refused.value)
