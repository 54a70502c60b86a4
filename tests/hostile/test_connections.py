"""Connections that send nothing, too little or too much keep nobody else out."""

import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import httpx
import pytest

from evenkeel_collector.ports.connections import HEAD_BYTES
from tests.fixtures.certificate import make_certificate
from tests.fixtures.collector_process import (
    PROTOBUF,
    CollectorProcess,
    post,
    running_collector,
    wait_for,
)
from tests.fixtures.otlp_payload import trace_request

NUM_HALF_OPEN = 1_150
LIMITED = ("prlimit", "--nofile=1024:1024")
POST = b"POST /v1/traces HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/x-protobuf\r\n"
# What a hostile client sends on each of its connections, and then no more.
STARTS = {
    "nothing": b"",
    "a part of the headers": POST,
    "a part of the body": POST + b"content-length: 1000\r\n\r\nabc",
    "a chunk": POST + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "line ends before a request": b"\r\n\r\n",
    "half a request after a whole one": b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET /",
}


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    """A collector that may open 1,024 files and no more."""
    with running_collector(tmp_path_factory.mktemp("crowded"), wrapper=LIMITED) as collector:
        yield collector


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    """A collector with the limits that it has by default."""
    with running_collector(tmp_path_factory.mktemp("impatient")) as collector:
        yield collector


@contextlib.contextmanager
def connections(url: str, num: int, start: bytes) -> Iterator[list[socket.socket]]:
    """Open connections that send a start and no more; some may be refused."""
    parts = urlsplit(url)
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(num):
            sock = socket.create_connection((parts.hostname, parts.port), timeout=120)
            opened.append(stack.enter_context(sock))
            with contextlib.suppress(OSError):
                sock.sendall(start)
        yield opened


def status_of(sock: socket.socket) -> int:
    """Read one answer, which may come in pieces, to its end."""
    answer = HTTPResponse(sock)
    answer.begin()
    answer.read()
    return answer.status


def metric(collector: CollectorProcess, name: str) -> float:
    text = httpx.get(f"{collector.http_url}/metrics", timeout=120).text
    values = [line.split()[-1] for line in text.splitlines() if line.startswith(name)]
    return sum(map(float, values))


def is_stored(collector: CollectorProcess, service: str) -> bool:
    rows = collector.rows(
        "SELECT count() FROM spans WHERE ServiceName = {s:String}", {"s": service}
    )
    return rows == [(1,)]


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("port", ["http_url", "query_url"])
def test_half_open_connections_stop_nobody(
    crowded: CollectorProcess, port: str, start: bytes
) -> None:
    service = f"{port} {start!r}"
    with connections(getattr(crowded, port), NUM_HALF_OPEN, start):
        body = trace_request(service=service).SerializeToString()
        assert post(crowded, body, PROTOBUF).status_code == 200
        wait_for(lambda: is_stored(crowded, service))
    assert metric(crowded, 'evenkeel_collector_connections_closed_total{port="') > 0


@pytest.mark.parametrize("port", ["http_url", "query_url"])
def test_what_is_not_http_is_counted_and_not_logged(impatient: CollectorProcess, port: str) -> None:
    name = port.removesuffix("_url")
    counted = f'evenkeel_collector_connections_closed_total{{port="{name}",reason="malformed"}}'
    before = metric(impatient, counted)
    # A client that speaks TLS, and one that would rather have a web socket.
    for start, status in (
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32), 400),
        (b"GET /ping HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n"
         b"upgrade: websocket\r\n\r\n", 404 if name == "http" else 200),
    ):  # fmt: skip
        with connections(getattr(impatient, port), 3, start) as opened:
            assert [status_of(sock) for sock in opened] == [status] * 3
    assert metric(impatient, counted) == before + 6
    assert "uvicorn" not in impatient.stderr()


def test_half_open_connections_of_grpc_stop_nobody(crowded: CollectorProcess) -> None:
    with connections(crowded.grpc_url, NUM_HALF_OPEN, b""):
        body = trace_request(service="beside grpc").SerializeToString()
        assert post(crowded, body, PROTOBUF).status_code == 200
        wait_for(lambda: is_stored(crowded, "beside grpc"))
    with grpc.insecure_channel(urlsplit(crowded.grpc_url).netloc) as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        body = trace_request(service="over grpc").SerializeToString()
        export(body, wait_for_ready=True, timeout=120)


def test_one_address_gets_half_of_grpcs_connections(tmp_path: Path) -> None:
    # What a client begins with (RFC 9113): the preface and an empty SETTINGS frame.
    start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    with running_collector(tmp_path, ("--max-connections", "16")) as collector:
        port = urlsplit(collector.grpc_url).port
        with (
            socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)) as other,
            connections(collector.grpc_url, 12, start),
        ):
            other.sendall(start)
            closed = 'evenkeel_collector_connections_closed_total{port="grpc",reason="room"}'
            wait_for(lambda: metric(collector, closed) == 4)
            assert metric(collector, 'evenkeel_collector_connections{port="grpc"}') > 0
            with grpc.insecure_channel(urlsplit(collector.grpc_url).netloc) as channel:
                path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
                body = trace_request(service="busy").SerializeToString()
                channel.unary_unary(path)(body, wait_for_ready=True, timeout=120)
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                while other.recv(4096):
                    pass


def test_the_log_gets_a_descriptor_while_every_connection_is_taken(
    crowded: CollectorProcess,
) -> None:
    with contextlib.ExitStack() as stack:
        for url in (crowded.http_url, crowded.query_url, crowded.grpc_url):
            stack.enter_context(connections(url, NUM_HALF_OPEN, b""))
        # Each in a segment of its own: each needs a new file.
        for number in range(5):
            service = f"segment {number}"
            body = trace_request(service=service).SerializeToString()
            assert post(crowded, body, PROTOBUF).status_code == 200
            wait_for(partial(is_stored, crowded, service))


def test_connections_that_stall_are_closed(impatient: CollectorProcess) -> None:
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(connections(impatient.http_url, 1, start))[0]
            for start in STARTS.values()
        ]
        for sock in opened:
            sock.settimeout(120)
            # Whatever was answered before; then the end.
            while sock.recv(65536):
                pass


def test_headers_without_end_are_refused(impatient: CollectorProcess) -> None:
    with connections(impatient.http_url, 1, POST) as [sock]:
        sent, answer = 0, b""
        with contextlib.suppress(OSError):
            while sent < 100 * HEAD_BYTES:
                sent += sock.send(b"x-more: " + b"x" * 8_000 + b"\r\n")
        with contextlib.suppress(OSError):
            while part := sock.recv(65536):
                answer += part
        assert sent < 100 * HEAD_BYTES
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")


def test_a_body_that_goes_on_arriving_is_waited_for(impatient: CollectorProcess) -> None:
    body = trace_request(service="slow").SerializeToString()
    head = POST + f"content-length: {len(body)}\r\n\r\n".encode()
    with connections(impatient.http_url, 1, head) as [sock]:
        for offset in range(0, len(body), 16):
            sock.sendall(body[offset : offset + 16])
        assert status_of(sock) == 200


def test_an_answer_that_comes_before_the_body_is_whole_is_read(
    impatient: CollectorProcess,
) -> None:
    head = POST.replace(b"/v1/traces", b"/v1/nothing") + b"content-length: 200000\r\n\r\n"
    with connections(impatient.http_url, 1, head) as [sock]:
        sock.sendall(b"x" * 200_000)
        assert status_of(sock) == 404
        sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert status_of(sock) == 200


def test_a_busy_connection_outlives_many_that_wait(crowded: CollectorProcess) -> None:
    query = "SELECT sleepEachRow(0.1) FROM numbers(20) SETTINGS max_block_size = 1"
    address = urlsplit(crowded.query_url).netloc
    with contextlib.closing(HTTPConnection(address, timeout=120)) as busy:
        # Once it has been answered it is not among those that never were, however busy we are.
        busy.request("GET", "/ping")
        assert busy.getresponse().read()
        busy.request("POST", "/", query)
        with connections(crowded.query_url, NUM_HALF_OPEN, b""):
            assert busy.getresponse().read()


def test_tls_handshakes_that_never_end_stop_nobody(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    flags = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with (
        running_collector(tmp_path / "data", flags, LIMITED) as collector,
        connections(collector.http_url, NUM_HALF_OPEN, b""),
    ):
        answer = httpx.post(
            f"{collector.http_url}/v1/traces",
            content=trace_request().SerializeToString(),
            headers=PROTOBUF,
            verify=False,
            timeout=120,
        )
        assert answer.status_code == 200
