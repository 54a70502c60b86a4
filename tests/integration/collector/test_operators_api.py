"""The operators' API as its OpenAPI document promises it, and who may see the document."""

import hashlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
)

from evenkeel.prompts.registry import Move, PromptRegistry, PromptVersion, digest
from evenkeel_collector.operators.api import openapi
from tests.checkout import ROOT
from tests.fixtures.collector_process import CollectorProcess, running_collector, wait_for

TEXT = "You answer."
TRACE = "ab" * 16
PROBLEM = "application/problem+json"
schema = schemathesis.openapi.from_dict(openapi())


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    folder = tmp_path_factory.mktemp("operated")
    registry = PromptRegistry(folder / "prompts")
    registry.keep(PromptVersion("support", digest(TEXT), TEXT))
    registry.move("support", Move(1, "production", digest(TEXT), "the first", None))
    flags = ("--prompts-dir", str(folder / "prompts"), "--slos", str(ROOT / "slos.yaml"))
    with running_collector(folder / "data", flags) as running:
        yield running
        assert "Traceback" not in running.stderr()


@schema.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, database=None,
          suppress_health_check=list(HealthCheck))  # fmt: skip
def test_whatever_a_generated_client_sends_is_answered_as_documented(
    case: schemathesis.Case, collector: CollectorProcess
) -> None:
    answer = case.call(base_url=collector.http_url)
    case.validate_response(
        answer,
        checks=[
            not_a_server_error,
            content_type_conformance,
            response_schema_conformance,
        ],
    )


GOOD = [
    ("silence", {"slo": "support-ttft", "duration": "1h"}, {"id", "matchers", "from", "until"}),
    ("silence", {"matchers": ["severity=page"]}, {"id", "matchers", "from", "until"}),
    ("replay", {"number": None}, {"replayed", "overtaken"}),
    ("correct", {"begin": "2026-01-01T00:00Z", "end": "2026-01-01T01:00Z", "comment": "a switch"},
     {"id", "from", "until"}),
    ("promote", {"prompt": "support", "version": digest(TEXT), "reason": "again"},
     {"label", "is", "was"}),
    ("feedback", {"trace_id": TRACE, "score": 1}, {"feedback_id"}),
    ("review", {"trace_id": TRACE, "decision": "reject"}, {"feedback_id"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "order", "fields"), GOOD)
def test_an_action_is_done_and_written_down(
    collector: CollectorProcess, name: str, order: dict[str, Any], fields: set[str]
) -> None:
    done = httpx.post(f"{collector.http_url}/api/{name}", json={"by": "ann", **order})
    assert (done.status_code, set(done.json())) == (200, fields), done.text
    entry = httpx.get(f"{collector.http_url}/api/audit").json()["entries"][0]
    assert (entry["by"], entry["action"], entry["token"]) == ("ann", name, "")
    case = schema[f"/api/{name}"]["POST"].Case(body={"by": "ann", **order})
    case.validate_response(done)


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "detail"),
    [
        ("POST", "/api/silence", b"{}", 400, "by is missing"),
        ("POST", "/api/silence", b"{", 400, "the body is not JSON"),
        ("POST", "/api/silence", b"[" * 60_000, 400, "parsing the body"),
        ("POST", "/api/silence", b'{"by": "ann", "mood": 1}', 400, "mood is not a known field"),
        ("POST", "/api/silence", b" " * (1 << 20), 413, "larger than 65536 bytes"),
        ("POST", "/api/revoke", b'{"by": "ann", "id": "x"}', 400, "no correction 'x' is in force"),
        ("POST", "/api/correct", b'{"by": "ann", "begin": "2026-01-01", "end": "9999-12-31",'
         b' "comment": "all"}', 400, "not a time of the years 1678 to 2261"),
        ("POST", "/api/nothing", b"{}", 404, "no endpoint at /api/nothing"),
        ("GET", "/api/silence", b"", 405, "does not support GET"),
        ("PUT", "/api/alerts", b"", 405, "does not support PUT"),
        ("GET", "/api/report?from=2020&to=2021", b"", 400, "2020"),
        ("GET", "/api/report", b"", 400, "from is missing"),
    ],
)  # fmt: skip
def test_an_error_is_a_problem_document(
    collector: CollectorProcess, method: str, path: str, content: bytes, status: int, detail: str
) -> None:
    headers = {"content-type": "application/json"}
    answer = httpx.request(method, collector.http_url + path, content=content, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), answer.text
    problem = answer.json()
    assert (problem["status"], problem["error"]) == (status, problem["detail"])
    assert problem["title"] and problem["type"] == "about:blank"
    assert detail in problem["detail"]


@pytest.mark.parametrize(
    ("form", "media_type"),
    [("json", "application/json"), ("markdown", "text/markdown"), ("html", "text/html")],
)
def test_a_report_has_the_form_that_was_asked_for(
    collector: CollectorProcess, form: str, media_type: str
) -> None:
    begin = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(time.time() - 7200))
    query = {"from": begin, "to": "2100-01-01T00:00Z", "format": form}
    answer = httpx.get(f"{collector.http_url}/api/report", params=query, timeout=120)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == media_type
    assert "support-ttft" in answer.text or form == "html"
    schema["/api/report"]["GET"].Case(query=query).validate_response(answer)


def test_a_host_that_is_none_is_a_problem_too(collector: CollectorProcess) -> None:
    for path, status in {"/v1/feedback": 400, "/api/silence": 421}.items():
        answer = httpx.post(collector.http_url + path, json={}, headers={"host": "["})
        assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM)


def test_the_document_and_its_page_come_from_the_collector_alone(
    collector: CollectorProcess,
) -> None:
    page = httpx.get(f"{collector.http_url}/docs")
    assert httpx.get(f"{collector.http_url}/openapi.json").json() == openapi()
    assert all(path in page.text for path in openapi()["paths"])
    assert not re.findall(r"<script|<link|<img|src=|https?://", page.text)
    assert "default-src 'none'" in page.headers["content-security-policy"]
    head = httpx.head(f"{collector.http_url}/docs")
    assert (head.status_code, head.content) == (200, b"")


def test_every_page_asks_for_a_token_that_may_see_it(tmp_path: Path) -> None:
    scopes = {"reader": ["query"], "operator": ["admin"], "sender": ["ingest"]}
    lines = [
        f'[[token]]\nname = "{name}"\nscopes = {json.dumps(allowed)}\n'
        f'sha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n'
        for name, allowed in scopes.items()
    ]
    digest_of_acme = hashlib.sha256(b"acme").hexdigest()
    lines.append(f'[[token]]\nname = "t"\nscopes = ["query", "ingest"]\ntenant = "acme"\n'
                 f'sha256 = "{digest_of_acme}"\n')  # fmt: skip
    (tmp_path / "access.toml").write_text("".join(lines))
    with running_collector(
        tmp_path / "data", ("--access", str(tmp_path / "access.toml"))
    ) as running:
        seen = {
            token: [
                httpx.get(running.http_url + path, headers=bearer(token)).status_code
                for path in ("/docs", "/openapi.json", "/api/audit", "/api/me", "/api/nothing")
            ]
            for token in (*scopes, "acme", "stranger", None)
        }
        assert seen == {
            "reader": [200, 200, 200, 200, 404],
            "operator": [200, 200, 200, 200, 404],
            "sender": [403] * 5,
            "acme": [403, 403, 403, 200, 403],
            "stranger": [401] * 5,
            None: [401] * 5,
        }
        order = {"by": "ann", "comment": "x" * 100_000}
        done = httpx.post(f"{running.http_url}/api/silence", json=order, headers=bearer("reader"))
        assert (done.status_code, done.headers["content-type"]) == (403, PROBLEM)
        page = httpx.get(f"{running.http_url}/docs")
        assert page.headers["www-authenticate"].startswith("Basic")
        assert httpx.get(f"{running.http_url}/docs", auth=("any", "reader")).status_code == 200
        me = httpx.get(f"{running.http_url}/api/me", headers=bearer("acme"))
        assert me.json() == {"tenant": "acme", "may_act": False}
        said = {"trace_id": TRACE, "score": 1}
        for token, status in {"acme": 200, "sender": 200, "reader": 403, "stranger": 401}.items():
            sent = httpx.post(f"{running.http_url}/v1/feedback", json=said, headers=bearer(token))
            assert sent.status_code == status
        done = httpx.post(f"{running.http_url}/api/feedback", json={**said, "by": "ann"},
                          headers=bearer("operator"))  # fmt: skip
        assert done.status_code == 200
        entry = httpx.get(f"{running.http_url}/api/audit", headers=bearer("reader"))
        token = hashlib.sha256(b"operator").hexdigest()[:12]
        assert entry.json()["entries"][0]["token"] == token


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def test_a_rating_that_could_not_be_stored_is_not_written_down(tmp_path: Path) -> None:
    (tmp_path / "evenkeel.toml").write_text("[collector]\nmax_log_bytes = 2000\n")
    with running_collector(tmp_path) as running:

        def send(name: str, **said: object) -> httpx.Response:
            order = {"by": "ann", "trace_id": TRACE, **said}
            return httpx.post(f"{running.http_url}/api/{name}", json=order)

        def audit() -> list[str]:
            entries = httpx.get(f"{running.http_url}/api/audit").json()["entries"]
            return [str(entry["details"]["result"]["feedback_id"]) for entry in entries]

        long = "wrong " * 500
        for answer in (
            send("feedback", score=0, corrected=long),
            send("review", decision="accept", reference=long),
        ):
            assert answer.status_code == 503
        assert audit() == []
        stored = send("feedback", score=0, comment="wrong")
        assert audit() == [stored.raise_for_status().json()["feedback_id"]]
        # What cannot be written down is not stored either.
        for path in tmp_path.glob("audit.db*"):
            path.unlink()
        (tmp_path / "audit.db").mkdir()
        assert send("feedback", score=1).status_code == 503
        rows = "SELECT span_id FROM feedback"
        wait_for(lambda: bool(running.rows(rows)))
        assert running.rows(rows) == [(stored.json()["feedback_id"],)]
