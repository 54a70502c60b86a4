"""A ClickHouse server for tests: chDB in a process of its own behind ClickHouse's HTTP protocol.

It takes reads, writes and DDL, which the collector's query port does not. Run as a program:
PORT FOLDER [SETTING=VALUE...], settings of every insert that does not say otherwise.
"""

import contextlib
import gzip
import http.server
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb
import clickhouse_connect
import lz4.frame

from tests.integration.collector_process import collector_environment

INSERT = re.compile(r"\s*INSERT INTO ([\w.`]+)\s*(?:\(([^)]*)\))?\s*FORMAT (\w+)", re.IGNORECASE)
DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.decompress,
    "lz4": lz4.frame.decompress,
}
TRANSPORT = {
    "query", "database", "default_format", "query_id", "session_id", "compress", "decompress",
    "client_protocol_version", "enable_http_compression", "buffer_size", "wait_end_of_query",
    "send_progress_in_http_headers", "http_headers_progress_interval_ms", "role",
    "cancel_http_readonly_queries_on_client_close",
}  # fmt: skip


class ClickHouseServer:
    """The server as tests see it: it may be killed and started again on the same folder."""

    def __init__(self, port: int, folder: Path, insert_settings: Mapping[str, str] = {}) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._command = [sys.executable, "-m", __name__, str(port), str(folder.resolve())]
        self._command += [f"{name}={value}" for name, value in insert_settings.items()]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start it and return once it answers."""
        self._process = subprocess.Popen(
            self._command,
            env=collector_environment(),
            stderr=subprocess.DEVNULL,
            cwd=self._folder.parent,  # where the engine keeps the schemas that came inline
        )
        deadline = time.monotonic() + 240
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/ping", timeout=1).close()
                return
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        client = clickhouse_connect.get_client(dsn=self.url, database="evenkeel")
        try:
            return [tuple(row) for row in client.query(sql).result_rows]
        finally:
            client.close()


def answer(path: str, url: str, body: bytes, insert_settings: Mapping[str, str]) -> bytes:
    parameters = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    settings = {
        name: value
        for name, value in parameters.items()
        if name not in TRANSPORT and not name.startswith("param_")
    }
    database = parameters.get("database", "default")
    sql = parameters.get("query", "")
    if not sql and INSERT.match(body[:1000].decode(errors="replace")):
        line, _, body = body.partition(b"\n")
        sql = line.decode()
    if match := INSERT.match(sql):
        client = clickhouse_connect.get_client(interface="chdb", path=path, database=database)
        try:
            columns = [each.strip(" `") for each in match[2].split(",")] if match[2] else None
            client.raw_insert(
                match[1],
                column_names=columns,
                insert_block=body,
                fmt=match[3],
                settings={**insert_settings, **settings},
            )
        finally:
            client.close()
        return b""
    session = chdb.connect(path)
    try:
        session.query(f"USE {database}", "TabSeparated")
        for name, value in settings.items():
            session.query(f"SET {name} = '{value}'", "TabSeparated")
        given = {k.removeprefix("param_"): v for k, v in parameters.items() if "param_" in k}
        text = "\n".join(part for part in (sql, body.decode()) if part)
        result = session.query(text, parameters.get("default_format", "TabSeparated"), params=given)
        return bytes(result.bytes() or b"")
    finally:
        session.close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    path_of_store = ""
    insert_settings: Mapping[str, str] = {}
    lock = threading.Lock()

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self._read_body()
        if self.path == "/ping":
            return self._send(200, b"Ok.\n")
        try:
            with self.lock:
                data = answer(self.path_of_store, self.path, body, self.insert_settings)
        except Exception as error:
            return self._send(500, str(error).encode(), _code(str(error)))
        return self._send(200, data)

    def _read_body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
        return DECOMPRESS[self.headers.get("content-encoding", "")](body)

    def _send(self, status: int, body: bytes, code: str | None = None) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-clickhouse-timezone", "UTC")
        if code:
            self.send_header("x-clickhouse-exception-code", code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def _code(text: str) -> str:
    match = re.search(r"Code: (\d+)|error code (\d+)", text)
    return (match[1] or match[2]) if match else "1002"


@contextlib.contextmanager
def clickhouse_server(
    port: int, folder: Path, insert_settings: Mapping[str, str] = {}
) -> Iterator[ClickHouseServer]:
    """Run a server for the length of the block."""
    server = ClickHouseServer(port, folder, insert_settings)
    server.start()
    try:
        yield server
    finally:
        server.kill()


if __name__ == "__main__":
    Handler.path_of_store = sys.argv[2]
    Handler.insert_settings = dict(each.split("=", 1) for each in sys.argv[3:])
    anchor = chdb.connect(sys.argv[2])
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
