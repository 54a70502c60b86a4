"""Writes down what arrives over OTLP/HTTP, one JSON line per request, and passes it on.

    python tools/real_sdks/recorder.py 8124 recorded.jsonl [http://127.0.0.1:4318]

A line has the path, the content type, the `user-agent`, the body (JSON as it came, protobuf in
base64) and the status of the collector's answer, which the sender gets too. Without a collector
the answer is 200.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PASSED_ON = ("content-type", "content-encoding", "user-agent", "authorization")


class Recorder(ThreadingHTTPServer):
    """The server; `path` and `target` as on the command line."""

    def __init__(self, port: int, path: Path, target: str) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.path, self.target, self.lock = path, target.rstrip("/"), threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """Handles one connection."""

    protocol_version = "HTTP/1.1"
    server: Recorder

    def do_POST(self) -> None:
        """Answer a POST request."""
        body = self._read()
        if self.server.target:
            status, kind, data = self._pass_on(body)
        else:
            kind = self.headers.get("content-type")
            status, data = 200, b"{}" if "json" in (kind or "") else b""
        self._write(body, status, data)
        self.send_response(status)
        self.send_header("content-type", kind or "text/plain")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _pass_on(self, body: bytes) -> tuple[int, str | None, bytes]:
        headers = {k: v for k, v in self.headers.items() if k.lower() in PASSED_ON}
        request = urllib.request.Request(self.server.target + self.path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.headers["content-type"], answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["content-type"], error.read()

    def _read(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _write(self, body: bytes, status: int, answer: bytes) -> None:
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        kind = self.headers.get("content-type") or ""
        line: dict[str, Any] = {
            "path": self.path,
            "content_type": kind,
            "user_agent": self.headers.get("user-agent"),
            "status": status,
        }
        if "json" in kind:
            line["body"] = json.loads(body)
        else:
            line["protobuf"] = base64.b64encode(body).decode()
        if status != 200:
            line["answer"] = answer.decode(errors="replace")
        with self.server.lock, self.server.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def main() -> None:
    """Record until interrupted."""
    port, path, *target = sys.argv[1:]
    Recorder(int(port), Path(path), *(target or [""])).serve_forever()


if __name__ == "__main__":
    main()
