"""Whatever a body holds, it is stored or refused with a Status; it stops nothing."""

import contextlib
import gzip
import itertools
import json
import random
import socket
import zlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx
import pytest

from tests.fixtures.collector_process import CollectorProcess, wait_for
from tests.fixtures.otlp_payload import trace_request
from tests.hostile.dense_bodies import (
    DENSE_JSON,
    DENSE_LOGS,
    DENSE_METRICS,
    DENSE_TRACES,
    JSON_RECORDS,
    LONG_NAME,
)
from tests.hostile.hostile_bodies import (
    FAIR_CODES,
    FEEDBACK,
    GRPC_METHODS,
    JSON,
    LOGS,
    METRICS,
    PROTOBUF,
    TRACES,
    VALUES,
    Body,
    complaint,
    good_bodies,
    logs,
    metrics,
    mutations,
    traces,
)

NUM_MUTATIONS = 1500
PACKED = traces().SerializeToString()


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=120) as client:
        yield client


def send(collector: CollectorProcess, client: httpx.Client, body: Body) -> httpx.Response:
    return client.post(
        f"{collector.http_url}{body.path}", content=body.content, headers=body.raw_headers
    )


def number(collector: CollectorProcess, name: str) -> float:
    """Return a figure of `/metrics`, all its labels summed up."""
    lines = httpx.get(f"{collector.http_url}/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def packed(headers: Mapping[str, str], encoding: str, content: bytes) -> Body:
    return Body(TRACES, {**headers, "content-encoding": encoding}, content)


MANY_MEMBERS = gzip.compress(b"") * 200_000
DEEP = b'{"resourceSpans":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
REFUSED = [
    ("a lone surrogate", Body(TRACES, JSON, b'{"resourceSpans": ["\\ud800"]}'), 400),
    ("a lone surrogate as a name", Body(TRACES, JSON, b'{"\\udfff": 1}'), 400),
    ("a surrogate in UTF-8", Body(TRACES, JSON, b'{"a": "\xed\xa0\x80"}'), 400),
    ("a surrogate in logs", Body(LOGS, JSON, b'{"resourceLogs": "\\ud800"}'), 400),
    ("logs nested without end", Body(LOGS, JSON, b'{"resourceLogs":' + b"[" * 100_000), 400),
    ("deep logs", Body(LOGS, PROTOBUF, b"\x0a\x7f" * 5000), 400),
    ("a bomb of logs", Body(LOGS, PROTOBUF | {"content-encoding": "gzip"},
     gzip.compress(b"\0" * (64 << 20), 9)), 413),
    ("a surrogate in metrics", Body(METRICS, JSON, b'{"resourceMetrics": "\\ud800"}'), 400),
    ("a surrogate in feedback", Body(FEEDBACK, JSON, b'{"trace_id": "\\ud800"}'), 400),
    ("no UTF-8", Body(TRACES, JSON, b'{"a": "\xff"}'), 400),
    ("UTF-16", Body(TRACES, JSON, '{"a": 1}'.encode("utf-16")), 400),
    ("NaN", Body(TRACES, JSON, b'{"resourceSpans": NaN}'), 400),
    ("infinity where nobody reads", Body(TRACES, JSON, b'{"unknown": -Infinity}'), 400),
    ("an integer of 5,000 digits", Body(TRACES, JSON, b'{"a": ' + b"9" * 5000 + b"}"), 400),
    ("an integer beyond doubles", Body(METRICS, JSON, json.dumps(
        {"resourceMetrics": [{"scopeMetrics": [{"metrics": [
            {"name": "m", "gauge": {"dataPoints": [{"asDouble": 10**400}]}}]}]}]}
    ).encode()), 400),
    ("a kind without end", Body(TRACES, JSON,
     b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"kind": 1e999}]}]}]}'), 400),
    ("nested without end", Body(TRACES, JSON, DEEP), 400),
    ("objects without end", Body(METRICS, JSON, b'{"a":' * 100_000), 400),
    ("two documents", Body(TRACES, JSON, b"{}{}"), 400),
    ("protobuf as JSON", Body(TRACES, JSON, PACKED), 400),
    ("JSON as protobuf", Body(TRACES, PROTOBUF, b'{"resourceSpans": []}'), 400),
    ("another signal's", Body(METRICS, PROTOBUF, PACKED[:-1]), 400),
    ("deep protobuf", Body(TRACES, PROTOBUF, b"\x0a\x7f" * 5000), 400),
    ("half a gzip", packed(PROTOBUF, "gzip", gzip.compress(PACKED)[:-9]), 400),
    ("gzip and more", packed(PROTOBUF, "gzip", gzip.compress(PACKED) + b"x"), 400),
    ("gzip of a wrong sum", packed(PROTOBUF, "gzip", gzip.compress(PACKED)[:-8] + b"\0" * 8), 400),
    ("200,000 empty gzips", packed(PROTOBUF, "gzip", MANY_MEMBERS), 400),
    ("a bomb", packed(PROTOBUF, "gzip", gzip.compress(b"\0" * (256 << 20), 9)), 413),
    ("a bomb of JSON", packed(JSON, "gzip", gzip.compress(b"[" * (64 << 20), 9)), 413),
    ("a bomb by deflate", packed(PROTOBUF, "deflate", zlib.compress(b"\0" * (64 << 20), 9)), 413),
    ("gzip that is none", packed(JSON, "gzip", b"{}"), 400),
    ("zstd", packed(PROTOBUF, "zstd", b"\x28\xb5\x2f\xfd\x00"), 400),
    ("an encoding of an encoding", packed(PROTOBUF, "gzip, gzip", gzip.compress(PACKED)), 400),
    ("an encoding that is a riddle", packed(PROTOBUF, "\xff" * 50, PACKED), 400),
    ("another type", Body(TRACES, {"content-type": "text/html"}, PACKED), 415),
    ("a type that is none", Body(TRACES, {"content-type": "/;;=\xff"}, PACKED), 415),
    ("no type", Body(METRICS, {}, PACKED), 415),
    ("feedback as a form", Body(FEEDBACK, {"content-type": "text/plain"}, b"{}"), 415),
    ("feedback of 1 MiB", Body(FEEDBACK, JSON, b'{"comment": "' + b"x" * (1 << 20) + b'"}'), 413),
    ("a score that is NaN", Body(FEEDBACK, JSON,
     b'{"trace_id": "0af7651916cd43dd8448eb211c80319c", "score": NaN}'), 400),
    ("a score that is a text", Body(FEEDBACK, JSON,
     b'{"trace_id": "0af7651916cd43dd8448eb211c80319c", "score": "Infinity"}'), 400),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status"), [pytest.param(body, status, id=name) for name, body, status in REFUSED]
)
def test_a_body_that_is_none_is_refused_with_a_status_and_counted(
    collector: CollectorProcess, client: httpx.Client, body: Body, status: int
) -> None:
    before = number(collector, "evenkeel_collector_requests_rejected_total")
    answer = send(collector, client, body)
    assert answer.status_code == status, answer.text[:300]
    assert complaint(body, answer.status_code, answer.headers, answer.content) is None
    assert len(answer.content) < 2000
    assert number(collector, "evenkeel_collector_requests_rejected_total") == before + 1


DENSE = [
    *((name, TRACES, PROTOBUF, content) for name, content in DENSE_TRACES.items()),
    *((name, METRICS, PROTOBUF, content) for name, content in DENSE_METRICS.items()),
    *((name, LOGS, PROTOBUF, content) for name, content in DENSE_LOGS.items()),
    *((f"{name} in JSON", TRACES, JSON, content) for name, content in DENSE_JSON.items()),
    ("resources in JSON", TRACES, JSON, JSON_RECORDS),
    ("a long name", METRICS, PROTOBUF, LONG_NAME),
]


@pytest.mark.parametrize(
    ("path", "headers", "content"), [pytest.param(*each[1:], id=each[0]) for each in DENSE]
)
def test_a_body_that_holds_too_much_is_refused_for_good(
    collector: CollectorProcess,
    client: httpx.Client,
    path: str,
    headers: Mapping[str, str],
    content: bytes,
) -> None:
    name = "evenkeel_collector_requests_rejected_total"
    before = number(collector, name)
    body = Body(path, {**headers, "content-encoding": "gzip"}, gzip.compress(content))
    assert len(body.content) < len(content) / 100
    answer = send(collector, client, body)
    assert answer.status_code == 413, answer.text[:300]
    assert complaint(body, 413, answer.headers, answer.content) is None
    assert "retry-after" not in answer.headers
    assert number(collector, name) == before + 1
    assert number(collector, f'{name}{{reason="too_many",transport="http"}}') > 0
    assert client.get(f"{collector.http_url}/readyz").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            Body(TRACES, JSON, b'\xef\xbb\xbf{"resourceSpans": []}'), id="a mark of order"
        ),
        pytest.param(
            Body(TRACES, JSON, b'{"resourceSpans": 1, "resourceSpans": []}'), id="a name twice"
        ),
        pytest.param(Body(TRACES, JSON, b'{"a": "\\ud83d\\ude00"}'), id="both halves"),
        pytest.param(Body(TRACES, JSON, b'{"a": "\\\\ud800"}'), id="a text about a surrogate"),
        pytest.param(Body(TRACES, JSON, b'{"resourceSpans": null}'), id="null for a list"),
        pytest.param(
            packed(PROTOBUF, "gzip", gzip.compress(PACKED[:9]) + gzip.compress(PACKED[9:])),
            id="two gzips",
        ),
        pytest.param(Body(TRACES, JSON | {"content-type": "APPLICATION/JSON ;q=1"}, b"{}"), id="Q"),
    ],
)
def test_a_body_that_is_odd_is_taken(
    collector: CollectorProcess, client: httpx.Client, body: Body
) -> None:
    answer = send(collector, client, body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", [TRACES, METRICS, LOGS, FEEDBACK])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: value[:20])
def test_any_value_for_the_whole_document_is_answered_fairly(
    collector: CollectorProcess, client: httpx.Client, path: str, value: str
) -> None:
    body = Body(path, JSON, value.encode("utf-8", "surrogatepass"))
    answer = send(collector, client, body)
    assert complaint(body, answer.status_code, answer.headers, answer.content) is None


def exchange(collector: CollectorProcess, sent: bytes, timeout_s: float) -> bytes:
    """Send bytes, and return what comes back until the connection ends or nothing comes."""
    address = urlsplit(collector.http_url)
    with socket.create_connection((address.hostname, address.port), timeout=timeout_s) as sock:
        received = b""
        with contextlib.suppress(TimeoutError, OSError):
            sock.sendall(sent)
            received = sock.recv(65536)
        with contextlib.suppress(OSError):
            # Who has sent all is taken for gone, so not before the answer.
            sock.shutdown(socket.SHUT_WR)
            while part := sock.recv(65536):
                received += part
        return received


HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        pytest.param(HEAD + b"Content-Length: 9\r\n\r\n{}", b"", id="cut short"),
        pytest.param(HEAD + b"Content-Length: 1\r\n\r\n{}", b"400", id="longer than it says"),
        pytest.param(HEAD + b"Content-Length: -1\r\n\r\n{}", b"400", id="a negative length"),
        pytest.param(HEAD + b"Content-Length: 1e9\r\n\r\n{}", b"400", id="no length"),
        pytest.param(HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{}", b"400", id="long"),
        pytest.param(
            HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", b"400", id="two lengths"
        ),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"200", id="chunked"
        ),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400", id="no chunk"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}", b"", id="no last chunk"),
        pytest.param(b"\x16\x03\x01\x00\x05hello", b"400", id="TLS"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400", id="HTTP/2"),
        pytest.param(b"GET /\xff\xfe%zz HTTP/1.1\r\nHost: x\r\n\r\n", b"4", id="a path of bytes"),
    ],
)
def test_frames_that_are_none_fail_nothing(
    collector: CollectorProcess, sent: bytes, answered: bytes
) -> None:
    received = exchange(collector, sent, 120 if answered else 5)
    statuses = [line.split(b" ")[1] for line in received.split(b"\r\n") if line[:5] == b"HTTP/"]
    assert all(status[:1] in b"24" for status in statuses), received
    assert any(status.startswith(answered) for status in statuses) or not answered
    assert httpx.get(f"{collector.http_url}/healthz").status_code == 200


GRPC = [
    ("no protobuf", TRACES, b"\x0a\xff", None, {"INVALID_ARGUMENT"}),
    ("JSON", TRACES, b"{}", None, {"INVALID_ARGUMENT"}),
    ("deep", TRACES, b"\x0a\x7f" * 5000, None, {"INVALID_ARGUMENT"}),
    ("half a message", METRICS, metrics().SerializeToString()[:-3], None, {"INVALID_ARGUMENT"}),
    ("a bomb", TRACES, b"\0" * (30 << 20), grpc.Compression.Gzip, {"RESOURCE_EXHAUSTED"}),
    ("a bomb by deflate", METRICS, b"\0" * (6 << 20), grpc.Compression.Deflate,
     {"RESOURCE_EXHAUSTED"}),
    ("nothing", METRICS, b"", None, {"OK"}),
    ("half a log", LOGS, logs().SerializeToString()[:-3], None, {"INVALID_ARGUMENT"}),
    ("a bomb of logs", LOGS, b"\0" * (30 << 20), grpc.Compression.Gzip, {"RESOURCE_EXHAUSTED"}),
    ("empty points", METRICS, DENSE_METRICS["points"], grpc.Compression.Gzip,
     {"RESOURCE_EXHAUSTED"}),
]  # fmt: skip


def call(channel: grpc.Channel, path: str, body: bytes, **options: Any) -> str:
    """Return the code of a gRPC answer."""
    try:
        channel.unary_unary(GRPC_METHODS[path])(body, timeout=120, **options)
    except grpc.RpcError as error:
        assert "Traceback" not in (error.details() or "")
        return str(error.code().name)
    return "OK"


@pytest.fixture(scope="module")
def channel(collector: CollectorProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(collector.grpc_url.removeprefix("http://")) as channel:
        yield channel


@pytest.mark.parametrize(
    ("path", "body", "compression", "codes"), [pytest.param(*each[1:], id=each[0]) for each in GRPC]
)
def test_grpc_refuses_a_message_that_is_none(
    channel: grpc.Channel, path: str, body: bytes, compression: Any, codes: set[str]
) -> None:
    assert call(channel, path, body, compression=compression) in codes


def test_mutations_are_answered_fairly_and_what_is_stored_can_be_read(
    collector: CollectorProcess, client: httpx.Client, channel: grpc.Channel
) -> None:
    rng = random.Random(14)
    for place, body in enumerate(itertools.islice(mutations(rng), NUM_MUTATIONS)):
        if place % 5 == 0 and body.path in GRPC_METHODS and body.headers == PROTOBUF:
            assert call(channel, body.path, body.content) in FAIR_CODES, body
            continue
        answer = send(collector, client, body)
        wrong = complaint(body, answer.status_code, answer.headers, answer.content)
        assert wrong is None, (wrong, body)
    for body in good_bodies():
        assert send(collector, client, body).status_code == 200
    for name, table in (
        ("spans", "spans"), ("points", "engine_state"), ("log_records", "logs"),
    ):  # fmt: skip
        accepted = int(number(collector, f"evenkeel_collector_{name}_accepted_total"))
        assert accepted > 0
        wait_for(
            lambda table=table, accepted=accepted: (  # type: ignore[misc]
                collector.rows(f"SELECT count() FROM {table}") == [(accepted,)]
            ),
            300,
        )
    for table in ("spans", "requests", "engine_state", "feedback", "logs"):
        collector.rows(f"SELECT * FROM {table}")
    assert number(collector, "evenkeel_collector_insert_failures_total") == 0
    assert number(collector, "evenkeel_collector_segments_quarantined_total") == 0
    assert collector.process.poll() is None
    assert "Traceback" not in collector.stderr()
    assert "cannot be read" not in collector.stderr()


SLASHES = [
    "a/b", "\\/", "\\\\/", "/", "//", 'say "a/b"', "http://x/y?z=\\n", "tab\there", "\x7f\u2028",
    "</script>", "\\u002f", "é/漢", "a\\", "",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["a list", "a map", "a list of lists", "a map in JSON"])
def test_text_within_attributes_keeps_its_slashes(
    collector: CollectorProcess, client: httpx.Client, kind: str
) -> None:
    value: Any = {
        "a list": SLASHES,
        "a map": {text: text for text in SLASHES},
        "a list of lists": [[text] for text in SLASHES],
        "a map in JSON": {text: [text] for text in SLASHES},
    }[kind]
    request = trace_request(1, {"v": value}, service=kind)
    if kind == "a map in JSON":
        values = [
            {"key": text, "value": {"arrayValue": {"values": [{"stringValue": text}]}}}
            for text in SLASHES
        ]
        span = {
            "name": "n",
            "attributes": [{"key": "v", "value": {"kvlistValue": {"values": values}}}],
        }
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": kind}}]}
        document = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
        body = Body(TRACES, JSON, json.dumps(document).encode())
    else:
        body = Body(TRACES, PROTOBUF, request.SerializeToString())
    assert send(collector, client, body).status_code == 200
    query = "SELECT SpanAttributes['v'] FROM spans WHERE ServiceName = {kind:String}"
    wait_for(lambda: collector.rows(query, {"kind": kind}) != [])
    ((text,),) = collector.rows(query, {"kind": kind})
    assert json.loads(text) == value
    # Each slash stands for itself: none was escaped.
    assert text.count("\\/") == json.dumps(value, ensure_ascii=False).count("\\/")
