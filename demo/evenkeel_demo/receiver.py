"""A webhook receiver on loopback, standing in for an on-call tool."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ReceivedAlert:
    """One delivered alert; `at` is in seconds since the epoch."""

    at: float
    status: str
    name: str
    severity: str
    summary: str


class WebhookReceiver:
    """Accepts Alertmanager webhook JSON on `port` until closed.

    Args:
        host: The address to listen on.
        port: The port; 0 picks a free one.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.notifications: list[ReceivedAlert] = []
        notifications, known = self.notifications, set[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                if length > MAX_BODY_BYTES:
                    self.send_error(413)
                    return
                # A repeated id is the same notification: updated, or retried after a lost answer.
                key = self.headers.get("Idempotency-Key")
                try:
                    found = parse(self.rfile.read(length))
                except (ValueError, KeyError, TypeError, AttributeError):
                    self.send_error(400)
                    return
                if key is None or key not in known:
                    notifications.extend(found)
                if key is not None:
                    known.add(key)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: the demo shows the notifications."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def has_firing_page(self) -> bool:
        """Return whether a page has fired that has not resolved."""
        last = {each.name: each.status for each in self.notifications if each.severity == "page"}
        return "firing" in last.values()

    @property
    def url(self) -> str:
        """The address to configure as a receiver in an SLO file."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def parse(body: bytes) -> list[ReceivedAlert]:
    """Return the alerts of one Alertmanager webhook body, version 4."""
    now = time.time()
    return [
        ReceivedAlert(
            at=now,
            status=alert["status"],
            name=alert["labels"].get("slo") or alert["labels"]["alertname"],
            severity=alert["labels"].get("severity", ""),
            summary=alert.get("annotations", {}).get("summary", ""),
        )
        for alert in json.loads(body)["alerts"]
    ]
