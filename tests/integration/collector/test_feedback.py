"""Feedback over HTTP ends up in the store, with secrets taken out."""

import httpx
import pytest

from tests.fixtures.collector_process import CollectorProcess, wait_for

pytestmark = pytest.mark.integration
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
