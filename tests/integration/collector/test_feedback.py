"""Feedback over HTTP ends up in the store, with secrets taken out."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from evenkeel_collector.operators.feedback import Feedback, to_span
from tests.fixtures.collector_process import (
    FRESH,
    CollectorProcess,
    running_collector,
    start_collector,
    wait_for,
)

TRACE = "ab" * 16


def test_feedback_is_stored_with_its_trace(collector: CollectorProcess) -> None:
    said = {
        "trace_id": TRACE,
        "score": 0,
        "label": "down",
        "comment": "use password=hunter2hunter2, it said",
        "author": "kim",
    }
    answer = httpx.post(f"{collector.http_url}/v1/feedback", json=said)
    assert answer.status_code == 200, answer.text
    columns = "span_id, score, label, comment, corrected, author"
    sql = f"SELECT {columns} FROM feedback WHERE trace_id = {{t:String}}"
    wait_for(lambda: bool(collector.rows(sql, {"t": TRACE})))
    span_id, score, label, comment, corrected, author = collector.rows(sql, {"t": TRACE})[0]
    assert (span_id, score, label) == (answer.json()["feedback_id"], 0.0, "down")
    assert (corrected, author) == (None, "kim")
    assert "hunter2" not in comment
    spans = collector.rows("SELECT SpanName FROM spans WHERE TraceId = {t:String}", {"t": TRACE})
    assert spans == [("evenkeel.feedback",)]


def test_other_bodies_are_refused(collector: CollectorProcess) -> None:
    url = f"{collector.http_url}/v1/feedback"
    bad = httpx.post(url, json={"trace_id": "1", "score": 1})
    assert (bad.status_code, "trace_id" in bad.json()["detail"]) == (400, True)
    as_text = httpx.post(url, content=b"{}", headers={"content-type": "text/plain"})
    assert as_text.status_code == 415
    assert httpx.get(url).status_code == 405
    assert httpx.post(url, json={"comment": "x" * 70_000}).status_code == 413


def num_refused(collector: CollectorProcess) -> float:
    name = 'evenkeel_collector_requests_rejected_total{reason="malformed",transport="http"}'
    lines = httpx.get(f"{collector.http_url}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"trace_id": 1', id="not whole"),
        pytest.param(b"\xff\xfe{}", id="not UTF-8"),
        pytest.param(b"[" * 50_000, id="too deep"),
        pytest.param(b'{"trace_id": 1}', id="no trace ID"),
    ],
)
def test_a_refused_body_is_counted(collector: CollectorProcess, body: bytes) -> None:
    before = num_refused(collector)
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{collector.http_url}/v1/feedback", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["status"] == 400
    assert num_refused(collector) == before + 1


ENTRY = '[[token]]\nname = "{name}"\nsha256 = "{digest}"\nscopes = ["{scope}"]\n'


def token(name: str, scope: str, tenant: str = "") -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()
    entry = ENTRY.format(name=name, digest=digest, scope=scope)
    return entry + (f'tenant = "{tenant}"\n' if tenant else "")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    folder = tmp_path_factory.mktemp("guarded")
    access = folder / "access.toml"
    access.write_text(
        token("acme", "ingest", "acme") + token("fleet", "ingest") + token("operator", "admin")
    )
    with running_collector(folder, ["--access", str(access)]) as running:
        yield running


def post(
    collector: CollectorProcess, name: str, path: str, body: dict[str, object] | bytes
) -> httpx.Response:
    headers = {"authorization": f"Bearer {name}"}
    if isinstance(body, bytes):
        headers["content-type"] = "application/x-protobuf"
        return httpx.post(f"{collector.http_url}{path}", headers=headers, content=body)
    return httpx.post(f"{collector.http_url}{path}", headers=headers, json=body)


def stored(collector: CollectorProcess, trace_id: str) -> list[tuple[str | None, str | None]]:
    """Return label and tenant of the feedback on an answer."""
    headers = {"authorization": "Bearer operator"}
    sql = f"SELECT label, tenant FROM evenkeel.feedback WHERE trace_id = '{trace_id}'"
    answer = httpx.post(
        collector.query_url,
        params=FRESH,
        content=f"{sql} ORDER BY time FORMAT JSONCompact",
        headers=headers,
    )
    return [tuple(row) for row in answer.raise_for_status().json()["data"]]


@pytest.mark.parametrize("name", ["acme", "fleet", "operator"])
@pytest.mark.parametrize("label", ["golden", "not golden"])
def test_a_sender_cannot_review(guarded: CollectorProcess, name: str, label: str) -> None:
    trace_id = hashlib.md5(f"{name} {label}".encode()).hexdigest()
    said: dict[str, object] = {"trace_id": trace_id, "label": label, "corrected": "mine"}
    refused = post(guarded, name, "/v1/feedback", said)
    assert (refused.status_code, "/api/review" in refused.json()["detail"]) == (403, True)
    # A span that says the same is feedback, and nothing more.
    _, body = to_span(Feedback(trace_id=trace_id, label=label, corrected="mine"))
    assert post(guarded, name, "/v1/traces", body).status_code == 200
    wait_for(lambda: bool(stored(guarded, trace_id)))
    assert stored(guarded, trace_id) == [(None, "acme" if name == "acme" else None)]


def test_an_operator_reviews(guarded: CollectorProcess) -> None:
    order: dict[str, object] = {"by": "lee", "trace_id": TRACE, "tenant": "acme"}
    order |= {"decision": "accept", "reference": "9 EUR"}
    for name, status in (("acme", 403), ("fleet", 403), ("operator", 200)):
        assert post(guarded, name, "/api/review", order).status_code == status
    wait_for(lambda: bool(stored(guarded, TRACE)))
    assert stored(guarded, TRACE) == [("golden", "acme")]


def test_feedback_has_the_tenant_of_its_token(guarded: CollectorProcess) -> None:
    trace_id = "ef" * 16
    for number, tenant in enumerate((None, "acme", "other")):
        said: dict[str, object] = {"trace_id": trace_id, "score": 1, "id": str(number)}
        said |= {"tenant": tenant} if tenant else {}
        assert post(guarded, "acme", "/v1/feedback", said).status_code == 200
    wait_for(lambda: len(stored(guarded, trace_id)) == 3)
    assert stored(guarded, trace_id) == [(None, "acme")] * 3


def test_feedback_with_the_id_of_an_earlier_one_is_acknowledged_and_not_stored(
    tmp_path: Path,
) -> None:
    def send(collector: CollectorProcess, **said: object) -> str:
        body = {"trace_id": TRACE, "score": 0, "id": "message 7", **said}
        answer = httpx.post(f"{collector.http_url}/v1/feedback", json=body)
        return str(answer.raise_for_status().json()["feedback_id"])

    collector = start_collector(tmp_path)
    try:
        assert send(collector) == send(collector) == send(collector, score=1)
    finally:
        collector.kill()
    with running_collector(tmp_path) as collector:
        send(collector)
        # Another tenant's, another answer's, and one without an id are others.
        send(collector, tenant="acme")
        send(collector, trace_id="cd" * 16)
        send(collector, id=None, label="up")
        sql = "SELECT trace_id, score, label, tenant FROM feedback ORDER BY ALL"
        wait_for(lambda: any(row[2] == "up" for row in collector.rows(sql)))
        assert collector.rows(sql) == [
            (TRACE, 0.0, "up", None),
            (TRACE, 0.0, None, "acme"),
            (TRACE, 0.0, None, None),
            ("cd" * 16, 0.0, None, None),
        ]
